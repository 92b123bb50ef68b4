"""Rows of hostile programs: each several times, in another order and another world each time, and under other names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.sandbox import proc
from turngym.tests.verify.sandbox.corpus import Program, placed
from turngym.tests.verify.sandbox.renaming import renamed
from turngym.tests.verify.sandbox.surroundings import Surroundings
from turngym.tests.verify.sandbox.trial import Bench, PythonRunner

TIMEOUT = 3.0  # seconds
MEMORY = 256  # MiB
SHOWN = 12  # programs that a note names

Make = Callable[
    [bool], PythonRunner
]  # whether the tool keeps a session -> a tool with these limits


@dataclass(frozen=True)
class Pass:
    """A way to go through a corpus: the seed of the world and the order, under own names or others, in a session."""

    seed: int
    rename: bool = False
    session: bool = False


def program_rows(programs: Sequence[Program], make: Make, seed: int, seeds: int) -> Iterator[Row]:
    """Yield the rows: all seeds, other names, one session."""
    with proc.adopting():
        plain = [go_through(programs, make, Pass(seed + i)) for i in range(seeds)]
        yield row(f"programs hold every predicate, {seeds} seeds", programs, plain)
        other = [go_through(programs, make, Pass(seed + seeds, rename=True))]
        yield row("programs with other names, in another order", programs, other)
        session = [go_through(programs, make, Pass(seed + seeds + 1, session=True))]
        yield row("programs in a session that is reset behind each", programs, session)


def go_through(programs: Sequence[Program], make: Make, way: Pass) -> dict[str, list[str]]:
    """Return what was wrong with each program, by its id; nothing is run by a tool that has no boundary."""
    rng = random.Random(f"programs {way.seed}")
    order = rng.sample(programs, len(programs))
    with Surroundings(way.seed) as world:
        tool = make(way.session)
        try:
            bench = Bench(tool, world, TIMEOUT, MEMORY, way.session)
            if reach := bench.unbound():
                # Some of the programs delete files or end processes wherever they can.
                return {
                    program.id: [f"not run, for the tool has no boundary ({reach})"]
                    for program in programs
                }
            bench.calibrate()
            found = {}
            for program in order:
                if way.rename:
                    kept = " ".join(map(str, program.promises))
                    program = replace(
                        program, code=renamed(placed(program.code, world.values), rng, kept)
                    )
                found[program.id] = bench.try_out(program)
            return found
        finally:
            tool.close()


def row(what: str, programs: Sequence[Program], passes: Sequence[dict[str, list[str]]]) -> Row:
    """Count the programs that hold in every pass; the note names the others, and which of them held in some."""
    short = [program.id for program in programs if any(one[program.id] for one in passes)]
    flaky = [name for name in short if not all(one[name] for one in passes)]
    told = [
        f"{name}: {'; '.join(next(one[name] for one in passes if one[name]))}" for name in short
    ]
    same = {text.partition(": ")[2] for text in told}
    if len(short) > 1 and len(same) == 1:
        told = [f"all {len(short)}: {same.pop()}"]
    notes = [first(told, SHOWN), f"flaky: {first(flaky, SHOWN)}" if flaky else ""]
    return Row(
        what, len(programs) - len(short), len(programs), "; ".join(filter(None, notes)) or "0 flaky"
    )
