"""Runs, evaluations and comparisons in a terminal: `turngym view --text`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from ...agents.cli.terminal import clock
from .data import Found, Run, number

BARS = "▁▂▃▄▅▆▇█"
CURVES = ("valid/success", "success", "reward", "entropy", "tool_calls_path", "turns/cut")
MOST_TURNS, MOST_EPISODES, MOST_INCIDENTS, MOST_STATES = 12, 10, 8, 16
CELL = 6  # columns of a step in the table of entropy
SHADES = (
    "dim",
    "",
    "bold",
    "bold cyan",
)  # from no entropy to the highest, on dark and light ground


def show(found: Found, console: Console) -> None:
    """Print what `turngym view` shows of each run, as wide as the console; no text of a file controls the terminal."""
    for index, run in enumerate(found.runs):
        if index:
            console.rule(style="dim")
        for part in _parts(run, console.width):
            console.print(part)
    for run in found.runs:
        for note in run.notes:
            console.print(Text(plain(f"{run.name}: {note}"), "yellow"))


def plain(text: str) -> str:
    """Return a text in one line, with what does not print (control characters, marks of direction) spelled out."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def spark(values: Sequence[float], width: int) -> str:
    """Return finite values as bars from the lowest to the highest, at most `width` of them: means of equal parts."""
    count = min(len(values), max(width, 1))
    edges = [len(values) * i // count for i in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)


def _parts(run: Run, width: int) -> Iterator[RenderableType]:
    yield Text(plain(_title(run)), "bold")
    yield from _curves(run, {name: name for name in CURVES}, width)
    if turns := run.family("entropy_turn"):
        yield Text("\nentropy by turn and step, nats")
        yield _by_turn(turns, width)
    states = [
        name
        for name in dict.fromkeys(key for line in run.lines for key in line)
        if name.startswith("control/")
    ]
    if states:
        yield Text("\nstate of the methods")
        yield from _curves(
            run, {name: name.removeprefix("control/") for name in states[:MOST_STATES]}, width
        )
    yield from _episodes(run)
    if run.incidents:
        kinds = Counter(plain(f"{one.get('kind')}") for one in run.incidents)
        yield Text(f"\nincidents: {', '.join(f'{kind} {count}' for kind, count in kinds.items())}")
        for one in run.incidents[-MOST_INCIDENTS:]:
            yield Text(
                plain(f"  step {one.get('step')}  {one.get('kind')}: {one.get('what')}"), "yellow"
            )


def _title(run: Run) -> str:
    what = [
        f"{run.settings.get(name)}"
        for name in ("env", "policy", "method", "model")
        if run.settings.get(name)
    ]
    if run.kind == "evaluation":
        result = run.summary.get("success")
        value = number(result.get("value")) if isinstance(result, dict) else None
        end = f"{run.summary.get('episodes')} episodes" if run.summary else "not finished"
        end += "" if value is None else f", success {100 * value:.1f} %"
    else:
        end = "finished" if run.finished else f"not finished, last written {clock(run.age)} ago"
        end = f"{run.steps} of {run.settings.get('steps', '?')} steps, {end}"
    return f"{run.name}: {' · '.join(what)}: {end}"


def _curves(run: Run, names: dict[str, str], width: int) -> Iterator[Table]:
    """Yield a table with a row for each metric that has a value: first and last, and between them how it went."""
    table, most = (
        Table.grid(Column(no_wrap=True, overflow="ellipsis"), padding=(0, 1)),
        max(width - 48, 8),
    )
    for name, label in names.items():
        if series := run.series(name):
            values = [*series.values()]
            ends = [Text(f"{value:.3g}", justify="right") for value in (values[0], values[-1])]
            table.add_row(plain(label), ends[0], Text(spark(values, most), "cyan"), ends[1])
    if table.row_count:
        yield table


def _by_turn(turns: dict[int, dict[int, float]], width: int) -> Table:
    """Return the entropy of each turn, at as many steps as fit: the first, the last, and some in between."""
    steps = sorted({step for series in turns.values() for step in series})
    fits = max((width - 9) // (CELL + 1), 1)
    kept = (
        steps
        if len(steps) <= fits
        else [steps[round(i * (len(steps) - 1) / max(fits - 1, 1))] for i in range(fits)]
    )
    kept = [*dict.fromkeys([*kept[:-1], steps[-1]])]
    columns = (Column(f"{step}", justify="right", no_wrap=True) for step in kept)
    table = Table("turn", *columns, box=None, padding=(0, 1, 0, 0))
    highest = (
        max((value for series in turns.values() for value in series.values()), default=0.0) or 1.0
    )
    for turn, series in [*turns.items()][:MOST_TURNS]:
        shares = {
            step: min(max(int(series[step] / highest * len(SHADES)), 0), len(SHADES) - 1)
            for step in series
        }
        cells = (
            Text(f"{series[step]:.2f}", SHADES[shares[step]]) if step in series else Text()
            for step in kept
        )
        table.add_row(f"{turn}", *cells)
    if len(turns) > MOST_TURNS:
        table.add_row(f"… {len(turns) - MOST_TURNS} more")
    return table


def _episodes(run: Run) -> Iterator[RenderableType]:
    step = max(run.played, default=None)
    if step is None:
        return
    ends = [*run.endings(step)]
    failed = [one for one in ends if one.failed]
    stops = ", ".join(
        f"{plain(stop)} {count}" for stop, count in Counter(one.stop for one in ends).most_common()
    )
    where = "" if run.kind == "evaluation" else f" of step {step}"
    yield Text(f"\n{len(ends)} episodes{where}: {stops}; {len(failed)} failed")
    table = Table("task", "branch", "score", "outcome", "stop", box=None, padding=(0, 2, 0, 0))
    for one in failed[:MOST_EPISODES]:
        score = "none" if one.score is None else f"{one.score:.3g}"
        cut = " (a turn was cut)" if one.cut else ""
        table.add_row(
            f"{one.task}", f"{one.branch}", score, plain(one.outcome), f"{plain(one.stop)}{cut}"
        )
    if failed:
        yield table
    if len(failed) > MOST_EPISODES:
        yield Text(f"… {len(failed) - MOST_EPISODES} more")
