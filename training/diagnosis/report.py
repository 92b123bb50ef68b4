"""The report of a diagnosis: `diagnose.md`, `diagnose.json` and, where asked for, `diagnose.png` in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...agents.journal import write_file
from ..comparison.outcomes import Table, final_tables, outcomes
from ..comparison.plan import Comparison
from ..config import revision
from ..report.picture import plain, save
from .plan import Diagnosis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLES, DATA, PICTURE = (f"diagnose.{ending}" for ending in ("md", "json", "png"))
PANELS = {"success": "success", "tool": "p(tool)", "skill": "skill", "entropy": "entropy of turn 0 (nats)"}
PAPER = "#fbfaf7"  # a light background of its own, so that the picture also reads on a dark page
WINDOW = 5  # steps whose mean is drawn
RARE = 4  # uses of the tool in a step, below which its skill is not drawn
COLOURS = ("#6e7781", "#1a7f5a", "#c4622d", "#3b6fb6", "#8a5fb0", "#b08d1a", "#b5446e", "#2a9aa8")


def write_report(diagnosis: Diagnosis, picture: bool = False) -> list[Table]:
    """Write the files from what has finished by now, and return the tables. Raises OSError or ValueError."""
    tables = list[Table]()
    methods = {name: config.method for name, config in diagnosis.worlds[0][1].methods.items()}
    data: dict[str, Any] = {"version": __version__, "revision": revision(), "methods": methods}
    data |= {"starts": {}, "results": {}, "runs": []}
    for case, comparison in diagnosis.worlds:
        found, starts = outcomes(comparison), diagnosis.begun(case)
        note = f"Isolates {case.isolates}. The best possible success is {case.world.best():.0%}. "
        tables += final_tables(comparison, found, case.name, note, [*starts.values()])
        data["starts"][case.name] = {seed: asdict(one) for seed, one in starts.items()}
        data["results"][case.name] = results = {name: one.to_json() for name, one in found.items()}
        for one in results.values():
            del one["runs"]  # all runs stand together
        for trial in (trial for trial in comparison.trials if trial.finished):
            about = {"world": comparison.base, "method": trial.method, "seed": trial.config.seed}
            data["runs"].append(about | trial.result())
    title = f"# {', '.join(diagnosis.methods)}\n\nSeeds {', '.join(map(str, diagnosis.seeds))}; "
    title += f"turngym {__version__}, revision {revision()[:12]}.\n"
    write_file(diagnosis.folder / TABLES, "\n".join([title, *(table.markdown() for table in tables)]))
    write_file(diagnosis.folder / DATA, json.dumps(data, allow_nan=False) + "\n")
    if picture:
        draw(diagnosis)
    return tables


def draw(diagnosis: Diagnosis) -> None:
    """Draw by step what `PANELS` names, for each world: a thin line a seed, and their mean."""
    from matplotlib.figure import Figure

    panels = [
        (case, one, name) for case, one in diagnosis.worlds for name in PANELS if name != "tool" or case.world.tool
    ]
    columns = 2 if len(diagnosis.worlds) == 1 else len(PANELS)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.6 * rows + 0.4), dpi=130, layout="constrained", facecolor=PAPER)
    for place, (case, comparison, name) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        _lines(axes, comparison, name)
        axes.set_title(PANELS[name] + ("" if len(diagnosis.worlds) == 1 else f", {case.name}"), fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), fontsize=9, frameon=False)
    save(figure, diagnosis.folder / PICTURE)


def _lines(axes: Axes, comparison: Comparison, name: str) -> None:
    for place, method in enumerate(comparison.methods):
        own = [trial for trial in comparison.trials if trial.method == method and trial.finished]
        points = ([_value(point, name) for point in trial.result()["curve"]] for trial in own)
        curves = [[_mean(one[max(i - WINDOW, 0) : i]) for i in range(1, len(one) + 1)] for one in points]
        colour = COLOURS[place % len(COLOURS)]
        for curve in curves:
            axes.plot(range(1, len(curve) + 1), curve, color=colour, alpha=0.3, linewidth=0.8)
        means = [_mean(at) for at in zip(*curves, strict=False)]
        axes.plot(range(1, len(means) + 1), means, color=colour, linewidth=2, label=method)
    if name != "entropy":
        axes.set_ylim(-0.02, 1.02)
    axes.set(facecolor=PAPER, xlabel="step")
    plain(axes)


def _value(point: Mapping[str, Any], name: str) -> float:
    """Return a share of a step, or the entropy of its first turn; NaN where there was too little to count."""
    if name == "entropy":
        return float(point[name][0])
    rare = name == "skill" and point["tool"] is not None and point["tool"] * point["episodes"] < RARE
    return float("nan") if point[name] is None or rare else float(point[name])


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return fmean(known) if known else float("nan")
