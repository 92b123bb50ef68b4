"""What looking at a run costs: writing the page of a run, and following a run that goes on.

    python benchmarks/report.py [RUN] [--seconds 60] [--quick]

Without RUN it writes one of 200 steps itself. Writing: CPU seconds and largest memory of a process that does nothing
else. Following: metrics get a line a second, and a client asks the server as the page does; printed is the CPU that the
server took, as a share of the time. The drawing of the browser is not in it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from turngym.tests.support.runs import write_run


def main() -> None:
    """Print both costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        run = args.run or write_run(base / "run", 20 if args.quick else 200, tasks=8, group=8)
        writing(run, base / "page.html")
        following(run, base / "followed", 6.0 if args.quick else args.seconds)


def writing(run: Path, out: Path) -> None:
    """Print what writing the page takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "turngym", "view", str(run), "--out", str(out)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    steps = len((run / "metrics.jsonl").read_text().splitlines()) - 1
    print(
        f"page of {steps} steps: {cpu:.2f} s of CPU with the start of Python, {after.ru_maxrss / 1024:.0f} MiB, ",
        end="",
    )
    print(f"{out.stat().st_size / 1e6:.2f} MB")


def following(run: Path, copy: Path, seconds: float) -> None:
    """Print how much of a processor following takes, while a run writes a step a second."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    shutil.copytree(run, copy)
    (copy / "metrics.jsonl").write_text("".join(lines[: len(lines) // 2]))
    (copy / "summary.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "turngym", "view", str(copy), "--live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[0]
        try:
            seen, step, asked = ask(url, 0, "")
            begun, cpu, due, answers = time.monotonic(), used(server.pid), 0.0, 0
            rest = iter(lines[len(lines) // 2 :])
            while time.monotonic() - begun < seconds:
                with (copy / "metrics.jsonl").open("a") as file:
                    file.write(next(rest, ""))
                if time.monotonic() >= due:
                    seen, step, wait = ask(url, seen, step)
                    due, answers = time.monotonic() + wait, answers + 1
                time.sleep(1)
            share = (used(server.pid) - cpu) / (time.monotonic() - begun)
        finally:
            server.terminate()
    print(
        f"following a step a second for {seconds:.0f} s: {100 * share:.2f} % of a processor, {answers} answers", end=""
    )
    print(f", the whole page in one of {asked:.1f} s waiting after it")


def ask(url: str, seen: int, step: str) -> tuple[int, str, float]:
    """Ask for what is new, as the page does; return the version, the last step and how long to wait (seconds)."""
    with urllib.request.urlopen(f"{url}news?seen={seen}&steps={step}") as answer:
        body = answer.read()
    data = json.loads(gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body)
    runs = data.get("runs")
    last = [run["steps"][-1] if run["steps"] else step for run in runs] if runs else step
    return data.get("seen", seen), str(last[0]) if runs else step, data["wait"]


def used(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
