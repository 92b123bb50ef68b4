"""The picture of a comparison: success by tokens with the spread of seeds, and entropy by turn over steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from .results import History, MethodResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = list[tuple[float, float, float, float]]  # x, then lowest, mean and highest y over seeds

COLUMNS = 3  # panels a row
TURNS = 8  # turn indices that are drawn; later ones are in compare.json
DASHES = ("-", "--", ":", "-.")  # so that curves on top of each other show


def draw(found: Mapping[str, MethodResult], path: Path) -> None:
    """Write the picture of the finished runs. Raises OSError where it cannot be written."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-len(found) // COLUMNS)
    figure = Figure(figsize=(11, 4.2 + 2.6 * rows), dpi=130, layout="constrained")
    grid = figure.add_gridspec(1 + rows, COLUMNS, height_ratios=[1.6] + [1.0] * rows)
    _draw_success(figure.add_subplot(grid[0, :]), found)
    colors = matplotlib.colormaps["viridis"]
    turns = min(max((turn + 1 for one in found.values() for turn in one.turns), default=1), TURNS)
    first: Axes | None = None
    for place, (method, one) in enumerate(found.items()):
        axes = figure.add_subplot(grid[1 + place // COLUMNS, place % COLUMNS], sharex=first, sharey=first)
        first = first or axes
        for turn in (turn for turn in one.turns if turn < turns):
            color = colors(0.9 * turn / max(turns - 1, 1))
            _line(axes, entropies(one.histories.values(), turn), color, f"turn {turn}")
        axes.set_title(f"{method} ({_seeds(one)})", fontsize=10)
        axes.set_xlabel("step")
        if place % COLUMNS == 0:
            axes.set_ylabel("entropy (nats)")
        if one.turns:
            axes.legend(fontsize=8, frameon=False, ncols=2)
        _plain(axes)
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, format="png")
    temporary.replace(path)


def successes(histories: Iterable[History]) -> Series:
    """Return held-out success by tokens drawn, linear between validations; a run keeps its last value."""
    curves = [{found.spent.tokens: found.success for found in history.validations} for history in histories]
    series = []
    for tokens in sorted({tokens for curve in curves for tokens in curve}):
        ys = [float(np.interp(tokens, list(curve), list(curve.values()))) for curve in curves]
        series.append((float(tokens), min(ys), fmean(ys), max(ys)))
    return series


def entropies(histories: Iterable[History], turn: int) -> Series:
    """Return the entropy of a turn index by step, over the seeds that reached it in that step."""
    values = [history.entropy[turn].values for history in histories if turn in history.entropy]
    series = []
    for step in sorted({step for one in values for step in one}):
        ys = [one[step] for one in values if step in one]
        series.append((float(step), min(ys), fmean(ys), max(ys)))
    return series


def _draw_success(axes: Axes, found: Mapping[str, MethodResult]) -> None:
    for place, (method, one) in enumerate(found.items()):
        series = successes(one.histories.values())
        label = (
            f"{method}: {100 * series[-1][2]:.1f} % ({_seeds(one)})" if series else f"{method}: no seed has finished"
        )
        _line(axes, series, f"C{place % 10}", label, DASHES[place % len(DASHES)])
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("tokens drawn in training")
    axes.set_ylabel("held-out success")
    axes.set_title("Held-out success: mean over seeds, band from the lowest to the highest", fontsize=11)
    axes.legend(loc="lower right", ncols=1 + len(found) // 5, fontsize=9, framealpha=0.7)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / 1000:,g}k" if tokens else "0")
    _plain(axes)


def _line(axes: Axes, series: Series, color: object, label: str, dashes: str = "-") -> None:
    xs, lows, means, highs = ([point[i] for point in series] for i in range(4))
    axes.plot(xs, means, dashes, color=color, label=label, linewidth=1.5)
    axes.fill_between(xs, lows, highs, color=color, alpha=0.15, linewidth=0)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _seeds(one: MethodResult) -> str:
    return f"{len(one.histories)} seed" + ("" if len(one.histories) == 1 else "s")
