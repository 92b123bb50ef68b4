"""A model is served as it was trained: its exported template renders conversations to the tokens that training saw."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from turngym.agents.chat.chat import Chat
from turngym.agents.chat.serving import as_trained, served, trained_text
from turngym.agents.chat.template import CONTENTS, Template, TemplateError
from turngym.agents.models.resolve import TINY, Source
from turngym.tests.agents.chat.test_chat import CALL, say, tool_schema

SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
THOUGHT = "<think>\nFirst I add.\n</think>\n\n"
STRIPS = (
    "{% for m in messages %}{% set c = m['content'] %}{% if m['role'] == 'assistant' %}"
    "{% set c = c.split('</think>')[-1].lstrip() %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + c + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def folder(qwen_folder, tmp_path):
    """A copy of the tokenizer's folder, whose template a test chooses."""

    def make(text: str) -> Source:
        copy = Path(shutil.copytree(qwen_folder, tmp_path / "base"))
        settings = json.loads((copy / "tokenizer_config.json").read_text())
        settings["chat_template"] = text
        (copy / "tokenizer_config.json").write_text(json.dumps(settings))
        return Source(copy)

    return make


def exported(source: Source) -> AutoTokenizer:
    """The tokenizer of a folder that holds what an export writes."""
    template = served(source)
    assert template is not None
    (source.folder / "chat_template.jinja").write_text(template.source)
    return AutoTokenizer.from_pretrained(source.folder)


@pytest.mark.parametrize(
    ("name", "role", "stock_differs"),
    [
        pytest.param("qwen3.jinja", "user", True, marks=pytest.mark.slow),
        # Within one question the stock template keeps thoughts.
        pytest.param("qwen3.jinja", "tool", False, marks=pytest.mark.slow),
        pytest.param("qwen3_nonthinking.jinja", "tool", True, marks=pytest.mark.slow),
        pytest.param("qwen3_nonthinking.jinja", "user", True, marks=pytest.mark.slow),
        pytest.param("qwen3_5_think.jinja", "tool", False, marks=pytest.mark.slow),
        pytest.param("qwen2_5.jinja", "tool", False, marks=pytest.mark.slow),
        pytest.param("qwen2_5.jinja", "user", False, marks=pytest.mark.slow),
    ],
)
def test_the_exported_tokenizer_gives_the_token_ids_that_training_saw(
    folder, chat_templates, name, role, stock_differs
):
    source = folder(chat_templates[name])
    chat = Chat.from_folder(source.folder)
    (end,) = chat.end_ids
    talk, tools = [say("system", "s"), say("user", "q")], [tool_schema()]
    path = chat.prompt(talk, tools).tolist()
    for text, ended in [
        (THOUGHT + CALL, []),
        (THOUGHT + "Let me see.\n" + CALL, [end]),
        (f"{THOUGHT}\\boxed{{4}}", [end]),
    ]:
        drawn = [
            *chat.tokenizer.encode(text.removeprefix(chat.opened), add_special_tokens=False).ids,
            *ended,
        ]
        answer = [say(role, f"heard {len(path)}")]
        path += drawn + chat.reply(answer, drawn[-1]).tolist()
        talk += [say("assistant", text), *answer]
    shown = {"tools": tools, "add_generation_prompt": True, "return_dict": False}
    stock = AutoTokenizer.from_pretrained(source.folder).apply_chat_template(talk, **shown)
    assert exported(source).apply_chat_template(talk, **shown) == path
    assert (stock != path) == stock_differs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3.jinja", "qwen3_5_think.jinja"])
def test_a_client_may_hand_thoughts_and_calls_apart_from_the_text(folder, chat_templates, name):
    """As servers with parsers of reasoning and calls give them back."""
    source = folder(
        chat_templates["qwen3.jinja"] if name == "qwen3.jinja" else chat_templates[name]
    )
    tokenizer, chat = exported(source), Chat.from_folder(source.folder)
    function = {"name": "python", "arguments": {"code": "print(2)"}}
    apart = {"role": "assistant", "content": "", "reasoning_content": "First I add."}
    apart |= {"tool_calls": [{"type": "function", "function": function}]}
    opening, answer = [say("user", "q")], [say("tool", "2")]
    ask = {"add_generation_prompt": True, "tokenize": False}
    text = tokenizer.apply_chat_template([*opening, apart, *answer, say("user", "and?")], **ask)
    whole = tokenizer.apply_chat_template([*opening, apart], tokenize=False)
    kept = str(chat.template.render(opening, generate=True)).removesuffix(chat.opened)
    assert text.startswith(whole.removesuffix("<|im_end|>\n")) and whole.startswith(kept)
    assert whole.count("<think>\nFirst I add.\n</think>") == 1 and "print(2)" in whole
    if name == "qwen3.jinja":
        call = f"<tool_call>\n{json.dumps(function)}\n</tool_call>"
        written = [*opening, say("assistant", THOUGHT + call), *answer, say("user", "and?")]
        assert text == tokenizer.apply_chat_template(written, **ask)


def test_a_turn_without_a_thought_has_none_where_the_template_opens_one(folder, chat_templates):
    tokenizer = exported(folder(chat_templates["qwen3_5_think.jinja"]))
    talk = [say("user", "q"), say("assistant", "plain"), say("user", "and?")]
    text = tokenizer.apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
    assert "assistant\nplain<|im_end|>" in text and text.endswith("assistant\n<think>\n")


@pytest.mark.slow
def test_every_template_that_training_takes_can_be_served_as_trained(chat_templates):
    """By transformers' own jinja: turns with thoughts, calls and blanks, and answers of each role it carries."""
    compared = wrapped = 0
    for name, text in chat_templates.items():
        template = Template(text, SPECIAL, name)
        try:
            template.check()
        except TemplateError:
            continue
        made = as_trained(template)
        Template(made, SPECIAL, name)  # turngym itself reads it
        wrapped += 1
        for role in ("tool", "user"):
            if template.refuses(role):
                continue
            for content in (*CONTENTS, " blanks \n"):
                said = content if content.startswith(template.opened) else template.opened + content
                talk = [
                    say("system", "s"),
                    say("user", "q"),
                    say("assistant", said),
                    say(role, "r"),
                ]
                talk += (
                    [say("assistant", said), say(role, "r"), say(role, "more")]
                    if role == "tool"
                    else []
                )
                options = {
                    "chat_template": made,
                    "add_generation_prompt": True,
                    "tools": [tool_schema()],
                    **SPECIAL,
                }
                options["tools"] = options["tools"] if template.shows(options["tools"]) else None
                ((text_found,), _) = render_jinja_template([talk], **options)
                assert text_found == trained_text(template, talk, options["tools"] or ()), (
                    name,
                    role,
                    content,
                )
                compared += 1
    assert wrapped > 30 and compared > 200


@pytest.mark.parametrize("name", ["qwen2_5.jinja", "qwen3_instruct_2507.jinja"])
def test_a_template_that_changes_nothing_is_left_as_it_is(folder, chat_templates, name):
    template = served(folder(chat_templates[name]))
    assert (
        template is not None
        and template.source == chat_templates[name]
        and template.differences == ()
    )


def test_the_tiny_policys_template_is_left_as_it_is():
    template = served(Source(TINY))
    assert template is not None and template.differences == ()


def test_what_differs_is_said(folder, chat_templates, tmp_path):
    thoughts = served(folder(chat_templates["qwen3.jinja"]))
    assert thoughts is not None and len(thoughts.differences) == 1
    assert thoughts.differences[0].startswith(
        "as training saw it: earlier turns keep their thoughts as they were drawn"
    )
    dates = Template(chat_templates["llama3_2.jinja"], SPECIAL)
    assert "26 Jul 2024" in as_trained(dates)
    (tmp_path / "mine.jinja").write_text(STRIPS)
    mine = served(Source(tmp_path / "base", template=tmp_path / "mine.jinja"))
    assert (
        mine is not None
        and "--chat-template" in mine.differences[0]
        and "thoughts" in mine.differences[1]
    )


@pytest.mark.slow
def test_a_template_that_always_removes_thoughts_is_served_with_them(folder):
    """It is prefix-preserving, so training takes it, and lays thoughts as they were drawn."""
    source = folder(STRIPS)
    talk = [say("user", "q"), say("assistant", THOUGHT + "4"), say("user", "and?")]
    stock = AutoTokenizer.from_pretrained(source.folder)
    assert THOUGHT not in stock.apply_chat_template(talk, tokenize=False)
    text = exported(source).apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert text == trained_text(Template(STRIPS), talk) and THOUGHT in text


def test_a_folder_without_a_template_is_served_without(tmp_path):
    assert served(Source(tmp_path)) is None
