import pytest

from turngym.agents.chat import Chat
from turngym.tests.verify.templates import encoding

# Of every family of templates one, and those whose thoughts or closings are handled in a way of their own.
SOME = (
    "cohere2 deepseekv3 diffusion_gemma gemma glm4moe gptoss lfm2 lfm2_2_5 llama3_1 nemotron_3_ultra qwen2_5 "
    "qwen3_training qwen3_5_think qwen3_5_nothink_training qwen3_6_training phi3"
)


@pytest.fixture(scope="module")
def some(chat_templates):
    return {f"{name}.jinja": chat_templates[f"{name}.jinja"] for name in SOME.split()}


def test_what_is_laid_is_what_transformers_renders(some):
    done = list(encoding.conversations(some, (encoding.TOOL,)))
    assert [one.what for one in done if one.fault] == []
    assert (len(done), sum(one.verbatim for one in done)) == (61, 45)
    assert not any("phi3" in one.what for one in done)  # refused
    few = {name: some[name] for name in ("deepseekv3.jinja", "llama3_1.jinja", "qwen3_6_training.jinja")}
    assert [(one.fault, one.verbatim) for one in encoding.conversations(few, ())].count(("", True)) == 2 + 6 + 2


def fault(chat_templates, name, monkeypatch, **changed):
    for attribute, value in changed.items():
        monkeypatch.setattr(Chat, attribute, value)
    found = {one.fault for one in encoding.conversations({name: chat_templates[name]}, ())}
    monkeypatch.undo()
    return found


def test_a_path_that_says_something_else_is_found(chat_templates, monkeypatch):
    """A prompt, a reply, the end of a turn that is not the template's."""
    name, prompt, reply = "qwen2_5.jinja", Chat.prompt, Chat.reply
    assert fault(chat_templates, name, monkeypatch) == {""}
    wrong = {
        "the prompt is not what is rendered": {"prompt": lambda self, *said: prompt(self, *said)[:-1]},
        "the answer to turn 0 is not what is rendered": {"reply": lambda self, *said: reply(self, *said)[:-1]},
        "the end of turn 0 is not what is rendered": {"reply": lambda self, told, last: reply(self, told, None)},
    }
    for words, changed in wrong.items():
        assert words in fault(chat_templates, name, monkeypatch, **changed), words


def test_the_row_says_how_many_are_whole_renderings(some, monkeypatch):
    few = {name: some[name] for name in ("qwen2_5.jinja", "qwen3_training.jinja")}
    row = encoding.lay_row(few, ())
    assert (row.good, row.held, row.of) == (True, 12, 12) and row.note.startswith("8 are whole renderings")
    monkeypatch.setattr(Chat, "prompt", lambda self, *said: Chat.reply(self, said[0], None))
    row = encoding.lay_row(few, ())
    assert row.held == 0 and row.note.startswith("qwen2_5.jinja, answers by tool: the prompt is not")


def test_a_family_knows_the_control_tokens_of_all_its_templates(chat_templates):
    tokenizer = encoding.family(chat_templates)
    for token in (
        "<|im_end|>",
        "<|eot_id|>",
        "<｜tool▁calls▁begin｜>",
        "<end_of_turn>",
        "<think>",
        "<|END_OF_TURN_TOKEN|>",
    ):
        assert tokenizer.token_to_id(token) is not None, token
