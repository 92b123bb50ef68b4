"""The report of a diagnosis: `diagnose.md`, `diagnose.json` and, where asked for, `diagnose.png` in its folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...agents.journal import write_file
from ..comparison.exact import POWER, fisher, power, seeds_for
from ..comparison.report import Table
from ..comparison.results import mean_of
from ..config import revision
from .cases import Case
from .measure import Measured, solved
from .plan import Diagnosis, Job

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLES, DATA, PICTURE = (f"diagnose.{ending}" for ending in ("md", "json", "png"))
SURE, RARE = 0.9, 0.1  # shares of seeds that are solved by a method that helps, and by one that does not
PANELS = (("success", "success"), ("tool", "p(tool)"), ("skill", "skill"))
NONE = "–"


def check_picture(picture: bool) -> None:
    """Raise ValueError where a picture is asked for and nothing can draw it."""
    if picture and find_spec("matplotlib") is None:
        raise ValueError('matplotlib is not installed; --picture needs the report extra: pip install "turngym[report]"')


def foresight(diagnosis: Diagnosis) -> str:
    """Return what so many seeds can show, to be read before the first run."""
    seeds = len(diagnosis.seeds)
    seen, best = power(seeds, SURE, RARE), fisher(seeds, seeds, 0, seeds)
    line = f"{seeds} seeds: all solved against none is p = {best:.2g}; {SURE:.0%} against {RARE:.0%} of seeds solved "
    line += f"is seen (p ≤ 0.05) with power {seen:.0%}"
    return line if seen >= POWER else f"{line}, less than the wanted {POWER:.0%}: take --seeds {seeds_for(SURE, RARE)}"


def write_report(diagnosis: Diagnosis, picture: bool = False) -> list[Table]:
    """Write the files from what has finished by now, and return the tables. Raises OSError or ValueError."""
    jobs = [job for job in diagnosis.jobs if job.done]
    tables = [_table(diagnosis, case, [job for job in jobs if job.case is case]) for case in diagnosis.cases]
    title = f"# {', '.join(diagnosis.methods)}\n\nSeeds {', '.join(map(str, diagnosis.seeds))}; "
    title += f"turngym {__version__}, revision {revision()[:12]}.\n"
    write_file(diagnosis.folder / TABLES, "\n".join([title, *(table.markdown() for table in tables)]))
    data = {
        "version": __version__,
        "revision": revision(),
        "methods": {name: config.method for name, config in diagnosis.methods.items()},
        "starts": {case.name: {s: asdict(m) for s, m in diagnosis.begun(case).items()} for case in diagnosis.cases},
        "runs": [{"world": j.case.name, "method": j.trial.method, "seed": j.seed, **j.result()} for j in jobs],
    }
    write_file(diagnosis.folder / DATA, json.dumps(data, allow_nan=False) + "\n")
    if picture:
        draw(diagnosis, jobs)
    return tables


def _table(diagnosis: Diagnosis, case: Case, jobs: Sequence[Job]) -> Table:
    header = ("method", "solved", "p", "success", "greedy", "pass@8", "p(tool)", "skill", "valid", "entropy", "CPU s")
    starts = list(diagnosis.begun(case).values())
    rows = [("start", NONE, NONE, *_shares(starts, []), NONE)] if starts else []
    by_method = {name: [job for job in jobs if job.trial.method == name] for name in diagnosis.methods}
    won = {name: sum(solved(case, job.measured()) for job in own) for name, own in by_method.items()}
    other, others = won[diagnosis.reference], len(by_method[diagnosis.reference])
    for name, own in by_method.items():
        sampled, greedy = [job.measured() for job in own], [job.measured("greedy") for job in own]
        chance = NONE if name == diagnosis.reference else f"{fisher(won[name], len(own), other, others):.2g}"
        seconds = f"{fmean(job.result()['seconds'] for job in own):.0f}" if own else NONE
        rows.append((name, f"{won[name]}/{len(own)}", chance, *_shares(sampled, greedy), seconds))
    note = (
        f"Isolates {case.isolates}. Solved: success of at least {case.success:.0%}"
        + (f" and pass@8 of {case.pass_at_8:.0%}" if case.pass_at_8 else "")
        + f"; the best possible success is {case.world.best():.0%}. p: Fisher's exact test of seeds solved against "
        f"{diagnosis.reference}. Shares in %, means over seeds ± half the 95 % t-interval of success at temperature 1; "
        "entropy of turns 0, 1, … in nats."
    )
    return Table(case.name, header, rows, note)


def _shares(sampled: Sequence[Measured], greedy: Sequence[Measured]) -> tuple[str, ...]:
    """Return the cells from success to entropy."""
    success = mean_of(one.success for one in sampled)
    first = NONE if success is None else f"{100 * success.value:.1f}"
    first += f" ± {100 * success.half:.1f}" if success and success.half is not None else ""
    turns = range(max((len(one.entropy) for one in sampled), default=0))
    entropy = (fmean(one.entropy[turn] for one in sampled if len(one.entropy) > turn) for turn in turns)
    others = (_mean(getattr(one, name) for one in sampled) for name in ("pass_at_8", "tool", "skill", "valid"))
    return (first, _mean(one.success for one in greedy), *others, " ".join(f"{value:.2f}" for value in entropy))


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * fmean(known):.1f}" if known else NONE


def draw(diagnosis: Diagnosis, jobs: Sequence[Job]) -> None:
    """Draw by step, for each world: success, p(tool), skill, and the entropy of the first turn, a line a seed."""
    import matplotlib.pyplot as plt

    rows, columns = len(diagnosis.cases), len(PANELS) + 1
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 2.8 * rows), squeeze=False, sharex=True, layout="constrained"
    )
    for row, case in enumerate(diagnosis.cases):
        own = [(job, job.result()["curve"]) for job in jobs if job.case is case]
        for axes, (name, label) in zip(grid[row], PANELS):
            _lines(axes, diagnosis, [(job, [point[name] for point in steps]) for job, steps in own], label)
            axes.set_ylim(-0.02, 1.02)
        first = [(job, [point["entropy"][0] for point in steps]) for job, steps in own]
        _lines(grid[row][-1], diagnosis, first, "entropy of turn 0 (nats)")
        grid[row][0].set_ylabel(case.name)
    grid[0][0].legend(fontsize=8, frameon=False)
    temporary = diagnosis.folder / f".{PICTURE}.tmp"
    figure.savefig(temporary, format="png", dpi=120)
    plt.close(figure)
    temporary.replace(diagnosis.folder / PICTURE)


def _lines(axes: Axes, diagnosis: Diagnosis, curves: Sequence[tuple[Job, list[Any]]], title: str) -> None:
    for place, method in enumerate(diagnosis.methods):
        lines = [values for job, values in curves if job.trial.method == method]
        for number, values in enumerate(lines):
            smooth = _smoothed([float("nan") if value is None else value for value in values])
            axes.plot(smooth, color=f"C{place}", alpha=0.8, linewidth=1, label="" if number else method)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _smoothed(values: Sequence[float], window: int = 5) -> list[float]:
    """Return the means of the last `window` values that are known, by step."""
    parts = ([v for v in values[max(i - window + 1, 0) : i + 1] if v == v] for i in range(len(values)))
    return [fmean(part) if part else float("nan") for part in parts]
