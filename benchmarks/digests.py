"""Digests of fixed short runs: what a change that only moves code must not change.

    python benchmarks/digests.py --write digests.json [--only math-python,aepo]
    python benchmarks/digests.py --against digests.json [--only math-python,aepo]

Five runs of a few steps, each by `turngym` itself with fixed seeds: math-python, aepo (branches) and ppo (a value head)
with the tiny policy, household and search with policies that a short warm-up makes first. Of each, the sha256 of every
journal, adapter and optimizer state. With `--against` a line for each file that differs, and exit status 1.
The bits are those of one machine and one version of torch: write the digests where you compare them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SHORT = "--prompts 4 --group 4 --eval-every 2 --eval-tasks 16 --out run"
METHOD = "--method grpo,epo"  # of the recipes of environments: a default that changes does not change the digests
WARM = "--episodes 200 --steps 8 --batch 8 --out warm"
RUNS = {
    "math-python": [f"train math-python {METHOD} --steps 4 {SHORT}"],
    "aepo": [f"train aepo --steps 3 {SHORT}"],
    "ppo": [f"train ppo --steps 3 {SHORT}"],
    "household": [
        f"warmup turngym/Household-v0 {WARM} --option size=tiny max_turns=8",
        f"train household {METHOD} --steps 3 {SHORT} --policy warm",
    ],
    "search": [
        f"warmup turngym/Search-v0 {WARM} --option size=tiny hops=1 k=1",
        f"train search {METHOD} --steps 3 {SHORT} --policy warm",
    ],
}
KEPT = ("*.jsonl", "*.safetensors")
UNKEPT = ("metrics.jsonl", "timings.jsonl", "incidents.jsonl")  # they hold seconds


def main() -> int:
    """Run the cases, then write their digests or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--write", type=Path, help="file to write the digests to")
    target.add_argument("--against", type=Path, help="file of digests to compare with")
    parser.add_argument("--only", default=",".join(RUNS), help=f"cases, of {', '.join(RUNS)}")
    args = parser.parse_args()
    found = {case: digests(case) for case in args.only.split(",")}
    if args.write:
        args.write.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{sum(map(len, found.values()))} digests written to {args.write}")
        return 0
    return compare(json.loads(args.against.read_text()), found)


def compare(before: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> int:
    """Print what differs and return the exit status."""
    differ = 0
    for case, files in found.items():
        names = sorted({*files, *before[case]})
        changed = [name for name in names if files.get(name) != before[case].get(name)]
        print(f"{case}: {len(names) - len(changed)} of {len(names)} files equal")
        for name in changed:
            print(f"  differs: {name}")
        differ += len(changed)
    return 1 if differ else 0


def digests(case: str) -> dict[str, str]:
    """Run a case in a temporary folder and return the digest of each file that it left."""
    with tempfile.TemporaryDirectory() as folder:
        for line in RUNS[case]:
            done = subprocess.run(
                [sys.executable, "-m", "turngym", *line.split()],
                cwd=folder,
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            if done.returncode:
                sys.exit(f"turngym {line}\n{done.stdout}\n{done.stderr}")
        root = Path(folder)
        files = sorted(path for kind in KEPT for path in root.rglob(kind) if path.name not in UNKEPT)
        return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


if __name__ == "__main__":
    sys.exit(main())
