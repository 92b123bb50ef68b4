"""Pictures, drawn with matplotlib: of a run, and of a comparison."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tools.files import write_file
from .data import Found, Run, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..comparison.results import History, MethodResult

Series = list[tuple[float, float, float, float]]  # x, then lowest, mean and highest y over seeds
COLUMNS = 3  # panels a row
TURNS = 8  # turn indices that are drawn; later ones are in compare.json
DASHES = ("-", "--", ":", "-.")  # so that curves on top of each other show


def write_picture(folders: list[Path], path: Path) -> Found:
    """Write the picture of one run, PNG or SVG, and return the run. Raises ValueError or OSError."""
    found = read(folders)
    if len(found.runs) != 1 or not found.runs[0].lines:
        raise ValueError(
            f"{path} can show one run with a step; write a page (--out FILE.html) for anything else"
        )
    try:
        figure = draw_run(found.runs[0])
    except ModuleNotFoundError as error:
        raise ValueError(
            'matplotlib is not installed; install the extra: pip install "turngym[report]"'
        ) from error
    save(figure, path)
    return found


def draw_run(run: Run) -> Figure:
    """Return held-out success, reward, entropy by turn and step, and tool calls of a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), dpi=130, layout="constrained")
    figure.suptitle(
        f"{run.name}: {run.settings.get('env', '')}, {run.settings.get('method', '')}",
        parse_math=False,
    )
    (success, reward), (entropy, calls) = figure.subplots(2, 2)
    low, value, high = (run.series(f"valid/{name}") for name in ("low", "success", "high"))
    band = [(float(step), low.get(step, y), y, high.get(step, y)) for step, y in value.items()]
    _line(success, band, "C0", "held-out success")
    success.set_ylim(0, 1.02)
    for axes, names in (
        (reward, ("reward", "success")),
        (calls, ("tool_calls_path", "tool_ok", "used_tool")),
    ):
        for place, name in enumerate(names):
            series = [(float(step), y, y, y) for step, y in run.series(name).items()]
            _line(axes, series, f"C{place}", name, DASHES[place])
    rows = run.family("entropy_turn")
    entropy.set_title("entropy by turn and step (nats)", fontsize=10)
    entropy.set(xlabel="step", ylabel="turn")
    if steps := sorted({step for row in rows.values() for step in row}):
        values = np.array([[row.get(step, np.nan) for step in steps] for row in rows.values()])
        edges = (steps[0] - 0.5, steps[-1] + 0.5, max(rows) + 0.5, min(rows) - 0.5)
        most = float(np.nanpercentile(values, 95))  # so that a rare turn does not darken the others
        how: dict[str, Any] = {
            "aspect": "auto",
            "interpolation": "nearest",
            "vmin": 0,
            "vmax": most,
            "extent": edges,
        }
        figure.colorbar(entropy.imshow(values, "viridis", **how), ax=entropy, extend="max")
        entropy.set_yticks([turn for turn in rows if len(rows) <= TURNS or turn % 5 == 0])
    for axes, title in (
        (success, "held-out success, 95 % interval"),
        (reward, "training"),
        (calls, "tool calls"),
    ):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.legend(fontsize=8, frameon=False)
        plain(axes)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its name, first under a temporary one. Raises OSError where it cannot."""
    figure.savefig(drawn := io.BytesIO(), format=path.suffix[1:])
    write_file(path, [drawn.getvalue()], synced=False)


def draw(
    found: Mapping[str, MethodResult], idle: Mapping[str, str] = MappingProxyType({})
) -> Figure:
    """Return held-out success and entropy by turn of each method; `idle` says of some that they changed nothing."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-len(found) // COLUMNS)
    figure = Figure(figsize=(11, 4.2 + 2.6 * rows), dpi=130, layout="constrained")
    grid = figure.add_gridspec(1 + rows, COLUMNS, height_ratios=[1.6] + [1.0] * rows)
    success = figure.add_subplot(grid[0, :])
    for place, (method, one) in enumerate(found.items()):
        series = successes(one.histories.values())
        end = f"{100 * series[-1][2]:.1f} % ({_seeds(one)})" if series else "no seed has finished"
        end += f", {idle[method]}" if method in idle else ""
        _line(success, series, f"C{place % 10}", f"{method}: {end}", DASHES[place % len(DASHES)])
    success.set(ylim=(0, 1.02), xlabel="tokens drawn in training", ylabel="held-out success")
    success.set_title(
        "Held-out success: mean over seeds, band from the lowest to the highest", fontsize=11
    )
    success.legend(loc="lower right", ncols=1 + len(found) // 5, fontsize=9, framealpha=0.7)
    success.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / 1000:,g}k" if tokens else "0")
    plain(success)
    colors = matplotlib.colormaps["viridis"]
    turns = min(max((turn + 1 for one in found.values() for turn in one.turns), default=1), TURNS)
    first: Axes | None = None
    for place, (method, one) in enumerate(found.items()):
        axes = figure.add_subplot(
            grid[1 + place // COLUMNS, place % COLUMNS], sharex=first, sharey=first
        )
        first = first or axes
        for turn in (turn for turn in one.turns if turn < turns):
            color = colors(0.9 * turn / max(turns - 1, 1))
            _line(axes, entropies(one.histories.values(), turn), color, f"turn {turn}")
        axes.set_title(f"{method} ({_seeds(one)})", fontsize=10)
        axes.set(xlabel="step", ylabel="" if place % COLUMNS else "entropy (nats)")
        if one.turns:
            axes.legend(fontsize=8, frameon=False, ncols=2)
        plain(axes)
    return figure


def successes(histories: Iterable[History]) -> Series:
    """Return held-out success by tokens drawn, linear between validations; a run keeps its last value."""
    curves = [
        {found.spent.tokens: found.success for found in history.validations}
        for history in histories
    ]
    return _band(
        (
            float(tokens),
            [float(np.interp(tokens, list(curve), list(curve.values()))) for curve in curves],
        )
        for tokens in sorted({tokens for curve in curves for tokens in curve})
    )


def entropies(histories: Iterable[History], turn: int) -> Series:
    """Return the entropy of a turn index by step, over the seeds that reached it in that step."""
    values = [history.entropy[turn].values for history in histories if turn in history.entropy]
    steps = sorted({step for one in values for step in one})
    return _band((float(step), [one[step] for one in values if step in one]) for step in steps)


def _band(points: Iterable[tuple[float, list[float]]]) -> Series:
    return [(x, min(ys), fmean(ys), max(ys)) for x, ys in points]


def _line(axes: Axes, series: Series, color: object, label: str, dashes: str = "-") -> None:
    xs, lows, means, highs = ([point[i] for point in series] for i in range(4))
    axes.plot(xs, means, dashes, color=color, label=label, linewidth=1.5)
    axes.fill_between(xs, lows, highs, color=color, alpha=0.15, linewidth=0)


def plain(axes: Axes) -> None:
    """Leave out two sides of the frame, and draw a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _seeds(one: MethodResult) -> str:
    return f"{len(one.histories)} seed" + ("" if len(one.histories) == 1 else "s")
