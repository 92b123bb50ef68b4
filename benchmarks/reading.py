"""A blind reading: functions of turngym among functions of other code bases, to be rated by people who know of neither.

    python benchmarks/reading.py draw --rooms tools envs --commit HEAD --out FOLDER [--exclude KEY.json ...]
    python benchmarks/reading.py score --key FOLDER/key.json --ratings FILE [FILE ...]
    python benchmarks/reading.py counts [--rooms tools envs agents training] [--commit HEAD]

`draw` writes `sheet.md`, which readers get and nothing else, and `key.json`, which says whose the functions are. Which
functions are drawn depends on the commit's hash alone. The other half of them is of wheels that pip downloads (httpx,
tinker-cookbook, verifiers, trl, inspect-ai, gymnasium, optax, rlax) to a temporary folder. Names of projects are taken
out. Each reader writes ratings into a copy of the sheet. `score` prints them by origin and by room, `counts` how each
room is written beside these code bases.

This is a thermometer: nothing passes or fails by it.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(CHECKOUT.parent))

# ruff: noqa: E402 (the path above has to be set before turngym is imported)
from turngym.benchmarks.reading_counts import Counts, table
from turngym.benchmarks.reading_sources import (
    FEWEST_STATEMENTS,
    ROOMS,
    Function,
    SourceFile,
    fetch_wheels,
    files_of_commit,
    files_of_wheel,
    full_hash,
    functions_of,
    group_by_room,
    without_projects,
)

COUNT = 48  # functions of turngym, and as many of others
LONG_SHARE = 0.1  # the longest functions of a room,
FROM_LONG = 0.25  # and the share of those that are drawn which are from them
Identity = tuple[str, str, str]
INTRODUCTION = """# Reading

Below are {count} functions of several code bases, in random order; names of projects are replaced. For each one, read
it once, as you would to change it tomorrow, and then write behind the colons under it:

- clarity: 1 (I do not know what it does) to 5 (I know what it does and why)
- naming: 1 (names mislead or say nothing) to 5 (names say what things are)
- compression: 1 (far too spread out), 3 (right), 5 (far too much in each line)
- clear: yes if everything was fully clear at first reading, else no
- tripped: what made you stop or read again, in a few words; empty if nothing did
"""
RATING = "- clarity:\n- naming:\n- compression:\n- clear:\n- tripped:\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="write a sheet and its key")
    drawing.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="folder to write to"
    )
    drawing.add_argument(
        "--exclude", type=Path, nargs="+", default=[], metavar="KEY", help="keys of earlier sheets"
    )
    drawing.add_argument(
        "--count", type=int, default=COUNT, help=f"functions of each half ({COUNT})"
    )
    scoring = commands.add_parser("score", help="print a table of ratings")
    scoring.add_argument("--key", type=Path, required=True, help="the key of the sheet")
    scoring.add_argument(
        "--ratings", type=Path, nargs="+", required=True, help="filled sheets, one a reader"
    )
    counting = commands.add_parser("counts", help="print how each room is written")
    for command in (drawing, counting):
        command.add_argument(
            "--rooms", nargs="+", default=list(ROOMS), help="folders, such as training/methods"
        )
        command.add_argument("--commit", default="HEAD", help="of turngym (HEAD)")
        folder = Path(tempfile.gettempdir()) / "turngym-reading-wheels"
        command.add_argument(
            "--wheels", type=Path, default=folder, help=f"where wheels are kept ({folder})"
        )
    args = parser.parse_args(arguments)
    try:
        if args.command == "draw":
            draw(args)
        elif args.command == "score":
            print(
                score(
                    json.loads(args.key.read_text("utf-8")),
                    [read_ratings(file) for file in args.ratings],
                )
            )
        else:
            print(counts(args))
    except ValueError as error:
        print(f"reading: {error}", file=sys.stderr)
        return 1
    return 0


# --- draw


def draw(args: argparse.Namespace) -> None:
    """Write the sheet and the key. Raises ValueError if a room or a code base has too few functions."""
    commit = full_hash(args.commit)
    shown_before = {
        identity
        for file in args.exclude
        for identity in identities(json.loads(file.read_text("utf-8")))
    }
    wheels = fetch_wheels(args.wheels)
    others = {package: files_of_wheel(package, wheel) for package, wheel in wheels.items()}
    generator = random.Random(commit)
    functions = [
        *choose(
            group_by_room(files_of_commit(commit, args.rooms)), args.count, shown_before, generator
        ),
        *choose(others, args.count, shown_before, generator),
    ]
    generator.shuffle(functions)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "sheet.md").write_text(sheet(functions), "utf-8")
    key = {
        "commit": commit,
        "wheels": sorted(wheel.name for wheel in wheels.values()),
        "functions": key_rows(functions),
    }
    (args.out / "key.json").write_text(json.dumps(key, indent=1) + "\n", "utf-8")
    print(
        f"{len(functions)} functions in {args.out / 'sheet.md'}; whose they are in {args.out / 'key.json'}"
    )


def choose(
    rooms: Mapping[str, Sequence[SourceFile]],
    count: int,
    shown_before: set[Identity],
    generator: random.Random,
) -> list[Function]:
    """Return functions drawn from rooms in equal parts, a quarter of them from the longest tenth, one a file.

    Args:
        rooms: The files of each room.
        count: How many are drawn in all.
        shown_before: Functions that are not drawn.
        generator: Decides which ones.

    Raises ValueError if a room has too few.
    """
    chosen = list[Function]()
    for number, (room, files) in enumerate(rooms.items()):
        share = portion(count, number, len(rooms))
        from_long = portion(round(count * FROM_LONG), number, len(rooms))
        pool = [function for file in files for function in functions_of(file)]
        pool = [function for function in pool if function.statements >= FEWEST_STATEMENTS]
        pool.sort(key=lambda function: (-function.statements, function.identity))
        border = round(len(pool) * LONG_SHARE)
        fresh = [
            [function for function in part if function.identity not in shown_before]
            for part in (pool[:border], pool[border:])
        ]
        drawn = draw_one_a_file(fresh[0], from_long, set(), generator)
        files_drawn = {function.file.path for function in drawn}
        drawn += draw_one_a_file(fresh[1], share - len(drawn), files_drawn, generator)
        if len(drawn) < share:
            raise ValueError(
                f"{room} has {len(drawn)} functions that can be drawn, of {share}; name more rooms"
            )
        chosen += drawn
    return chosen


def portion(total: int, number: int, parts: int) -> int:
    """Return the size of one of so many nearly equal parts of a total."""
    return total * (number + 1) // parts - total * number // parts


def draw_one_a_file(
    functions: Sequence[Function], count: int, files_drawn: set[str], generator: random.Random
) -> list[Function]:
    """Return up to `count` functions in random order, of files that are not in `files_drawn` and differ."""
    order = list(functions)
    generator.shuffle(order)
    files = set(files_drawn)
    drawn = list[Function]()
    for function in order:
        if len(drawn) < count and function.file.path not in files:
            drawn.append(function)
            files.add(function.file.path)
    return drawn


def sheet(functions: Sequence[Function]) -> str:
    """Return the sheet: numbered functions without names of projects, and a place for the ratings of each."""
    sections = [INTRODUCTION.format(count=len(functions))]
    for number, function in enumerate(functions, 1):
        sections.append(
            f"## {number}\n\n~~~python\n{without_projects(function.text)}~~~\n\n{RATING}"
        )
    return "\n".join(sections)


def key_rows(functions: Sequence[Function]) -> list[dict[str, Any]]:
    """Return whose the functions are, as JSON data."""
    return [
        {
            "number": number,
            "origin": function.file.origin,
            "room": function.file.room,
            "path": function.file.path,
            "name": function.name,
            "statements": function.statements,
        }
        for number, function in enumerate(functions, 1)
    ]


def identities(key: Mapping[str, Any]) -> set[Identity]:
    """Return the functions that a key names."""
    return {(row["origin"], row["path"], row["name"]) for row in key["functions"]}


# --- score


@dataclass(frozen=True)
class Rating:
    """What a reader said of a function."""

    number: int
    clarity: float
    naming: float
    compression: float
    clear: bool
    tripped: str = ""


_SECTION = re.compile(r"^## (\d+)[ \t]*$", re.MULTILINE)
_FIELD = re.compile(r"^- (clarity|naming|compression|clear|tripped):[ \t]*(.*)$", re.MULTILINE)


def read_ratings(file: Path) -> list[Rating]:
    """Return the ratings in a filled sheet, with or without its code. Raises ValueError if one is not complete."""
    text = re.sub(
        r"^~~~python\n.*?^~~~$", "", file.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    parts = _SECTION.split(text)[1:]
    return [
        rating_of(int(number), section, file)
        for number, section in zip(parts[::2], parts[1::2], strict=True)
    ]


def rating_of(number: int, section: str, file: Path) -> Rating:
    """Return the rating of a section. Raises ValueError if a field is missing or not in its range."""
    fields = {name: value.strip() for name, value in _FIELD.findall(section)}
    scores = {}
    for name in ("clarity", "naming", "compression"):
        value = fields.get(name, "")
        if value not in ("1", "2", "3", "4", "5"):
            raise ValueError(
                f"{file.name}, function {number}: {name} is {value!r}; write a number from 1 to 5"
            )
        scores[name] = float(value)
    clear = fields.get("clear", "").lower()
    if clear not in ("yes", "no"):
        raise ValueError(f"{file.name}, function {number}: clear is {clear!r}; write yes or no")
    return Rating(number, **scores, clear=clear == "yes", tripped=fields.get("tripped", ""))


def score(key: Mapping[str, Any], readers: Sequence[Sequence[Rating]]) -> str:
    """Return a table of the ratings by origin and by room, and which functions no reader rated 3 or better."""
    rows = {row["number"]: row for row in key["functions"]}
    ratings = [rating for reader in readers for rating in reader if rating.number in rows]
    groups: dict[str, list[Rating]] = {"turngym": [], "others": []}
    for rating in ratings:
        row = rows[rating.number]
        ours = row["origin"] == "turngym"
        groups["turngym" if ours else "others"].append(rating)
        groups.setdefault(f"turngym {row['room']}" if ours else row["origin"], []).append(rating)
    lines = [
        "| | ratings | clarity | naming | compression (3 is right) | fully clear |",
        "|---|---|---|---|---|---|",
    ]
    for name in [*("turngym", "others"), *sorted(groups.keys() - {"turngym", "others"})]:
        if groups[name]:
            lines.append(score_line(name, groups[name]))
    for number, reader in enumerate(readers, 1):
        ours = [rating for rating in reader if rows[rating.number]["origin"] == "turngym"]
        theirs = [rating for rating in reader if rows[rating.number]["origin"] != "turngym"]
        lines += [
            score_line(f"reader {number}, {name}", part)
            for name, part in (("turngym", ours), ("others", theirs))
            if part
        ]
    return "\n".join([*lines, "", *low_lines(rows, readers)])


def score_line(name: str, ratings: Sequence[Rating]) -> str:
    """Return a line of the table."""
    means = [
        fmean(rating.clarity for rating in ratings),
        fmean(rating.naming for rating in ratings),
        fmean(rating.compression for rating in ratings),
    ]
    clear = sum(rating.clear for rating in ratings)
    cells = " | ".join(f"{mean:.2f}" for mean in means)
    return f"| {name} | {len(ratings)} | {cells} | {clear} of {len(ratings)} |"


def low_lines(
    rows: Mapping[int, Mapping[str, Any]], readers: Sequence[Sequence[Rating]]
) -> Iterator[str]:
    """Yield turngym's functions whose clarity or naming every reader rated below 3, with what tripped them."""
    yield "Below 3 in clarity or naming for every reader:"
    for number, row in rows.items():
        ratings = [rating for reader in readers for rating in reader if rating.number == number]
        low = [rating for rating in ratings if min(rating.clarity, rating.naming) < 3]
        if row["origin"] == "turngym" and ratings and len(low) == len(ratings):
            tripped = "; ".join(rating.tripped for rating in low if rating.tripped)
            yield f"- {number}: {row['path']} {row['name']}: {tripped}"


# --- counts


def counts(args: argparse.Namespace) -> str:
    """Return a table of how rooms of turngym and other code bases are written."""
    files = files_of_commit(full_hash(args.commit), args.rooms)
    columns = [(room, Counts.of(of_room)) for room, of_room in group_by_room(files).items()]
    columns.append(("all of turngym", Counts.of(files)))
    for package, wheel in fetch_wheels(args.wheels).items():
        columns.append((package, Counts.of(files_of_wheel(package, wheel))))
    return table(columns)


if __name__ == "__main__":
    sys.exit(main())
