"""The text of an HTML page, as a reader sees it.

The text of a page is what a reader would see of it. Every step takes time linear in the page, and none recurses. What
is badly written is read as far as it can be; where HTML is read otherwise than by its standard, more is left out.
"""

import codecs
import html
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urljoin

TAGS = 100_000  # of a page; the rest is left out
TITLE = 200  # characters
_TABLES = tomllib.loads(Path(__file__).with_name("html.toml").read_text("utf-8"))
_BLOCKS, _DROPPED, _RAW, _VOID, _CODECS = (
    frozenset(_TABLES[name].split()) for name in ("blocks", "dropped", "raw", "void", "codecs")
)
_MARKS = {"li": "- ", **{f"h{level}": "#" * level + " " for level in range(1, 7)}}
_OPENING = re.compile(r"<(?:!--|(/?)([a-zA-Z][^\s/>]*+)|[!/?])")
# Quotes count behind `=` alone. Where one is never closed no later one is, either, so few look far ahead in vain.
_REST = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_VALUES = re.compile(r"""=\s*+("[^"]*+"|'[^']*+'|[^\s"'>]*+)""")
_HIDDEN = re.compile(r"\shidden(?=[\s=/>])", re.IGNORECASE)
_STYLED = re.compile(r"display\s*+:\s*+none|visibility\s*+:\s*+hidden", re.IGNORECASE)
_HREF = re.compile(r"""\shref\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s"'>]++)""", re.IGNORECASE)
_LONG_NUMBER = re.compile(
    "&#[xX]?[0-9a-fA-F]{9,}+;?"
)  # no character; int() refuses one of thousands of digits
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_META = re.compile(rb"""<meta\s[^>]{0,400}charset\s*+=\s*+["']?([\w.:-]{1,40})""", re.IGNORECASE)
_MARKS_OF_ORDER = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(body: bytes, charset: str = "", is_html: bool = False) -> str:
    """Return the characters of a page; those that are none become U+FFFD.

    A byte order mark says which encoding it is, else the server, else the page itself, else it is UTF-8 (WHATWG
    Encoding Standard, section 6, with Latin-1 and ASCII read as Windows-1252).
    """
    for mark, codec in _MARKS_OF_ORDER:
        if body.startswith(mark):
            return body[len(mark) :].decode(codec, "replace")
    if not charset and is_html and (meta := _META.search(body[:1024])):
        charset = meta[1].decode("ascii", "replace")
    try:
        codec = codecs.lookup(charset).name
    except (LookupError, ValueError):
        codec = "utf-8"
    if codec in ("ascii", "iso8859-1"):
        codec = "cp1252"
    return body.decode(codec if codec in _CODECS else "utf-8", "replace")


def plain(text: str) -> str:
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


@dataclass
class _PageReader:
    """A page that is being read: lines that are done, and the parts of the one that is not."""

    base: str
    links: bool
    title: str = ""
    lines: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    mark: str = ""  # what the line begins with
    length: int = 0
    hidden: str = ""  # the element that is left out, and how many of its name are open
    depth: int = 0
    link: str = ""  # where the open link leads

    def add(self, text: str) -> None:
        if text and not self.hidden:
            self.parts.append(_LONG_NUMBER.sub("\ufffd", text))

    def end_line(self, mark: str = "") -> None:
        text = _tidy("".join(self.parts))
        self.parts.clear()
        if text:
            self.lines.append(self.mark + text)
            self.length += len(self.lines[-1]) + 1
        if text or mark:
            self.mark = mark

    def open(self, name: str, rest: str) -> None:
        if self.hidden:
            self.depth += name == self.hidden
        elif name not in _VOID and (
            _is_hidden(rest) or (name in _DROPPED and not rest.endswith("/>"))
        ):
            self.hidden, self.depth = name, 1
        elif name in _BLOCKS:
            self.end_line(_MARKS.get(name, ""))
        elif name in ("td", "th") and self.parts:
            self.parts.append(" | ")
        elif name == "a" and self.links and (href := _HREF.search(rest)):
            self.link = _absolute(self.base, _tidy(href[1].strip("\"'")))
            self.parts.append("[" if self.link else "")

    def close(self, name: str) -> None:
        if self.hidden:
            self.depth -= name == self.hidden
            self.hidden = self.hidden if self.depth else ""
        elif name in _BLOCKS:
            self.end_line()
        elif name == "a" and self.link:
            self.parts.append(f"]({self.link})")
            self.link = ""


def read_html(text: str, base: str, enough: int, links: bool = False) -> tuple[str, str, bool]:
    """Return the title and the text of a page, and whether this is all of it: reading stops beyond `enough` characters.

    A line is a block of the page with its blanks collapsed; headings begin with `#`, items of lists with `-`. With
    `links`, a link is `[text](URL)`, resolved against the URL `base`.
    """
    page, position = _PageReader(base, links), 0
    for _ in range(TAGS):
        opening = _OPENING.search(text, position)
        page.add(text[position : opening.start() if opening else None])
        if opening is None or page.length > enough + 1:  # with a line's end behind the last one
            break
        if (
            end := _read_tag(page, text, opening)
        ) is None:  # never closed: there is no text behind it
            opening = None
            break
        position = end
    page.end_line()
    return page.title, "\n".join(page.lines), opening is None


def _read_tag(page: _PageReader, text: str, opening: re.Match[str]) -> int | None:
    """Read what opens there; where it ends, None where it does not."""
    if opening[2] is None:
        closer = "-->" if opening[0] == "<!--" else ">"
        # An empty comment may be written <!-->, so its end is looked for from its own dashes on.
        closed = text.find(closer, opening.end() - 2 * (closer == "-->"))
        return None if closed < 0 else closed + len(closer)
    if (rest := _REST.match(text, opening.end())) is None:
        return None
    name = opening[2].lower()
    if opening[1]:
        page.close(name)
    elif name in _RAW:
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, rest.end())
        if name == "title" and not page.hidden and not page.title:
            page.title = _tidy(
                _LONG_NUMBER.sub("\ufffd", text[rest.end() : end.start() if end else None])
            )[:TITLE]
        return end.start() if end else None
    else:
        page.open(name, rest[0])
    return rest.end()


def _is_hidden(rest: str) -> bool:
    hidden = len(rest) >= len(" hidden") and _HIDDEN.search(_VALUES.sub("=", rest))
    return bool(hidden or ("style" in rest and _STYLED.search(rest)))


def _absolute(base: str, href: str) -> str:
    """Return the URL of a link; empty for one that cannot be visited."""
    try:
        url = urljoin(base, href)
    except ValueError:
        return ""
    return url if url.startswith(("http://", "https://")) and " " not in url else ""


def _tidy(text: str) -> str:
    return _CONTROL.sub("", " ".join(html.unescape(text).split()))
