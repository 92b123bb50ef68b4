import sys
from pathlib import Path
from types import ModuleType

import pytest

from turngym.agents.encoder import Encoder
from turngym.agents.laid import own
from turngym.agents.template import Template
from turngym.tests.verify.templates import area
from turngym.tests.verify.templates.area import SPECIAL, TRL, Templates
from turngym.tests.verify.templates.tokenizers import odd

CASES = {case.name: case for case in odd()}


@pytest.fixture(scope="module")
def made(chat_templates):
    return {name: Template(source, SPECIAL, name) for name, source in chat_templates.items()}


def test_the_verdict_on_every_template_is_trls(made):
    row = area.verdict_row(made, TRL, "TRL as recorded")
    assert (row.good, row.held, row.of) == (True, 57, 57) and set(TRL) == set(made)
    assert row.note == "TRL as recorded: 41 preserve, 6 rewrite, 10 raise"


def test_a_verdict_that_differs_falls_short_and_is_named(made):
    row = area.verdict_row(made, {**TRL, "qwen3.jinja": True, "gemma.jinja": False}, "TRL")
    assert (row.good, row.held, row.of) == (False, 55, 57) and row.note.startswith("gemma.jinja, qwen3.jinja; TRL: 42")
    some = {name: made[name] for name in ("qwen2_5.jinja", "qwen3.jinja", "gemma.jinja")}
    assert area.verdict_row(some, {}, "TRL").held == 0  # a template of which TRL says nothing


def test_trl_is_asked_where_it_is_installed(monkeypatch):
    def says(tokenizer):
        if tokenizer.chat_template == "no":
            raise ValueError("no roles")
        return len(tokenizer.chat_template) > 3

    trl, utils = ModuleType("trl"), ModuleType("trl.chat_template_utils")
    trl.__version__, utils.is_chat_template_prefix_preserving = "9", says
    monkeypatch.setitem(sys.modules, "trl", trl)
    monkeypatch.setitem(sys.modules, "trl.chat_template_utils", utils)
    found = area.trl_verdicts({"a": "yes!", "b": "yes", "c": "no"})
    assert found == ({"a": True, "b": False, "c": None}, "TRL 9 installed")
    monkeypatch.setitem(sys.modules, "trl", None)
    assert area.trl_verdicts({}) == (TRL, "TRL 1.16.0 as recorded")


def test_every_template_is_accepted_or_refused_as_its_verdict_asks(made, monkeypatch):
    row = area.refused_row(made)
    assert (row.good, row.of, row.note) == (True, 57, "47 accepted, 10 refused")
    monkeypatch.setattr(Template, "check", lambda self: None)
    row = area.refused_row(made)
    assert not row.good and row.note.startswith("idefics3.jinja, ") and row.held == 57 - 10


def test_an_injected_control_token_falls_short(monkeypatch):
    row = area.injection_row(CASES["flags"], 5, 0)
    assert row.good and row.of > 500 and row.note == "3 added tokens"
    name = Encoder._name
    monkeypatch.setattr(Encoder, "_name", lambda self, text, base: name(self, own(str.__str__(text)), base))
    row = area.injection_row(CASES["flags"], 5, 0)
    assert not row.good and "brings control tokens" in row.note


def test_a_missing_folder_is_named():
    with pytest.raises(FileNotFoundError, match=r"nowhere/chat_templates.jsonl does not exist; .* --data"):
        list(Templates(data=Path("nowhere")).rows())


def test_the_rows_are_those_of_the_templates_then_of_the_tokenizers(shared_data, monkeypatch):
    """On few templates and tokenizers."""
    read = area.read_templates
    few = ("qwen2_5.jinja", "qwen3.jinja", "gemma.jinja")
    monkeypatch.setattr(area, "read_templates", lambda path: {name: read(path)[name] for name in few})
    monkeypatch.setattr(area, "trl_verdicts", lambda sources: (TRL, "TRL"))
    monkeypatch.setattr("turngym.tests.verify.templates.tokenizers.shipped", lambda folder: [])
    monkeypatch.setattr("turngym.tests.verify.templates.tokenizers.odd", lambda: [CASES["words"]])
    rows = list(Templates(data=shared_data / "tokenizer", mixtures=3).rows())
    assert [(row.good, row.of) for row in rows] == [(True, 3), (True, 3), (True, 9), (True, 9), (True, rows[4].of)]
    assert rows[4].what == "control tokens: none from text, tokenizer words"
