"""One page of HTML that holds everything it shows: what was read, compressed, and the script that draws it.

The page asks for nothing: its policy (CSP) allows the script and the style in it and no request. Transcripts are
compressed step by step and opened when they are looked at; as many steps are in it as fit, and the page says which.
"""

import base64
import gzip
import html
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ... import __version__
from ...agents.journal import write_file
from ...agents.significance import t_quantile
from .data import Ending, Found, Run, number, read
from .transcripts import transcripts

NAME = "report.html"
LINES, ENDINGS, INCIDENTS = 1000, 40_000, 1000  # most of a run in the page; what is left out is said
BYTES = 3_400_000  # of all transcripts, compressed and encoded
STEP, READ = 6_000_000, 40_000_000  # characters of the transcripts of a step; bytes of all journals that are read
_SCRIPTS = ("base.js", "charts.js", "episodes.js", "page.js")


def write_page(folders: list[Path], path: Path) -> Found:
    """Write the page of some folders, and return what was read. Raises ValueError or OSError where it cannot."""
    found = read(folders)
    write_file(path, page(found))
    return found


def page(found: Found) -> str:
    chunks = dict[tuple[int, int], str]()
    for index, run in enumerate(found.runs):
        pieces, room, unread = run.vocabulary(), BYTES // len(found.runs), READ // len(found.runs)
        for step in _order(run.played):
            if unread < 0:
                break
            unread -= run.journals[step].stat().st_size
            data = packed(transcripts(run, step, min(STEP, 8 * room), pieces))
            if len(data) > room and chunks:
                break
            room -= len(data)
            chunks[index, step] = data
    head = summary(found)
    for index, one in enumerate(head["runs"]):
        one["chunks"] = sorted(step for run, step in chunks if run == index)
    parts = {"head": packed(head), **{f"c-{index}-{step}": data for (index, step), data in chunks.items()}}
    return assembled(parts, ", ".join(run.name for run in found.runs))


def summary(found: Found, since: Mapping[int, int] = {}) -> dict[str, Any]:
    """Return all but the transcripts as JSON data; of a run in `since` only what came after that step."""
    return {
        "version": __version__,
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "t": [t_quantile(freedom) for freedom in range(1, 30)],
        "runs": [_run(run, since.get(index, -1)) for index, run in enumerate(found.runs)],
        "comparison": found.comparison,
    }


def _run(run: Run, since: int) -> dict[str, Any]:
    journals = [step for step in run.played if step > since]
    endings = [ending for step in journals for ending in run.endings(step)]
    lines = [line for line in run.lines if line["step"] > since]
    names = dict.fromkeys(key for line in lines for key, value in line.items() if number(value) is not None)
    stops, notes, every = dict[str, dict[int, int]](), list[str](), -(-len(lines) // LINES)
    for (stop, step), count in sorted(Counter((ending.stop, ending.step) for ending in endings).items()):
        stops.setdefault(stop, {})[step] = count
    if every > 1:
        lines = [line for line in lines if line["step"] % every == 0 or line is lines[-1]]
        notes.append(f"of {len(run.lines)} lines of metrics every {every}th is in this page")
    if len(endings) > ENDINGS:
        notes.append(f"of {len(endings)} episodes the last {ENDINGS} are in the list")
    if len(run.incidents) > INCIDENTS:
        notes.append(f"of {len(run.incidents)} incidents the last {INCIDENTS} are in this page")
    return {
        **{name: getattr(run, name) for name in ("name", "kind", "settings", "record", "summary", "finished")},
        "folder": str(run.folder),
        "age": round(run.age),
        "last": run.steps,
        "steps": [line["step"] for line in lines],
        "metrics": {name: [number(line.get(name)) for line in lines] for name in names if name != "step"},
        "alarms": [
            [line["step"], str(kind)]
            for line in lines
            if isinstance(line.get("alarms"), list)
            for kind in line["alarms"]
        ],
        "incidents": run.incidents[-INCIDENTS:],
        "journals": journals,
        "stops": stops,  # how many episodes of each step ended for each reason
        "endings": {name: [getattr(one, name) for one in endings[-ENDINGS:]] for name in Ending.__dataclass_fields__},
        "notes": [*run.notes, *notes],
    }


def _order(steps: list[int]) -> Iterator[int]:
    """Yield the last step, the first, and then those that halve what lies between."""
    yield from dict.fromkeys([*steps[-1:], *steps[:1]])
    spans = [(0, len(steps) - 1)]
    while spans:
        low, high = spans.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            yield steps[middle]
            spans += [(low, middle), (middle, high)]


def packed(data: Any) -> str:
    """Return JSON data compressed, in base64; a number that is not finite is null."""
    return base64.b64encode(gzip.compress(as_json(data), 6, mtime=0)).decode()


def as_json(data: Any) -> bytes:
    """Return JSON data, with null for numbers that are not finite."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # in what a file of another version holds, say
        return json.dumps(_finite(data), allow_nan=False, separators=(",", ":")).encode()


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return number(data) if isinstance(data, float) else data


def assembled(parts: Mapping[str, str], title: str, connect: str = "'none'") -> str:
    """Return the page that holds `parts`; a live one has none and may `connect` to who serves it."""
    web = files(__package__) / "web"
    script = "\n".join((web / name).read_text("utf-8") for name in _SCRIPTS)
    style = (web / "page.css").read_text("utf-8")
    policy = "default-src 'none'; "
    for name, text in (("script", script), ("style", style)):
        policy += f"{name}-src 'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'; "
    policy += f"connect-src {connect}; img-src data:; base-uri 'none'; form-action 'none'"
    data = "\n".join(f'<script type="text/plain" id="{name}">{text}</script>' for name, text in parts.items())
    template = Template((web / "page.html").read_text("utf-8"))
    return template.substitute(
        policy=html.escape(policy), title=html.escape(title), style=style, data=data, script=script
    )
