"""The page of runs that go on, served on the loopback: the browser asks for what is new, and waits in between.

The address holds a secret, so that other users of the machine cannot read the runs. How long the browser waits depends
on what an answer cost: following takes at most one part in `SHARE` of a processor, however large a run is.
"""

import gzip
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from .data import DAMAGE, read
from .page import STEP, as_json, assembled, summary, transcripts

SHARE, WAIT = 100, 2.0  # and the least seconds between two questions
HOST = "127.0.0.1"


@contextmanager
def serve(folders: list[Path], port: int = 0) -> Iterator[str]:
    """Serve the page of some folders in a thread, and yield its address. Raises ValueError or OSError."""
    source = _Source(folders)
    token = secrets.token_urlsafe(12)
    handler = type("Handler", (_Handler,), {"source": source, "token": token})
    with ThreadingHTTPServer((HOST, port), handler) as server:
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
                part = len(seen) == len(last) and all(0 <= old <= new for old, new in zip(seen, last))
                data = summary(self.found, dict(enumerate(seen)) if part and version else {})
                data |= {"whole": not (part and version), "seen": self.version}
        return {**data, "wait": max(WAIT, SHARE * (time.thread_time() - began))}

    def _mark(self) -> list[tuple[str, int, int]]:
        paths = (
            path for folder in self.folders for glob in ("*.json*", "*/seed-*/*.json*") for path in folder.glob(glob)
        )
        return sorted((str(path), stat.st_mtime_ns, stat.st_size) for path in paths if (stat := path.stat()))


class _Handler(BaseHTTPRequestHandler):
    source: ClassVar[_Source]
    token: ClassVar[str]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (HOST, "localhost") or not url.path.startswith(f"/{self.token}/"):
            return self._send(404, "text/plain", b"not found")  # of another site, or of somebody who guesses
        try:
            match url.path.rpartition("/")[2]:
                case "":
                    page = assembled({}, ", ".join(run.name for run in self.source.found.runs), "'self'")
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
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        if len(body) > 1000:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        self.send_response(status)
        for name, value in {**headers, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""
