"""The text of an HTML page, roughly as a reader sees it: `decode_page`, then `read_html`.

Pages may be hostile, so every step takes time linear in the page's length, and none recurses. Badly
written HTML is read as far as possible. Where reading differs from the HTML standard, it leaves
more out.
"""

import codecs
import html
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

MAX_TAGS = 100_000  # tags of a page that are read
TITLE_CHARS = 200  # characters of a title, at most
_TABLES = tomllib.loads(Path(__file__).with_name("html.toml").read_text("utf-8"))
# Names of elements:
_BLOCK_ELEMENTS = frozenset(_TABLES["blocks"].split())  # they begin and end a line
_DROPPED_ELEMENTS = frozenset(_TABLES["dropped"].split())  # their content is left out
_RAW_TEXT_ELEMENTS = frozenset(_TABLES["raw"].split())  # only their own end tag counts in them
_VOID_ELEMENTS = frozenset(_TABLES["void"].split())  # they have no end tag
_ACCEPTED_CODECS = frozenset(_TABLES["codecs"].split())
_LINE_PREFIXES = {"li": "- ", **{f"h{level}": "#" * level + " " for level in range(1, 7)}}

_TAG_START = re.compile(
    r"""
    < (?: !--                                         # a comment
        | (?P<slash> /? ) (?P<name> [a-zA-Z][^\s/>]*+ )
        | [!/?]                                       # <!doctype, </ without a name, <?xml
      )
    """,
    re.VERBOSE,
)
# The rest of a tag, up to its ">". Only a quote behind "=" begins a quoted value, in which ">" does
# not count. If a quote is never closed, no later one is either, so only few tags search far ahead
# in vain.
_ATTRIBUTES = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_ATTRIBUTE_VALUE = re.compile(r"""=\s*+("[^"]*+"|'[^']*+'|[^\s"'>]*+)""")
_HIDDEN_ATTRIBUTE = re.compile(r"\shidden(?=[\s=/>])", re.IGNORECASE)
_HIDDEN_STYLE = re.compile(r"display\s*+:\s*+none|visibility\s*+:\s*+hidden", re.IGNORECASE)
_HREF = re.compile(r"""\shref\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s"'>]++)""", re.IGNORECASE)
# A character reference beyond any character; `html.unescape` would fail on one of thousands of
# digits.
_LONG_REFERENCE = re.compile("&#[xX]?[0-9a-fA-F]{9,}+;?")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_META_CHARSET = re.compile(
    rb"""<meta\s[^>]{0,400}charset\s*+=\s*+["']?([\w.:-]{1,40})""", re.IGNORECASE
)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class PageText(NamedTuple):
    """What was read of a page.

    Args:
        title: The page's title on one line; "" if it has none.
        text: A line per block of the page.
        is_complete: Whether the whole page was read.
    """

    title: str
    text: str
    is_complete: bool


def decode_page(body: bytes, charset: str = "", is_html: bool = False) -> str:
    """Decode the bytes of a page; those that cannot be decoded become U+FFFD.

    The encoding is the first of these: that of a byte order mark, `charset`, that which a `<meta>`
    tag names, UTF-8 (WHATWG Encoding Standard, section 6).

    Args:
        body: The page.
        charset: The encoding that the server names; "" if it names none.
        is_html: Whether the page is HTML, and may name its encoding in a `<meta>` tag.
    """
    for mark, codec in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(codec, "replace")
    if not charset and is_html:
        meta_tag = _META_CHARSET.search(body[:1024])
        if meta_tag is not None:
            charset = meta_tag[1].decode("ascii", "replace")
    try:
        codec = codecs.lookup(charset).name
    except (LookupError, ValueError):
        codec = "utf-8"
    if codec in ("ascii", "iso8859-1"):
        codec = "cp1252"  # as browsers do: pages that claim to be Latin-1 are mostly Windows-1252
    # Python has codecs that are slow or that are not of text.
    if codec not in _ACCEPTED_CODECS:
        codec = "utf-8"
    return body.decode(codec, "replace")


def clean_plain_text(text: str) -> str:
    r"""Return a text with `\n` as its line breaks, stripped and without control characters."""
    unix_text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", unix_text).strip()


def read_html(source: str, base_url: str, stop_after: int, links: bool = False) -> PageText:
    """Return the title and the text of an HTML page.

    Each block of the page becomes a line, with its whitespace collapsed. Headings begin with `#`,
    list items with `-`.

    Args:
        source: The HTML.
        base_url: The page's URL, against which links are resolved.
        stop_after: Reading stops when the text has more characters than this.
        links: Whether links are shown, as `[text](URL)`.
    """
    reader = _PageReader(base_url=base_url, show_links=links)
    position = 0
    is_complete = False
    for _ in range(MAX_TAGS):
        tag_start = _TAG_START.search(source, position)
        if tag_start is None:
            reader.add_text(source[position:])
            is_complete = True
            break
        reader.add_text(source[position : tag_start.start()])
        if reader.length > stop_after + 1:  # 1 for the line break behind the last line
            break
        tag_end = _read_tag(reader, source, tag_start)
        if tag_end is None:  # the tag is never closed, so there is no text behind it
            is_complete = True
            break
        position = tag_end
    reader.end_line()
    return PageText(reader.title, "\n".join(reader.lines), is_complete)


@dataclass
class _PageReader:
    """Turns the tags and texts of a page, in their order, into lines.

    Args:
        base_url: The page's URL, against which links are resolved.
        show_links: Whether links are shown.
        title: The page's title; "" until it has been read.
        lines: The finished lines.
        length: Characters of the finished lines, with a line break each.
        line_pieces: The HTML text of the line that is being read.
        line_prefix: What that line begins with: `- `, `# ` or nothing.
        hidden_element: The name of the element that is being left out; "" if none is.
        hidden_depth: How many elements of that name are open.
        link_url: The URL of the link that is open; "" if none is.
    """

    base_url: str
    show_links: bool
    title: str = ""
    lines: list[str] = field(default_factory=list)
    length: int = 0
    line_pieces: list[str] = field(default_factory=list)
    line_prefix: str = ""
    hidden_element: str = ""
    hidden_depth: int = 0
    link_url: str = ""

    def add_text(self, text: str) -> None:
        """Add the HTML text between two tags, unless it is hidden."""
        if text and not self.hidden_element:
            self.line_pieces.append(_LONG_REFERENCE.sub("\ufffd", text))

    def end_line(self, next_prefix: str = "") -> None:
        """Finish the line that is being read, unless it is empty, and begin another.

        Args:
            next_prefix: What the next line begins with, such as `- ` for a list item.
        """
        text = _unescape_line("".join(self.line_pieces))
        self.line_pieces.clear()
        if text:
            line = self.line_prefix + text
            self.lines.append(line)
            self.length += len(line) + 1
        # If the line has no text, its prefix is for the next: "<li><p>text" is the item "- text".
        if text or next_prefix:
            self.line_prefix = next_prefix

    def open_element(self, name: str, attributes: str) -> None:
        """Read a start tag.

        Args:
            name: The element's name in lower case.
            attributes: The tag's text behind the name, with its `>`.
        """
        if self.hidden_element:
            if name == self.hidden_element:
                self.hidden_depth += 1
        elif _is_left_out(name, attributes):
            self.hidden_element = name
            self.hidden_depth = 1
        elif name in _BLOCK_ELEMENTS:
            self.end_line(next_prefix=_LINE_PREFIXES.get(name, ""))
        elif name in ("td", "th"):
            if self.line_pieces:  # not the first cell of its row
                self.line_pieces.append(" | ")
        elif name == "a" and self.show_links:
            self._open_link(attributes)

    def close_element(self, name: str) -> None:
        """Read the end tag of the element `name`."""
        if self.hidden_element:
            if name == self.hidden_element:
                self.hidden_depth -= 1
            if self.hidden_depth == 0:
                self.hidden_element = ""
        elif name in _BLOCK_ELEMENTS:
            self.end_line()
        elif name == "a" and self.link_url:
            self.line_pieces.append(f"]({self.link_url})")
            self.link_url = ""

    def _open_link(self, attributes: str) -> None:
        """Begin `[text](URL)` if the start tag of an `<a>` has a URL that can be visited."""
        href_attribute = _HREF.search(attributes)
        if href_attribute is None:
            return
        href = _unescape_line(href_attribute[1].strip("\"'"))
        self.link_url = _resolve_link(self.base_url, href)
        # Even without "[" the line has a piece now, so a table cell behind it gets its " | ".
        self.line_pieces.append("[" if self.link_url else "")


def _read_tag(reader: _PageReader, source: str, tag_start: re.Match[str]) -> int | None:
    """Read a tag or comment.

    A `<script>`, `<title>` or the like is read up to its end tag.

    Args:
        reader: Gets the start tags and end tags.
        source: The HTML of the page.
        tag_start: The match of `_TAG_START` where the tag begins.

    Returns:
        Where the rest of the page begins; None if the tag is never closed.
    """
    if tag_start["name"] is None:
        return _find_comment_end(source, tag_start)
    attributes = _ATTRIBUTES.match(source, tag_start.end())
    if attributes is None:
        return None
    name = tag_start["name"].lower()
    is_end_tag = tag_start["slash"] != ""
    if is_end_tag:
        reader.close_element(name)
        return attributes.end()
    if name in _RAW_TEXT_ELEMENTS:
        return _read_raw_text_element(reader, source, name, content_start=attributes.end())
    reader.open_element(name, attributes[0])
    return attributes.end()


def _find_comment_end(source: str, tag_start: re.Match[str]) -> int | None:
    """Return where a comment or a tag such as `<!doctype html>` ends; None if it does not.

    Args:
        source: The HTML of the page.
        tag_start: The match of `_TAG_START` where it begins.
    """
    if tag_start[0] == "<!--":
        closer = "-->"
        search_start = tag_start.end() - len("--")  # `<!-->` is a complete, empty comment
    else:
        closer = ">"
        search_start = tag_start.end()
    closer_start = source.find(closer, search_start)
    return None if closer_start < 0 else closer_start + len(closer)


def _read_raw_text_element(
    reader: _PageReader, source: str, name: str, *, content_start: int
) -> int | None:
    """Skip the content of a `<script>` or the like, but store that of the first `<title>`.

    Args:
        reader: Gets the title.
        source: The HTML of the page.
        name: The element's name in lower case.
        content_start: Where the element's content begins, behind its start tag.

    Returns:
        Where the element's end tag begins; None if there is none.
    """
    end_tag = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, content_start)
    content_end = None if end_tag is None else end_tag.start()
    is_visible_title = name == "title" and not reader.hidden_element
    if is_visible_title and not reader.title:
        title = _LONG_REFERENCE.sub("\ufffd", source[content_start:content_end])
        reader.title = _unescape_line(title)[:TITLE_CHARS]
    return content_end


def _is_left_out(name: str, attributes: str) -> bool:
    """Return whether an element is left out, because of its name or its start tag's attributes.

    An element without an end tag has no content.
    """
    if name in _VOID_ELEMENTS:
        return False
    is_self_closed = attributes.endswith("/>")
    return _is_hidden(attributes) or (name in _DROPPED_ELEMENTS and not is_self_closed)


def _is_hidden(attributes: str) -> bool:
    """Return whether a start tag hides its element by the attribute `hidden` or its style."""
    if len(attributes) >= len(" hidden"):
        # The attributes' values are removed first, because `title="a hidden gem"` hides nothing.
        attribute_names = _ATTRIBUTE_VALUE.sub("=", attributes)
        if _HIDDEN_ATTRIBUTE.search(attribute_names):
            return True
    return "style" in attributes and _HIDDEN_STYLE.search(attributes) is not None


def _resolve_link(base_url: str, href: str) -> str:
    """Return the absolute URL of a link; "" if it cannot be visited."""
    try:
        url = urljoin(base_url, href)
    except ValueError:
        return ""
    can_be_visited = url.startswith(("http://", "https://")) and " " not in url
    return url if can_be_visited else ""


def _unescape_line(text: str) -> str:
    """Unescape HTML text, put it on one line, and remove control characters."""
    one_line = " ".join(html.unescape(text).split())
    return _CONTROL.sub("", one_line)
