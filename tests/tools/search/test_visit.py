import json
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tests.support.faults import FAULTS, PAGE, FaultServer
from turngym.tools import Status, Tool, ToolResult, get_format
from turngym.tools.search.visit import Visit

OK, ERROR, TIMEOUT, REJECTED = Status.OK, Status.ERROR, Status.TIMEOUT, Status.REJECTED
PUBLIC = "93.184.215.14"

# What comes of each path of the fault server; where two are named, the clock decides.
OUTCOMES = {
    "page": {OK},
    "plain": {OK},
    "json": {OK},
    "xml": {OK},
    "gzip": {OK},
    "cookie": {OK},
    "nested": {OK},
    "codec/latin-1": {OK},
    "echo/hi": {OK},
    "hops/5": {OK},
    "gzip-10gb": {ERROR},
    "gzip-cut": {ERROR},
    "gzip-damaged": {ERROR},
    "gzip-twice": {ERROR},
    "brotli": {ERROR},
    "endless-headers": {ERROR},
    "endless-header": {ERROR},
    "many-headers": {ERROR},
    "some-headers": {ERROR},
    "endless-continue": {ERROR, TIMEOUT},
    "endless-body": {ERROR, TIMEOUT},
    "endless-chunks": {ERROR, TIMEOUT},
    "endless-extension": {ERROR},
    "endless-trailers": {ERROR},
    "tiny-chunks": {ERROR, TIMEOUT},
    "large-length": {ERROR, TIMEOUT},
    "two-lengths": {ERROR},
    "half": {ERROR},
    "half-chunk": {ERROR},
    "reset": {ERROR},
    "garbage": {ERROR},
    "no-answer": {ERROR},
    "image": {ERROR},
    "untyped": {ERROR},
    "status/404": {ERROR},
    "status/999": {ERROR},
    "nowhere": {ERROR},
    "silent": {TIMEOUT},
    "drip-headers": {TIMEOUT},
    "drip-continue": {TIMEOUT},
    "drip-body": {TIMEOUT},
    "drip-chunks": {TIMEOUT},
    "loop": {REJECTED},
    "hops/6": {REJECTED},
    "redirect/": {REJECTED},
    "redirect/http://127.0.0.1:1/": {REJECTED},
    "redirect/http://127.0.0.1/": {REJECTED},
    "redirect/http://169.254.169.254/latest/meta-data/": {REJECTED},
    "redirect/http://metadata.google.internal/": {REJECTED},
    "redirect/http://[::1]/": {REJECTED},
    "redirect/http://0x7f000001/": {REJECTED},
    "redirect/http://a:b@example.com/": {REJECTED},
    "redirect/file:///etc/passwd": {REJECTED},
    "redirect/data:text/html,x": {REJECTED},
    "redirect/http://internal.example.com/": {REJECTED},
}


@pytest.fixture(scope="module")
def server():
    with FaultServer() as server:
        yield server


@pytest.fixture
def visit(server):
    """`visit(path)` is what the agent reads of the fault server, in little time."""
    tool = Visit(
        timeout=20.0, max_bytes=2**16, allow=[server.host], resolve=lambda host, port: ["10.0.0.7"]
    )
    return lambda path: tool.call({"url": f"http://{server.host}/{path}"})


def test_it_is_a_tool_with_one_argument():
    tool = Visit()
    assert isinstance(tool, Tool) and tool.name == "visit" and tool.fork() is tool
    assert tool.schema["function"]["parameters"]["required"] == ["url"]
    tool.reset()
    tool.close()
    tool.close()
    for arguments in ({}, {"url": 1}, {"url": "http://example.com/", "timeout": 9}):
        assert tool.call(arguments).status is ERROR


def test_the_agent_reads_title_url_and_text(server, visit):
    head = f"A page\nhttp://{server.host}"
    assert visit("page") == ToolResult(OK, f"{head}/page\n\n# Paris\nIt is the capital of France.")
    assert visit("hops/1").text.startswith(f"{head}/hops/0\n")
    assert visit("plain").text == f"http://{server.host}/plain\n\none\n  two"
    assert visit("xml").text.endswith("\n\n<a>1</a>")
    assert visit("codec/latin-1").text.endswith("\n\ncafé")
    assert (
        visit("echo/<title>x</title>").text
        == f"x\nhttp://{server.host}/echo/%3Ctitle%3Ex%3C/title%3E\n\n[the page has no text]"
    )
    assert visit("echo/&lt;|im_end|&gt;").text.endswith("\n\n<|im_end|>")


def test_a_long_page_is_cut_at_the_same_place_each_time(server):
    for path, body in (
        ("gzip", ("# Paris\nIt is the capital of France.\n" * 100).strip()),
        ("plain", "one\n  two"),
    ):
        for most in (64, 100, 3698, 3699, 3700, 8192):
            tool = Visit(max_chars=most, allow=[server.host])
            results = {tool.call({"url": f"http://{server.host}/{path}"}).text for _ in range(3)}
            text = (
                body
                if len(body) <= most
                else f"{body[:most].rstrip()}\n[the rest of the page is cut]"
            )
            assert [result.partition("\n\n")[2] for result in results] == [text]


def test_links_are_shown_on_demand(server):
    for links, text in ((False, "x"), (True, "[x](http://a.org/)")):
        result = Visit(links=links, allow=[server.host]).call(
            {"url": f"http://{server.host}/echo/<a href='http://a.org/'>x</a>"}
        )
        assert result.text.partition("\n\n")[2] == text


def test_the_outcomes_are_of_all_faults():
    assert {path.partition("/")[0] for path in OUTCOMES} - {"nowhere"} == set(FAULTS)
    assert sum(outcome != {OK} for outcome in OUTCOMES.values()) >= 40


@pytest.mark.parametrize(("path", "outcome"), OUTCOMES.items(), ids=OUTCOMES)
def test_whatever_a_server_does_the_agent_reads_what_came_of_it(server, path, outcome):
    timeout = 0.1 if outcome == {TIMEOUT} else 20.0
    size = 2**21 if path == "nested" else 2**16
    tool = Visit(
        timeout=timeout,
        max_bytes=size,
        allow=[server.host],
        resolve=lambda host, port: ["10.0.0.7"],
    )
    result = tool.call({"url": f"http://{server.host}/{path}"})
    assert result.status in outcome, result
    words = {
        OK: "http://",
        ERROR: "no page: ",
        TIMEOUT: "no page: it did not come within 0.1 s",
        REJECTED: "blocked: ",
    }
    assert words[result.status] in result.text and "10.0.0.7" not in result.text
    assert result.status is OK or len(result.text) < 120


def test_memory_is_bounded_whatever_comes(server, bare):
    paths = [path for path, outcome in OUTCOMES.items() if TIMEOUT not in outcome] + [
        "endless-body",
        "large-length",
    ]
    seen = bare(f"""
from pathlib import Path
from turngym.tools.search.visit import Visit

tool = Visit(allow=[{server.host!r}])
peak = lambda: int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024
tool.call({{"url": "http://{server.host}/page"}})
before = peak()
statuses = [tool.call({{"url": "http://{server.host}/" + path}}).status for path in {paths!r}]
print(json.dumps({{"calls": len(statuses), "grown": peak() - before}}))
""")
    assert seen["calls"] == len(paths) and seen["grown"] <= 32, seen


def test_a_name_is_resolved_once_a_hop_and_private_addresses_are_not_told(server):
    lookups = []

    def rebind(host, port):
        lookups.append(host)
        return [PUBLIC] if len(lookups) > 1 else ["192.168.7.7"]

    result = Visit(resolve=rebind).call({"url": "http://rebind.example.com/"})
    assert result == ToolResult(REJECTED, "blocked: rebind.example.com is not a public host")
    assert lookups == ["rebind.example.com"]


def test_a_host_that_is_not_there_is_for_the_agent_to_read():
    def broken(host, port):
        raise OSError(-3, "Temporary failure in name resolution of 10.9.8.7")

    assert Visit(resolve=broken).call({"url": "http://example.com/"}) == ToolResult(
        ERROR, "no page: there is no host example.com"
    )
    late = Visit(timeout=0.05, resolve=lambda host, port: time.sleep(0.5))
    assert late.call({"url": "http://example.com/"}).status is TIMEOUT


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(
        st.text(),
        st.text().map("http://".__add__),
        st.text("0123456789abcdefx.:[]@/%").map("http://".__add__),
    )
)
def test_any_text_for_a_url_has_a_result(url: str):
    result = Visit(resolve=lambda host, port: ["127.0.0.1"]).call({"url": url})
    assert result.status is REJECTED and result.text.startswith("blocked: ")


def test_limits_out_of_range_are_refused():
    for limits, name in (
        ({"timeout": 0}, "timeout is 0"),
        ({"max_chars": 1}, "max_chars"),
        ({"max_bytes": 2**40}, "max_bytes"),
    ):
        with pytest.raises(ValueError, match=name):
            Visit(**limits)
    with pytest.raises(ValueError, match="allow holds 'http://x'"):
        Visit(allow=["http://x"])


def test_hostile_answers_of_the_corpus_hold(server, shared_data):
    lines = (
        (shared_data.parent / "corpora" / "adversarial_answers.jsonl")
        .read_text("utf-8")
        .splitlines()
    )
    rows = [
        row for row in map(json.loads, lines) if (row["env"], row["class"]) == ("search", "ssrf")
    ]
    tags, tool = get_format("tags"), Visit(timeout=2.0, allow=[server.host])
    before, environment = len(server.requests), dict(os.environ)
    statuses = {}
    for row in rows:
        call = tags.parse(row["text"].replace("{{HOST}}", server.host), ["visit"]).call
        result = tool.call(call.arguments)
        statuses[row["id"]] = result.status
        wanted = {REJECTED} if "blocked" in row["must_hold"] else {ERROR, TIMEOUT, REJECTED}
        assert result.status in wanted, (row["id"], result)
    assert len(statuses) >= 6 and len(server.requests) - before == sum(
        "{{HOST}}" in row["text"] for row in rows
    )
    assert dict(os.environ) == environment
    assert tool.call({"url": f"http://{server.host}/page"}).status is OK and b"Paris" in PAGE
