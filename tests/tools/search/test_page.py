import html
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tools.search.html_text import (
    MAX_TAGS,
    TITLE_CHARS,
    clean_plain_text,
    decode_page,
    read_html,
)

BASE = "https://example.com/a/b"


def text(page, enough=100_000, **options):
    return read_html(page, BASE, enough, **options)[1]


def test_a_page_is_its_title_and_a_line_a_block():
    page = """<!doctype html><html><head><meta charset=utf-8><title>
      Paris &amp; <b>more </title><style>p { color: red }</style></head>
      <body class="x"><h1>Paris</h1><p>The   <b>capital</b>\n of <i>France</i>.<br>On the Seine.
      <ul><li>one<li>two <p>three</ul><h3>Sights</h3>a<div>b</div>c
      <table><tr><th>Year</th><th>People</th></tr><tr><td>1999<td>2 million</table></body></html>"""
    title, read, whole = read_html(page, BASE, 1000)
    assert title == "Paris & <b>more" and whole
    assert read.split("\n") == [
        "# Paris",
        "The capital of France.",
        "On the Seine.",
        "- one",
        "- two",
        "three",
        "### Sights",
        "a",
        "b",
        "c",
        "Year | People",
        "1999 | 2 million",
    ]


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>document.write('<p>x</p>')</script>",
        "<SCRIPT>x</Script >",
        "<style>x</style\n>",
        "<!-- x <p> -->",
        "<!-->",
        "<!--->",
        "<!doctype x>",
        "<?php x ?>",
        "</ x>",
        "<template>x<template>x</template>x</template>",
        "<svg><title>x</title>x</svg>",
        "<svg/>",
        "<div hidden>x<div>x</div>x</div>",
        "<div HIDDEN=''>x</div>",
        "<span a='>' hidden>x</span>",
        "<span style='color: red; Display : none'>x</span>",
        "<i style=visibility:hidden>x</i>",
        "<div hidden><script>'</div>'</script>x</div>",
        "<textarea><p>x</textarea>",
        "<iframe src='x'>x</iframe>",
        "<input hidden value=x>",
        "<b title='x > x' data-x=\"'>x\">",
        "\0\x07\x1b\x7f",
    ],
)
def test_what_is_not_shown_is_left_out(hidden):
    assert text(f"a{hidden}b") == "ab"


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("1 < 2 <3 <= x", "1 < 2 <3 <= x"),
        ("a &lt;b&gt; &#x41;&#66; &eacute; &nope; &", "a <b> AB é &nope; &"),
        (f"&#{'9' * 5000};x &#x{'f' * 5000} &#0; &#xD800;", "�x � � �"),
        ("<p title=it's>a</p><p it's>b", "a\nb"),
        ("<div class='a hidden b'>a</div><div data-hidden>b</div>", "a\nb"),
        ("<div hidden>a</p></b></div>b", "b"),
        ("a<script>b", "a"),
        ("a<!-- b", "a"),
        ("a<p title='b> c", "a\nc"),
        ("a<b", "a"),
        ("a</", "a"),
        ("<title>x", ""),
        ("", ""),
        ("  \n ", ""),
        ("&lt;|im_start|&gt;system <|im_end|>", "<|im_start|>system <|im_end|>"),
        ("a&nbsp;&nbsp;b\u2003c", "a b c"),
    ],
)
def test_bad_pages_are_read_as_far_as_they_go(page, shown):
    assert text(page) == shown


def test_the_first_title_counts_and_is_short():
    assert read_html("<title>a</title><title>b</title>", BASE, 99)[:2] == ("a", "")
    assert len(read_html(f"<title>{'a' * 999}</title>", BASE, 99)[0]) == TITLE_CHARS


def test_links_are_shown_on_demand_and_resolved():
    page = """<a href="/x">one</a> <a href='http://o.org/?a=1&amp;b=2'>two</a> <a href=c>three</a> <a>four</a>
      <a href="javascript:alert(1)">five</a> <a href="http://[">six</a> <a href="#top">top</a> <a href="a b">ab</a>"""
    assert text(page) == "one two three four five six top ab"
    assert text(page, links=True) == (
        "[one](https://example.com/x) [two](http://o.org/?a=1&b=2) [three](https://example.com/a/c) four five six "
        "[top](https://example.com/a/b#top) ab"
    )


def test_reading_stops_where_there_is_enough():
    page = "<p>" + "<p>".join(f"line {number}" for number in range(1000))
    title, read, whole = read_html(page, BASE, 100)
    assert not whole and 100 <= len(read) < 120 and read.startswith("line 0\nline 1\n")
    assert read_html(page, BASE, 100) == (title, read, whole)
    assert read_html(page, BASE, 10**6)[2]
    for enough, whole in ((3, True), (2, False)):
        assert read_html("<p>abc</p></body></html>", BASE, enough) == ("", "abc", whole)


@pytest.mark.parametrize("unit", ["<b>", "<div hidden>", "<!---->", "<title>x</title>"])
def test_a_page_of_millions_of_tags_is_not_read_to_its_end(unit):
    _, read, whole = read_html(unit * (5 * 2**20 // len(unit)) + "end", BASE, 8000)
    assert not whole and "end" not in read
    assert read_html(unit * (MAX_TAGS // 2 - 1), BASE, 8000)[2]


@pytest.mark.parametrize(
    "unit",
    ["<a b='", "<a b=\"'>", "<!-", "<!--", "<", "</", "<script>", "&#", "<a =", "= ", "<a \t"],
)
def test_a_page_that_never_closes_is_read_in_linear_time(unit):
    page = unit * (2**18 // len(unit))  # in quadratic time, minutes
    for start in ("", "<a b=", "x"):
        assert len(text(f"{start}{page}")) <= len(page) + len(start)


class Plain(HTMLParser):
    """The text of a page by the standard library."""

    def __init__(self):
        super().__init__()
        self.text, self.dropped = "", False

    def handle_starttag(self, tag, attrs):
        self.dropped = tag == "script"

    def handle_endtag(self, tag):
        self.dropped = False

    def handle_data(self, data):
        self.text += "" if self.dropped else data


PIECES = [
    "<b>",
    "</b>",
    "<p>",
    "</p>",
    "a",
    " b\n",
    "&amp;",
    "é",
    "<i x='<>'>",
    '<i y=">">',
    "<!-- c -->",
    "<script>1<2</script>",
]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(PIECES)))
def test_the_standard_library_reads_the_same_text(pieces: list[str]):
    page = "".join(pieces)
    parser = Plain()
    parser.feed(page)
    parser.close()
    assert "".join(text(page).split()) == "".join(parser.text.split())


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [*PIECES, *"<>/!-='\"&#;x ", "<title>", "</script", "<div hidden ", "<a href="]
        )
    ).map("".join)
)
def test_any_page_can_be_read(page: str):
    for links in (False, True):
        title, read, _ = read_html(page, BASE, 50, links)
        (title + read).encode()
        assert title == " ".join(title.split()) and read == read.strip()


@pytest.mark.parametrize(
    ("body", "charset", "shown"),
    [
        (b"caf\xc3\xa9", "", "café"),
        (b"caf\xe9", "", "caf�"),
        (b"caf\xe9", "ISO-8859-1", "café"),
        (b"\x93caf\xe9\x94", "latin1", "“café”"),
        (b"\x93", "us-ascii", "“"),
        (b"\xe0\xe1", "windows-1251", "аб"),
        ("日本".encode("shift_jis"), "Shift_JIS", "日本"),
        ("日本".encode("gb18030"), "gb18030", "日本"),
        ("é".encode("utf-16-le"), "utf-16le", "é"),
        (b"\xef\xbb\xbfcaf\xc3\xa9", "latin1", "café"),
        (b"\xff\xfe\xe9\x00", "utf-8", "é"),
        (b"\xfe\xff\x00\xe9", "", "é"),
        (b"\xff\xfe\x00\xd8\x01", "", "�"),
        (b"+AOk-", "utf-7", "+AOk-"),
        (b"\\ud800", "raw_unicode_escape", "\\ud800"),
        (b"ab", "rot13", "ab"),
        (b"ab", "zlib", "ab"),
        (b"ab", "no such", "ab"),
        (b"ab", "a\0b", "ab"),
        (b"ab", "é", "ab"),
        (b"ab", "x" * 5000, "ab"),
    ],
)
def test_bytes_become_characters(body, charset, shown):
    assert decode_page(body, charset) == shown
    decode_page(body, charset).encode()


def test_a_page_names_its_own_encoding_where_the_server_does_not():
    for meta in (
        b"<meta charset=windows-1251>",
        b"<META http-equiv=x content='text/html; charset=windows-1251'>",
    ):
        assert decode_page(meta + b"\xe0", "", True).endswith("а")
        assert decode_page(meta + b"\xe0", "latin1", True).endswith("à")
        assert decode_page(meta + b"\xe0").endswith("�")


def test_plain_text_keeps_its_lines_and_loses_its_control_characters():
    assert clean_plain_text("a\r\nb\rc\td\0\x1b[31m\x9b  e\n") == "a\nb\nc\td[31m  e"


def test_entities_are_those_of_the_standard():
    assert text(html.escape("<p>'\"&")) == "<p>'\"&"
