import pytest

from turngym.agents.chat.chat import Encoder
from turngym.agents.chat.rendering import template_text
from turngym.agents.chat.template import Template
from turngym.tests.verify.templates import area
from turngym.tests.verify.templates.area import SPECIAL, TRL
from turngym.tests.verify.templates.tokenizers import odd

CASES = {case.name: case for case in odd()}


@pytest.fixture(scope="module")
def made(chat_templates):
    return {name: Template(source, SPECIAL, name) for name, source in chat_templates.items()}


def test_a_verdict_that_differs_falls_short_and_is_named(made):
    row = area.verdict_row(made, {**TRL, "qwen3.jinja": True, "gemma.jinja": False}, "TRL")
    assert (row.good, row.held, row.of) == (False, 55, 57) and row.note.startswith(
        "gemma.jinja, qwen3.jinja; TRL: 42"
    )
    some = {name: made[name] for name in ("qwen2_5.jinja", "qwen3.jinja", "gemma.jinja")}
    assert area.verdict_row(some, {}, "TRL").held == 0  # a template of which TRL says nothing


def test_every_template_is_accepted_or_refused_as_its_verdict_asks(made, monkeypatch):
    row = area.refused_row(made)
    assert (row.good, row.of, row.note) == (True, 57, "49 accepted, 8 refused")
    monkeypatch.setattr(Template, "check", lambda self: None)
    row = area.refused_row(made)
    assert not row.good and row.note.startswith("idefics3.jinja, ") and row.held == 57 - 8


def test_an_injected_control_token_falls_short(monkeypatch):
    row = area.injection_row(CASES["flags"], 5, 0)
    assert row.good and row.of > 500 and row.note == "3 added tokens"
    name = Encoder._name
    monkeypatch.setattr(
        Encoder,
        "_name",
        lambda self, text, base: name(self, template_text(str.__str__(text)), base),
    )
    row = area.injection_row(CASES["flags"], 5, 0)
    assert not row.good and "brings control tokens" in row.note
