"""The net under a rewrite: what turngym does, item by item, to show that a change of its text changes nothing else.

    python benchmarks/sameness.py --write baseline.json
    python benchmarks/sameness.py --against baseline.json [--only problems,methods] [--quick]

The areas:

    problems      every kind of generated problem for 2,000 keys
    environments  prompt, tool schemas and first observation of every registered environment, with many options
    templates     an opening and an answered call in every recorded chat template
    experts       whole episodes that an environment's expert plays: games, questions, function calls
    tools         schemas from docstrings, errors and results of tools, what an environment says to a bad reply
    parsers       every format of calls, and every way to find an answer, over recorded completions
    grader        verdicts over recorded answers
    methods       terms, loss, gradient, state, plan and verdicts of every method, for each of its parameters
    runs          journals, adapters and optimizer states of short runs
    keys          names of metrics, of journals, of configs, of control states, of an adapter's tensors
    help          the help of every command

`--against` names each item that differs and where, and ends with status 1 if one does. `--write` with `--only` writes
these areas anew and keeps the others of the file. `--quick` makes a part of the
items, which can be compared with a full file. What a machine cannot make is listed, never silently left out. The bits
of floats are those of one machine and one version of torch: write the file where you compare. What is measured is the
checkout that this file is in.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # measure this checkout, also if another one is installed
    if CHECKOUT.name != "turngym":
        sys.exit(
            f"the checkout is the folder {CHECKOUT.name}; to be imported it must be called turngym"
        )
    sys.path.insert(0, str(CHECKOUT.parent))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(CHECKOUT.parent), os.environ.get("PYTHONPATH")])
    )
    os.environ["OMP_NUM_THREADS"] = "1"  # sums of floats depend on the number of threads

# ruff: noqa: E402 (the path above has to be set before turngym is imported)
from turngym.benchmarks.sameness_items import Area, Item, LeftOut, Record, Scope
from turngym.benchmarks.sameness_learning import help_of_commands, keys, methods, runs
from turngym.benchmarks.sameness_worlds import (
    environments,
    experts,
    grader,
    parsers,
    problems,
    templates,
    tools,
)

AREAS: dict[str, Area] = {
    "problems": problems,
    "environments": environments,
    "templates": templates,
    "experts": experts,
    "tools": tools,
    "parsers": parsers,
    "grader": grader,
    "methods": methods,
    "runs": runs,
    "keys": keys,
    "help": help_of_commands,
}
MOST_SHOWN = 20  # items that differ, of an area


@dataclass
class AreaItems:
    """The items of one area, by name, and the reasons why others are left out."""

    items: dict[str, Item] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, area: Area, scope: Scope) -> AreaItems:
        """Make the items of an area. Raises ValueError if two have one name."""
        made = cls()
        for item in area(scope):
            if item.name in made.items or item.name in made.left_out:
                raise ValueError(f"two items are called {item.name!r}; give each a name of its own")
            if isinstance(item, LeftOut):
                made.left_out[item.name] = item.reason
            else:
                made.items[item.name] = item
        return made

    def to_json(self) -> dict[str, Any]:
        """Return the records of the items as JSON data."""
        records = {name: Record.of(item).to_json() for name, item in sorted(self.items.items())}
        return {"items": records, "left_out": sorted(self.left_out)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the items of the areas and write or compare them; 1 if any differs."""
    args = parse(arguments)
    scope = Scope(args.quick, args.shared)
    if args.write:
        write(args.write, args.only, scope)
        return 0
    baseline = json.loads(args.against.read_text("utf-8"))
    if baseline["quick"] and not args.quick:
        sys.exit(f"{args.against} was written with --quick; add --quick, or write a full file")
    items = differences = 0
    for name in args.only:
        made_now = make_area(name, scope)
        lines = compare(
            baseline["areas"].get(name), made_now, part=args.quick and not baseline["quick"]
        )
        report(name, lines)
        items += len(made_now.items)
        differences += len(lines)
    if differences:
        print(f"different: {differences} of {items} items in {len(args.only)} areas")
        return 1
    print(f"equal: {items} items in {len(args.only)} areas")
    return 0


def write(file: Path, names: Sequence[str], scope: Scope) -> None:
    """Make areas and write them to a file, which keeps the other areas that it has."""
    areas = dict[str, Any]()
    if file.exists() and len(names) < len(AREAS):
        before = json.loads(file.read_text("utf-8"))
        if before["quick"] != scope.quick:
            sys.exit(
                f"{file} was written {'with' if before['quick'] else 'without'} --quick; write another file"
            )
        areas = before["areas"]
    for name in names:
        areas[name] = make_area(name, scope).to_json()
    file.write_text(json.dumps({"quick": scope.quick, "areas": areas}, indent=1) + "\n", "utf-8")
    count = sum(len(area["items"]) for area in areas.values())
    print(f"written: {count} items in {len(areas)} areas")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; ends the program if they cannot be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--write", type=Path, metavar="FILE", help="file to write")
    target.add_argument("--against", type=Path, metavar="FILE", help="file to compare with")
    parser.add_argument(
        "--only", nargs="+", default=list(AREAS), metavar="AREA", help="areas to make"
    )
    parser.add_argument("--quick", action="store_true", help="make a part of the items")
    shared = CHECKOUT.parent / "shared"
    parser.add_argument(
        "--shared", type=Path, default=shared, help=f"folder of recorded data ({shared})"
    )
    args = parser.parse_args(arguments)
    args.only = [name for names in args.only for name in names.split(",")]
    for name in args.only:
        if name not in AREAS:
            parser.error(f"there is no area {name!r}; the areas are {', '.join(AREAS)}")
    return args


def make_area(name: str, scope: Scope) -> AreaItems:
    """Make an area and print how many items it has, and which are left out."""
    began = time.process_time()
    made = AreaItems.make(AREAS[name], scope)
    seconds = time.process_time() - began
    print(f"{name}: {len(made.items)} items, {seconds:.0f} s of this process", flush=True)
    for item, reason in made.left_out.items():
        print(f"  left out: {item}: {reason}")
    return made


def compare(
    baseline: Mapping[str, Any] | None, made: AreaItems, part: bool
) -> dict[str, list[str]]:
    """Return what differs, by item.

    Args:
        baseline: The area in the file that was written, None if it has none.
        made: The area now.
        part: Whether only a part of the baseline's items was made, so that the others are not missed.
    """
    if baseline is None:
        return {"(the area)": ["is not in the file"]}
    records = {name: Record.from_json(row) for name, row in baseline["items"].items()}
    differences = dict[str, list[str]]()
    for name, item in made.items.items():
        record = records.get(name)
        if record is None:
            known = "was left out" if name in baseline["left_out"] else "is new"
            differences[name] = [known]
        elif record.sha256 != Record.of(item).sha256:
            differences[name] = record.difference(item)
    for name, reason in made.left_out.items():
        if name in records:
            differences[name] = [f"can no longer be made: {reason}"]
    if not part:
        for name in records.keys() - made.items.keys() - made.left_out.keys():
            differences[name] = ["is missing"]
        for name in set(baseline["left_out"]) - made.items.keys() - made.left_out.keys():
            differences[name] = ["was left out, and is missing now"]
    return differences


def report(area: str, differences: Mapping[str, list[str]]) -> None:
    """Print the differences of an area."""
    for name, lines in list(differences.items())[:MOST_SHOWN]:
        print(f"  differs: {area} / {name}: {lines[0]}")
        for line in lines[1:]:
            print(f"    {line}")
    if len(differences) > MOST_SHOWN:
        print(f"  … and {len(differences) - MOST_SHOWN} more items of {area}")


if __name__ == "__main__":
    sys.exit(main())
