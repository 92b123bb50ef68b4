"""The `visit` tool: the agent gives a URL and reads the page.

The agent chooses where the connection goes, so nothing about a page is an infrastructure failure:
if a host does not answer or a name cannot be looked up, the agent reads that as the result.
Otherwise an agent could void an episode that goes badly.
"""

import ssl
from collections.abc import Collection, Mapping
from typing import Any

from ..base import StatelessTool, Status, ToolResult
from ..checks import check_range
from ..json_schema import check_arguments, make_schema
from ..subprocesses.deadlines import Overdue
from .fetch import HTML_MEDIA_TYPES, Page, PageUnreadable, fetch
from .html_text import PageText, clean_plain_text, decode_page, read_html
from .url_guard import Blocked, Guard, Resolve, look_up_addresses


class Visit(StatelessTool):
    """A tool that shows the agent the text of a page on the public internet.

    Args:
        timeout: Seconds of wall-clock time for a visit, name lookup and redirects included, 0.01 to
            600.
        max_chars: Characters of a page's text that the agent sees, 64 to 1048576; of a longer one,
            the first.
        max_bytes: Bytes of a page, compressed and not, 1024 to 67108864; a larger one is not shown.
        links: Whether links are shown, as `[text](URL)`.
        allow: Hosts that may be visited although they would be blocked: `host` or `host:port` for
            any address of that host, `:port` for that port of all public hosts.
        resolve: Returns the addresses of a host name, as `look_up_addresses` does.
        tls: The TLS settings, which say whose certificates are trusted; None trusts the usual
            authorities.

    Raises:
        ValueError: A limit is out of range, or an entry of `allow` cannot be read.
    """

    name = "visit"

    def __init__(
        self,
        timeout: float = 10.0,
        max_chars: int = 8192,
        max_bytes: int = 2 * 2**20,
        links: bool = False,
        allow: Collection[str] = (),
        resolve: Resolve = look_up_addresses,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        check_range("timeout", timeout, 0.01, 600, "seconds")
        check_range("max_chars", max_chars, 64, 2**20, "characters")
        check_range("max_bytes", max_bytes, 2**10, 2**26, "bytes")
        self.timeout = timeout
        self.max_chars = max_chars
        self.max_bytes = max_bytes
        self.links = links
        self._guard = Guard(allow, resolve)
        self._tls = tls

    @property
    def schema(self) -> dict[str, Any]:
        description = "Read a page of the internet by its URL. You see its title and its text."
        url = {"type": "string", "description": "the page's URL, from http:// or https:// on"}
        return make_schema(self.name, description, {"url": url}, ["url"])

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Return the text of the page at `arguments["url"]`, or why it cannot be read."""
        arguments_problem = check_arguments(self.schema, arguments)
        if arguments_problem:
            return ToolResult(Status.ERROR, arguments_problem)
        try:
            page = fetch(
                arguments["url"],
                self._guard,
                timeout=self.timeout,
                max_bytes=self.max_bytes,
                tls=self._tls,
            )
        except Blocked as problem:
            return ToolResult(Status.REJECTED, f"blocked: {problem}")
        except PageUnreadable as problem:
            return ToolResult(Status.ERROR, f"no page: {problem}")
        except Overdue:
            return ToolResult(
                Status.TIMEOUT, f"no page: it did not come within {self.timeout:g} seconds"
            )
        return ToolResult(Status.OK, self._show(page))

    def _show(self, page: Page) -> str:
        """Return what the agent reads of a page: its title, its URL, and its text.

        Of a text with more than `max_chars` characters, only the first are shown, with a notice.
        """
        is_html = page.media_type in HTML_MEDIA_TYPES
        source = decode_page(page.body, page.charset, is_html=is_html)
        if is_html:
            page_text = read_html(source, page.url, stop_after=self.max_chars, links=self.links)
        else:
            page_text = PageText(title="", text=clean_plain_text(source), is_complete=True)
        text = page_text.text
        if not page_text.is_complete or len(text) > self.max_chars:
            shown_text = f"{text[: self.max_chars].rstrip()}\n[the rest of the page is cut]"
        else:
            shown_text = text or "[the page has no text]"
        head = f"{page_text.title}\n{page.url}" if page_text.title else page.url
        return f"{head}\n\n{shown_text}"
