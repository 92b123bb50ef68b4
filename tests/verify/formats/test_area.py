from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from turngym.agents.models.resolve import TINY
from turngym.tests.verify.formats import area as formats
from turngym.tests.verify.formats.area import Formats
from turngym.tests.verify.formats.fuzz import results
from turngym.tests.verify.formats.recorded import Recorded, recorded, tool_names
from turngym.tests.verify.templates import tokenizers
from turngym.tests.verify.templates.tokenizers import Case
from turngym.tools import FORMATS, Parsed, ToolCall
from turngym.tools.formats.hermes import Hermes

ROW = Recorded(
    "here",
    "hermes",
    'So: <tool_call>{"name": "f", "arguments": {}}</tool_call> x',
    ToolCall("f", {}),
)


@pytest.fixture
def area(shared_data, monkeypatch):
    """A small setting of everything; the time limit is wide, as other work may run beside the tests."""
    tiny = Case("tiny", Tokenizer.from_file(str(TINY / "tokenizer.json")), "", "")
    monkeypatch.setattr(tokenizers, "shipped", lambda folder: iter([tiny]))
    monkeypatch.setattr(formats, "NEAR", range(-1, 2))
    small = Formats(fuzzed=350, rendered=200, milliseconds=250)
    return replace(small, data=shared_data / "tool_calls", tokenizers=shared_data / "tokenizer")


def test_real_completions_are_cut_at_their_first_call_in_the_tokens_of_qwen(
    qwen_folder, shared_data
):
    tokenizer = Tokenizer.from_file(str(qwen_folder / "tokenizer.json"))
    real = recorded(shared_data / "tool_calls")
    for name, style in FORMATS.items():
        rows = [row for row in real if row.style == name]
        row = formats.cut_row(style, rows[:: max(len(rows) // 4, 1)], tokenizer, "qwen")
        assert row.good and row.of > 40, row


def test_missing_folders_are_named(area):
    for option in ("data", "tokenizers"):
        with pytest.raises(
            FileNotFoundError, match=f"none.* is missing; --{option} names the folder"
        ):
            list(replace(area, fuzzed=1, rendered=1, **{option: Path("none")}).rows())


# --- planted faults


class Greedy(Hermes):
    """Reads up to the last end, so that what follows changes the first call."""

    def _find_end(self, text, opening):
        end = text.rfind(self.closer)
        return None if end < opening.end() else end + len(self.closer)


class Late(Hermes):
    """Is complete one character too late."""

    def complete(self, text):
        return super().complete(text[:-1])


class Raises(Hermes):
    def parse(self, text, tools):
        return super().parse(text.encode().decode(), tools)


class Forgetful(Hermes):
    """Drops every other call."""

    seen = 0

    def parse(self, text, tools):
        self.seen += 1
        return Parsed(None, None, text) if self.seen % 2 else super().parse(text, tools)


@pytest.mark.parametrize(
    ("style", "problem"),
    [
        (Greedy(), "changes by what is written behind its call"),
        (Late(), "is not cut at the end of its call"),
        (Raises(), "raised UnicodeEncodeError"),
        (Forgetful(), "is read otherwise again"),
    ],
)
def test_a_planted_fault_falls_short(style, problem):
    texts = [
        ROW.text[:-2],
        f"{ROW.text}</tool_call>",
        "\ud800",
        ROW.text.replace('"f"', '"python"'),
    ]
    row = formats.fuzz_row(style, iter(texts), 250)
    assert not row.good and row.of == 4 and problem in row.note


def test_a_slow_format_falls_short():
    row = formats.fuzz_row(FORMATS["hermes"], iter(["[" * 10_000]), 0.0)
    assert (row.held, row.of) == (0, 1) and row.note.startswith("0 took ")


class Open(Hermes):
    """Shows results as they are."""

    def observe(self, text, tool):
        return "user", f"<result>\n{text}\n</result>"


def test_a_result_that_ends_its_own_block_falls_short():
    assert formats.result_row(FORMATS["tags"], results(0, 200)).good
    row = formats.result_row(Open(), results(0, 200))
    assert row.of == 200 and row.held < 150


def test_wrong_readings_prefixes_and_cuts_fall_short():
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    tools = tool_names([ROW])
    assert formats.recorded_row(FORMATS["hermes"], [ROW], tools).good
    assert not formats.recorded_row(FORMATS["hermes"], [replace(ROW, want=None)], tools).good
    assert formats.prefix_row(FORMATS["hermes"], [ROW], tools).good
    assert (
        formats.prefix_row(Greedy(), [replace(ROW, text=ROW.text * 2)], tools).held
        < len(ROW.text) * 2
    )
    assert formats.cut_row(FORMATS["hermes"], [ROW], tokenizer, "tiny").good
    assert not formats.cut_row(Late(), [ROW], tokenizer, "tiny").good


def test_an_exception_that_is_out_of_date_falls_short():
    row = formats.recorded_row(
        FORMATS["hermes"], [replace(ROW, where="completions.jsonl:1")], ("f",)
    )
    assert not row.good


def test_a_format_that_refuses_or_changes_calls_falls_short():
    def written():
        return iter(
            [ToolCall("python", {"code": "'</python>'"})] * 2 + [ToolCall("python", {"code": "1"})]
        )

    row = formats.rendered_row(FORMATS["tags"], written())
    assert (row.held, row.note) == (0, "2 refused to be written")
    assert formats.rendered_row(FORMATS["hermes"], written()).good
    assert formats.rendered_row(Forgetful(), written()).held < 3
