"""The `visit` tool: an agent gives a URL and reads the page.

The agent chooses where the connection goes, so nothing about a page is an infrastructure failure: a host that does not
answer, or a name that cannot be looked up, is for the agent to read. Else it could void an episode that goes badly.
"""

import ssl
from collections.abc import Collection, Mapping
from typing import Any

from ..base import StatelessTool, Status, ToolResult
from ..checks import check_range
from ..json_schema import check_arguments, make_schema
from ..subprocesses.deadlines import Overdue
from .fetch import HTML, Page, Unread, fetch
from .html_text import decode, plain, read_html
from .url_guard import Blocked, Guard, Resolve, look_up


class Visit(StatelessTool):
    """Shows the agent the text of a page on the public internet.

    timeout: Seconds of wall-clock time that a visit may take, name lookup and redirects included, 0.01 to 600.
    max_chars: Characters of a page's text that the agent sees, 64 to 1048576; of a longer one, the head.
    max_bytes: Bytes of a page, compressed and not, 1024 to 67108864; a larger one is not shown.
    links: Whether links are shown, as `[text](URL)`.
    allow: What is open although it would be blocked: `host` or `host:port` for whatever addresses that host has,
        `:port` for that port of all public hosts.
    resolve: Gives the addresses of a name, as `look_up` does.
    tls: Whom to trust; None is the usual authorities.

    Raises ValueError where a limit is out of range, or an entry of `allow` is none.
    """

    name = "visit"

    def __init__(
        self,
        timeout: float = 10.0,
        max_chars: int = 8192,
        max_bytes: int = 2 * 2**20,
        links: bool = False,
        allow: Collection[str] = (),
        resolve: Resolve = look_up,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        check_range("timeout", timeout, 0.01, 600, "seconds")
        check_range("max_chars", max_chars, 64, 2**20, "characters")
        check_range("max_bytes", max_bytes, 2**10, 2**26, "bytes")
        self.timeout, self.max_chars, self.max_bytes, self.links = (
            timeout,
            max_chars,
            max_bytes,
            links,
        )
        self._guard, self._tls = Guard(allow, resolve), tls

    @property
    def schema(self) -> dict[str, Any]:
        what = "Read a page of the internet by its URL. You see its title and its text."
        url = {"type": "string", "description": "the page's URL, from http:// or https:// on"}
        return make_schema(self.name, what, {"url": url}, ["url"])

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Read the page at `arguments["url"]`; what stands in the way is the text of the result."""
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        try:
            page = fetch(arguments["url"], self._guard, self.timeout, self.max_bytes, self._tls)
        except Blocked as problem:
            return ToolResult(Status.REJECTED, f"blocked: {problem}")
        except Unread as problem:
            return ToolResult(Status.ERROR, f"no page: {problem}")
        except Overdue:
            return ToolResult(
                Status.TIMEOUT, f"no page: it did not come within {self.timeout:g} seconds"
            )
        return ToolResult(Status.OK, self._show(page))

    def _show(self, page: Page) -> str:
        text, is_html = decode(page.body, page.charset, page.kind in HTML), page.kind in HTML
        read = (
            read_html(text, page.url, self.max_chars, self.links)
            if is_html
            else ("", plain(text), True)
        )
        title, text, complete = read
        if not complete or len(text) > self.max_chars:
            text = f"{text[: self.max_chars].rstrip()}\n[the rest of the page is cut]"
        head = f"{title}\n{page.url}" if title else page.url
        return f"{head}\n\n{text or '[the page has no text]'}"
