"""One page of HTML that holds everything it shows: what was read, compressed, and the script that draws it.

The page asks for nothing: its policy (CSP) allows the script and the style in it and no request. Transcripts are
compressed step by step and opened when they are looked at; as many steps are in it as fit, and the page says which.

Of runs that go on it is served on the loopback: the browser asks for what is new, and waits in between. The address
holds a secret, so that other users of the machine cannot read the runs. How long the browser waits depends on what an
answer cost: following takes at most one part in `SHARE` of a processor, however large a run is. A client that is slow
to send its request or to take its answer is left, and of too many the one that has waited longest.
"""

import base64
import gzip
import html
import json
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from math import inf
from pathlib import Path
from string import Template
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...agents.evaluation.statistics import t_quantile
from ...agents.journal.trees import write_file
from ...tools.http.hosts import Hosts
from .data import DAMAGE, Ending, Found, Run, Slots, number, path_of, read

NAME = "report.html"
LINES, ENDINGS, INCIDENTS = (
    1000,
    40_000,
    1000,
)  # most of a run in the page; what is left out is said
BYTES = 3_400_000  # of all transcripts, compressed and encoded
STEP, READ = (
    6_000_000,
    40_000_000,
)  # characters of the transcripts of a step; bytes of all journals that are read
_SCRIPTS = ("base.js", "charts.js", "episodes.js", "page.js")
CHARS, TOKENS, INFO = (
    20_000,
    6_000,
    2_000,
)  # most of a turn, and most characters of what an environment said
SHARE, WAIT = 100, 2.0  # and the least seconds between two questions
HOST = "127.0.0.1"
CONNECTIONS = 64  # of the live page; each has a thread
PATIENCE = 30.0  # seconds that a client may take for its request, and again for taking its answer


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
            unread -= run.journals[step].lstat().st_size
            data = packed(transcripts(run, step, min(STEP, 8 * room), pieces))
            if len(data) > room and chunks:
                break
            room -= len(data)
            chunks[index, step] = data
    head = summary(found)
    for index, one in enumerate(head["runs"]):
        one["chunks"] = sorted(step for run, step in chunks if run == index)
    parts = {
        "head": packed(head),
        **{f"c-{index}-{step}": data for (index, step), data in chunks.items()},
    }
    return assembled(parts, ", ".join(run.name for run in found.runs))


def summary(found: Found, since: Mapping[int, int] = {}) -> dict[str, Any]:
    """Return all but the transcripts as JSON data; of a run in `since` only what came after that step."""
    return {
        "version": __version__,
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "t": [t_quantile(freedom) for freedom in range(1, 30)] if len(found.runs) > 1 else [],
        "runs": [_run(run, since.get(index, -1)) for index, run in enumerate(found.runs)],
        "comparison": found.comparison,
    }


def _run(run: Run, since: int) -> dict[str, Any]:
    journals = [step for step in run.played if step > since]
    endings = [ending for step in journals for ending in run.endings(step)]
    lines = [line for line in run.lines if line["step"] > since]
    names = dict.fromkeys(
        key for line in lines for key, value in line.items() if number(value) is not None
    )
    stops, notes, every = dict[str, dict[int, int]](), list[str](), -(-len(lines) // LINES)
    for (stop, step), count in sorted(
        Counter((ending.stop, ending.step) for ending in endings).items()
    ):
        stops.setdefault(stop, {})[step] = count
    if every > 1:
        lines = [line for line in lines if line["step"] % every == 0 or line is lines[-1]]
        notes.append(f"of {len(run.lines)} lines of metrics every {every}th is in this page")
    raised = (line for line in lines if isinstance(line.get("alarms"), list))
    if len(endings) > ENDINGS:
        notes.append(f"of {len(endings)} episodes the last {ENDINGS} are in the list")
    if len(run.incidents) > INCIDENTS:
        notes.append(f"of {len(run.incidents)} incidents the last {INCIDENTS} are in this page")
    return {
        **{
            name: getattr(run, name)
            for name in ("name", "kind", "settings", "record", "summary", "finished")
        },
        "folder": str(run.folder),
        "age": round(run.age),
        "last": run.steps,
        "steps": [line["step"] for line in lines],
        "metrics": {
            name: [number(line.get(name)) for line in lines] for name in names if name != "step"
        },
        "alarms": [[line["step"], str(kind)] for line in raised for kind in line["alarms"]],
        "incidents": run.incidents[-INCIDENTS:],
        "journals": journals,
        "stops": stops,  # how many episodes of each step ended for each reason
        "endings": {
            name: [getattr(one, name) for one in endings[-ENDINGS:]]
            for name in Ending.__dataclass_fields__
        },
        "notes": [*run.notes, *notes],
    }


def _order(steps: list[int]) -> Iterator[int]:
    """Yield the last step, the first, and then those that halve what lies between."""
    yield from dict.fromkeys([*steps[-1:], *steps[:1]])
    spans = [(0, len(steps) - 1)]
    for low, high in spans:  # which grows
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
        policy += (
            f"{name}-src 'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'; "
        )
    policy += f"connect-src {connect}; img-src data:; base-uri 'none'; form-action 'none'"
    data = "\n".join(
        f'<script type="text/plain" id="{name}">{text}</script>' for name, text in parts.items()
    )
    known = {
        "policy": html.escape(policy),
        "title": html.escape(title),
        "style": style,
        "data": data,
    }
    return Template((web / "page.html").read_text("utf-8")).substitute(known, script=script)


def transcripts(run: Run, step: int, most: int, pieces: Sequence[bytes]) -> dict[str, Any]:
    """Return the trees of a step, as many as fit into about `most` characters of JSON, and at least one.

    `of` is how many there are, `pieces` the text of each token in them, as a list of bytes where it is none alone.
    """
    kept: list[dict[str, Any]] = []
    used, size, slots = set[int](), 0, run.slots(step)
    for data in run.trees(step):
        try:
            tree = _tree(data, slots)
        except DAMAGE as error:
            run.note(
                f"step {step}: a tree is not what this version knows ({type(error).__name__}: {error})"[
                    :200
                ]
            )
            continue
        size += sum(len(turn["x"]) + 24 * len(turn.get("ids", ())) + 200 for turn in tree["turns"])
        if size > most and kept:
            break
        kept.append(tree)
        used.update(token for turn in tree["turns"] for token in turn.get("ids", ()))
    known = {token: _text(pieces[token]) for token in sorted(used) if 0 <= token < len(pieces)}
    return {
        "step": step,
        "trees": kept,
        "of": sum(1 for _ in run.rows(step)),
        "pieces": known,
        "learned": bool(slots),
    }


def _tree(data: Mapping[str, Any], slots: Mapping[tuple[int, ...], Slots]) -> dict[str, Any]:
    turns = data["turns"]
    leaves = [
        _leaf(leaf, turns, slots.get((*data["key"], leaf["branch"]))) for leaf in data["leaves"]
    ]
    about = {"task": data["task"], "id": _cut(str(data["task_id"]), 200)[0]}
    return {**about, "turns": list(map(_turn, turns)), "leaves": leaves}


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    text, left = _cut(str(turn["text"]), CHARS)
    found: dict[str, Any] = {
        "p": turn["parent"],
        "r": turn["role"],
        "x": text,
        "n": len(turn["sampled"]),
    }
    if left:
        found["left"] = left
    if turn["parent"] < 0:
        messages = turn["info"].get("messages", ())
        said = [(str(one["role"]), one["content"]) for one in messages]
        texts = (
            one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, default=str)
            for _, one in said
        )
        found["messages"] = [[role, *_cut(text, CHARS)] for (role, _), text in zip(said, texts)]
        found["tools"] = len(turn["info"].get("tools", ()))
        return found
    if turn["role"] != "assistant":
        return found
    found |= {
        "reward": number(turn["reward"]),
        "ended": turn["ended"],
        "t": turn["temperature"],
        "v": turn["version"],
    }
    info, named = turn["info"], {"tool": "tool", "status": "tool_status"}
    found |= {name: info[key] for name, key in named.items() if key in info}
    if turn["twin"] >= 0:
        found |= {"twin": turn["twin"], "copied": turn["copied"]}
    if drawn := sum(turn["sampled"]):
        found |= {"ids": turn["tokens"][:TOKENS], "th": turn["thought"], "sampled": drawn}
        found["e"] = [round(value, 4) for value in turn["entropy"][:TOKENS]]
        found["l"] = [round(value, 4) for value in turn["logp_roll"][:TOKENS]]
        found["mean"] = sum(turn["entropy"]) / drawn  # which is 0 where nothing was drawn
        if drawn < len(turn["sampled"]):
            found["s"] = turn["sampled"][:TOKENS]
        if turn["estimate"]:
            found["estimate"] = True
    return found


def _leaf(
    leaf: Mapping[str, Any], turns: Sequence[Mapping[str, Any]], slots: Slots | None
) -> dict[str, Any]:
    found = {name: leaf[name] for name in ("node", "branch", "parent", "fork", "token", "trained")}
    found |= {name: str(leaf[name]) for name in ("outcome", "stop")} | {
        "score": number(leaf["score"])
    }
    nodes = path_of(turns, leaf["node"])
    found["info"] = _cut(json.dumps(leaf["info"], ensure_ascii=False, default=str), INFO)[0]
    replies = [turns[node] for node in nodes if turns[node]["role"] == "assistant"]
    roll = [
        value
        for turn in replies
        for value, drawn in zip(turn["logp_roll"], turn["sampled"])
        if drawn
    ]
    if slots is not None and len(roll) == len(slots.logp):
        found |= {"a": _column(slots.advantage, 4), "w": _column(slots.weight, 4)}
        found["m"] = _column(slots.logp - np.asarray(roll, np.float32), 6)
    return found


def _column(values: NDArray[np.float32], digits: int) -> list[float | None] | float | None:
    """Return a column of rounded numbers, None where one is not finite; its one value where all are the same."""
    found = [number(value) for value in np.round(values.astype(np.float64), digits).tolist()]
    return found[0] if found and found.count(found[0]) == len(found) else found


def _cut(text: str, most: int) -> tuple[str, int]:
    """Return a text, its middle left out where it is long, and how many characters were."""
    if len(text) <= most:
        return text, 0
    head, tail = most * 3 // 4, most // 4
    return f"{text[:head]}\n…\n{text[-tail:]}", len(text) - head - tail


def _text(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


@contextmanager
def serve(folders: list[Path], port: int = 0, allow_hosts: Collection[str] = ()) -> Iterator[str]:
    """Serve the page of some folders in a thread, and yield its address. Raises ValueError or OSError.

    allow_hosts: names under which it is asked, besides those of loopback, such as that of a proxy in front of it.
    """
    source = _Source(folders)
    token = secrets.token_urlsafe(12)
    handler = type(
        "Handler", (_Handler,), {"source": source, "token": token, "hosts": Hosts(allow_hosts)}
    )
    with _Server((HOST, port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}/{token}/"
        finally:
            server.shutdown()
            thread.join()


class _Source:
    """What the folders hold now; files that did not change are not read again."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders, self.lock = folders, threading.Lock()
        self.found, self.mark, self.version = read(folders), self._mark(), 1

    def news(self, version: int, seen: list[int]) -> dict[str, Any]:
        began, data = time.thread_time(), dict[str, Any]()
        with self.lock:
            if (mark := self._mark()) != self.mark:
                self.found, self.mark, self.version = read(self.folders), mark, self.version + 1
            if version != self.version:
                last = [run.lines[-1]["step"] if run.lines else -1 for run in self.found.runs]
                # An evaluation has no steps, and a run that was taken up at an earlier one has other lines.
                part = len(seen) == len(last) and all(
                    0 <= old <= new for old, new in zip(seen, last)
                )
                data = summary(self.found, dict(enumerate(seen)) if part and version else {})
                data |= {"whole": not (part and version), "seen": self.version}
        return {**data, "wait": max(WAIT, SHARE * (time.thread_time() - began))}

    def _mark(self) -> list[tuple[str, int, int]]:
        globs = ("*.json*", "*/seed-*/*.json*")
        stats = (
            (path, path.lstat())
            for folder in self.folders
            for glob in globs
            for path in folder.glob(glob)
        )
        return sorted((str(path), stat.st_mtime_ns, stat.st_size) for path, stat in stats)


class _Server(ThreadingHTTPServer):
    """A server that leaves clients who let it wait: `http.server` waits for a request as long as its client likes."""

    request_queue_size = 512  # connections that wait to be taken

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._ends: dict[
            socket.socket, float
        ] = {}  # when the patience with a client ends; oldest first
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            waiting = [each for each, end in self._ends.items() if end < inf]
            full = len(self._ends) >= CONNECTIONS
            if full and waiting:
                self._cut(waiting[0])
            if taken := bool(waiting) or not full:
                self._ends[request] = time.monotonic() + PATIENCE
        if taken:
            super().process_request(request, client_address)
        else:  # all others are getting their answers
            self.shutdown_request(request)

    def set_patience(self, request: Any, seconds: float) -> None:
        """Give a client so many seconds from now on, unless it was left already."""
        with self._lock:
            if request in self._ends:
                self._ends[request] = time.monotonic() + seconds

    def service_actions(self) -> None:
        """Leave the clients that took too long; the loop of the server calls this all the time."""
        now = time.monotonic()
        with self._lock:
            for request in [each for each, end in self._ends.items() if end < now]:
                self._cut(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._ends.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that left, or were left."""

    def _cut(self, request: socket.socket) -> None:
        """End a connection under its thread, which then ends, too."""
        del self._ends[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    source: ClassVar[_Source]
    token: ClassVar[str]
    hosts: ClassVar[Hosts]
    server: _Server

    def do_GET(self) -> None:
        self.server.set_patience(self.connection, inf)  # for what an answer takes to make
        stranger = self.hosts.refusal(
            self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        )
        if stranger is not None:
            return self._send(
                stranger.status,
                "text/plain; charset=utf-8",
                stranger.why.encode("utf-8", "replace"),
            )
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if not url.path.startswith(f"/{self.token}/"):
            return self._send(404, "text/plain", b"not found")  # of somebody who guesses
        try:
            match url.path.rpartition("/")[2]:
                case "":
                    page = assembled(
                        {}, ", ".join(run.name for run in self.source.found.runs), "'self'"
                    )
                    page = page.replace("<html ", "<html data-live ", 1)
                    return self._send(200, "text/html; charset=utf-8", page.encode())
                case "news":
                    seen = [int(step) for step in asked.get("steps", "").split(",") if step]
                    data = self.source.news(int(asked.get("seen", 0)), seen)
                case "step":
                    run = self.source.found.runs[int(asked["run"])]
                    data = transcripts(run, int(asked["step"]), STEP, run.vocabulary())
                case _:
                    return self._send(404, "text/plain", b"not found")
            return self._send(200, "application/json", as_json(data))
        except DAMAGE as error:
            return self._send(500, "text/plain", f"{type(error).__name__}: {error}".encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        headers = {
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        if len(body) > 1000:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        self.send_response(status)
        for name, value in {
            **headers,
            "Content-Type": kind,
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, value)
        self.server.set_patience(self.connection, PATIENCE)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""
