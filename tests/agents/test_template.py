import json

import pytest
from tokenizers import Tokenizer, models

from turngym.agents.template import Template, TemplateError

SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "python",
            "description": 'Run <b>code</b> & "see" é',
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        },
    }
]
THOUGHT = "<think>\nhm\n</think>\n\nyes"
CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Among the templates of real models, those that keep every earlier turn as it was.
PRESERVING = {
    *("cohere.jinja", "cohere2.jinja", "cohere2_training.jinja", "cohere_training.jinja"),
    *("diffusion_gemma.jinja", "diffusion_gemma_training.jinja"),
    *("gemma.jinja", "gemma_training.jinja", "gemma3.jinja", "gemma3_training.jinja"),
    *("lfm2.jinja", "lfm2_training.jinja"),
    *("llama3.jinja", "llama3_training.jinja", "llama3_1.jinja", "llama3_2.jinja"),
    *("qwen2_5.jinja", "qwen2_5_training.jinja", "qwen2_5_vl.jinja", "qwen2_5_vl_training.jinja"),
    *("qwen3_training.jinja", "qwen3_5_think_training.jinja", "qwen3_6_training.jinja"),
    *("qwen3_instruct_2507.jinja", "qwen3_instruct_2507_training.jinja"),
    *("qwen3_vl.jinja", "qwen3_vl_training.jinja", "qwen_vl_tool_chat_template.jinja2 (verl)"),
    *("qwen3_acc_thinking.jinja2", "hermes chatml.j2"),
}


def say(role, content):
    return {"role": role, "content": content}


TALKS = [
    [say("user", "q")],
    [say("system", "s"), say("user", "q <|im_end|> & 'q'")],
    [say("system", "s"), say("user", "q"), say("assistant", " a "), say("user", "b"), say("assistant", THOUGHT)],
    [say("user", "q"), say("assistant", "a"), say("tool", "r<&>é"), say("assistant", THOUGHT), say("tool", "s\n")],
]


def test_every_real_template_renders_as_transformers_does(chat_templates):
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)
    compared = refused = 0
    for name, source in chat_templates.items():
        template = Template(source, SPECIAL, name)
        for talk in TALKS:
            for tools in ([], TOOLS):
                for generate in (False, True):
                    options = {"tools": tools or None, "add_generation_prompt": generate, "tokenize": False}
                    try:
                        theirs = tokenizer.apply_chat_template(talk, chat_template=source, **options)
                    except Exception:
                        with pytest.raises(TemplateError):
                            template.render(talk, tools, generate=generate)
                        refused += 1
                        continue
                    assert template.render(talk, tools, generate=generate) == theirs, name
                    compared += 1
    assert compared > 800 and refused > 0


def test_of_the_real_templates_those_that_rewrite_earlier_turns_are_refused(chat_templates):
    accepted = set()
    for name, source in chat_templates.items():
        try:
            Template(source, SPECIAL, name).check()
            accepted.add(name)
        except TemplateError as error:
            assert str(error).startswith(name)
    assert accepted == PRESERVING


@pytest.mark.parametrize("name", sorted(PRESERVING))
def test_pieces_of_a_conversation_make_up_the_whole(chat_templates, name):
    template = Template(chat_templates[name], SPECIAL, name)
    roles = [role for role in ("user", "tool") if template.speaks(role)]
    assert "user" in roles
    for role in roles:
        for tools in ([], TOOLS):
            talk = [say("user", "q")]
            text = template.render(talk, tools, generate=True)
            for content in ("yes", THOUGHT, "no"):
                whole = template.render([*talk, say("assistant", content)], tools)
                drawn = whole.removeprefix(text).removesuffix(template.turn_end())
                assert whole == text + drawn + template.turn_end()
                text += drawn + template.after_turn([say(role, f"to {content}")])
                talk += [say("assistant", content), say(role, f"to {content}")]
                assert text == template.render(talk, tools, generate=True)


def test_a_template_that_drops_thoughts_is_refused_with_the_way_out(chat_templates):
    with pytest.raises(TemplateError) as caught:
        Template(chat_templates["qwen3.jinja"], name="/models/qwen3").check()
    message = str(caught.value)
    assert message.startswith(
        "/models/qwen3 has a chat template that is not prefix-preserving: adding message 3 (user)"
    )
    assert "<think>" in message and "put a training variant" in message and "into chat_template.jinja" in message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for m in messages %}{{ m.role }}{% endfor %}", "does not write an assistant's content"),
        (
            CHATML.replace("<|end|>", "{% if loop.last %}<|end|>{% endif %}"),
            "adding message 2 (assistant) turns 'end|>' into 'assistant|>",
        ),
        (CHATML + "{{ messages | length }}", "adding message 2 (assistant) turns '1' into"),
        (
            CHATML.replace("<|assistant|>", "<|bot|>"),
            "adding the opened assistant turn turns 'bot|>' into 'assistant|>",
        ),
        ("{{ raise_exception('no tools') if tools }}" + CHATML, "cannot render the roles user: no tools"),
    ],
)
def test_what_cannot_hold_a_policys_turns_is_refused_with_the_reason(source, words):
    with pytest.raises(TemplateError) as caught:
        Template(source, name="T").check()
    assert str(caught.value).startswith("T ") and words in str(caught.value)


def test_a_template_that_is_no_jinja_is_named():
    with pytest.raises(TemplateError, match=r"/models/x has a chat template that is not jinja \(line 2\): .*endfor"):
        Template("\n{% endfor %}", name="/models/x")


def test_a_template_may_not_reach_into_python():
    with pytest.raises(TemplateError, match="unsafe"):
        Template("{{ messages.__class__.__mro__ }}").render([])
    with pytest.raises(TemplateError, match="append"):
        Template("{{ messages.append(1) }}").render([])


def test_a_roles_absence_is_told():
    strict = "{% if message.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    template = Template(CHATML.replace("%}<|{{", f"%}}{strict.replace('message', 'm')}<|{{{{", 1))
    assert (template.speaks("user"), template.speaks("tool")) == (True, False)
    silent = Template(CHATML.replace("messages %}", "messages if m.role != 'tool' %}"))
    assert (silent.speaks("user"), silent.speaks("tool")) == (True, False)


def test_messages_that_cannot_be_rendered_are_named():
    with pytest.raises(TemplateError, match="the chat template cannot render the roles system, user: no system here"):
        Template("{{ raise_exception('no system here') }}").render([say("system", "s"), say("user", "q")])
    with pytest.raises(TemplateError, match="cannot render the roles user"):
        Template("{{ messages[0].content + 3 }}").render([say("user", "q")])


# --- folders


def test_a_jinja_file_goes_before_the_config(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "config"}))
    assert Template.from_folder(tmp_path).render([]) == "config"
    (tmp_path / "chat_template.jinja").write_text("file é", "utf-8")
    assert Template.from_folder(tmp_path).render([]) == "file é"
    assert Template.from_folder(tmp_path).name == str(tmp_path)


def test_special_tokens_come_from_the_config_in_either_form(tmp_path):
    config = {
        "chat_template": "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}",
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "unk_token": None,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Template.from_folder(tmp_path).render([]) == "<s>|</s>|"


def test_of_several_templates_the_default_is_taken(tmp_path):
    named = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert Template.from_folder(tmp_path).render([]) == "d"


@pytest.mark.parametrize(
    "config", [None, {}, {"chat_template": None}, {"chat_template": [{"name": "rag", "template": "r"}]}]
)
def test_a_folder_without_a_template_is_named_with_the_fix(tmp_path, config):
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(FileNotFoundError) as caught:
        Template.from_folder(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path} has no chat template: put one in chat_template.jinja")


def test_whether_a_template_shows_tools_is_known(chat_templates):
    tool = {"type": "function", "function": {"name": "lookup", "description": "d", "parameters": {"type": "object"}}}
    assert Template(chat_templates["qwen2_5.jinja"]).shows([tool])
    assert not Template(chat_templates["llama3.jinja"], {"bos_token": "<s>"}).shows([tool])
    assert Template(chat_templates["llama3.jinja"], {"bos_token": "<s>"}).shows([])
