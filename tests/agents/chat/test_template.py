import json

import pytest
from tokenizers import Tokenizer, models

from turngym.agents.chat.template import TODAY, Template, TemplateError

SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "python",
            "description": 'Run <b>code</b> & "see" é',
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string"}},
                "required": ["code"],
            },
        },
    }
]
THOUGHT = "<think>\nhm\n</think>\n\nyes"
CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Of the templates of real models, those that are refused; the first take text only as lists of parts.
REFUSED = {
    *("idefics3.jinja", "idefics3_training.jinja", "llava_next.jinja", "llava_next_training.jinja"),
    *("phi3.jinja", "phi3_training.jinja", "phi3_5.jinja", "phi3_5_training.jinja"),
}
# Of the accepted ones, those that cannot carry answers of a role, whatever the policy says.
NO_USER = {
    *(
        "gptoss.jinja",
        "gptoss_training.jinja",
        "glm4moe.jinja",
        "glm4moe_training.jinja",
        "lfm2_2_5.jinja",
    ),
    *("nemotron_3_nano.jinja", "nemotron_3_nano_training.jinja", "nemotron_3_super.jinja"),
    *(
        "nemotron_3_super_training.jinja",
        "nemotron_3_ultra.jinja",
        "nemotron_3_ultra_training.jinja",
    ),
    *("qwen3_5_nothink.jinja", "qwen3_5_think.jinja", "qwen3_6.jinja"),
}
NO_TOOL = {
    *("cohere.jinja", "cohere_training.jinja", "cohere2.jinja", "cohere2_training.jinja"),
    *("gemma.jinja", "gemma_training.jinja", "gemma3.jinja", "gemma3_training.jinja"),
    *(
        "diffusion_gemma.jinja",
        "diffusion_gemma_training.jinja",
        "deepseekv3.jinja",
        "deepseekv3_training.jinja",
    ),
    *("gptoss.jinja", "gptoss_training.jinja"),
}
# And those whose turns open with a thought.
THINKING = {
    *(
        "deepseekv3.jinja",
        "deepseekv3_training.jinja",
        "nemotron_3_nano.jinja",
        "nemotron_3_nano_training.jinja",
    ),
    *("nemotron_3_super.jinja", "nemotron_3_super_training.jinja", "nemotron_3_ultra.jinja"),
    *("nemotron_3_ultra_training.jinja", "qwen3_5_think.jinja", "qwen3_5_think_training.jinja"),
    *("qwen3_6.jinja", "qwen3_6_training.jinja"),
}
# Those that write what an assistant said just as it is, whether thought or not.
VERBATIM = {
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
    [
        say("system", "s"),
        say("user", "q"),
        say("assistant", " a "),
        say("user", "b"),
        say("assistant", THOUGHT),
    ],
    [
        say("user", "q"),
        say("assistant", "a"),
        say("tool", "r<&>é"),
        say("assistant", THOUGHT),
        say("tool", "s\n"),
    ],
]


@pytest.fixture(scope="module")
def made(chat_templates):
    """All real templates, by name."""
    return {name: Template(source, SPECIAL, name) for name, source in chat_templates.items()}


@pytest.mark.slow
def test_every_real_template_renders_as_transformers_does(chat_templates, made):
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)
    compared = refused = 0
    for name, source in chat_templates.items():
        template = made[name]
        for talk in TALKS:
            for tools in ([], TOOLS):
                for generate in (False, True):
                    options = {
                        "tools": tools or None,
                        "add_generation_prompt": generate,
                        "tokenize": False,
                    }
                    options["strftime_now"] = TODAY.strftime
                    shown = talk
                    if talk[0]["role"] == "system" and not template.takes_system:
                        shown = [
                            say("user", f"{talk[0]['content']}\n\n{talk[1]['content']}"),
                            *talk[2:],
                        ]
                    try:
                        theirs = tokenizer.apply_chat_template(
                            shown, chat_template=source, **options
                        )
                    except Exception:
                        with pytest.raises(TemplateError):
                            template.render(talk, tools, generate=generate)
                        refused += 1
                        continue
                    assert template.render(talk, tools, generate=generate) == theirs, name
                    compared += 1
    assert compared > 800 and refused > 0


def test_of_the_real_templates_those_that_rewrite_earlier_turns_are_refused(made):
    refused = set()
    for name, template in made.items():
        if template.family:  # whose continuation is known
            template.check()
            continue
        try:
            template.check()
        except TemplateError as error:
            assert str(error).startswith(name)
            refused.add(name)
    assert refused == REFUSED and len(made) == 57


@pytest.mark.slow
def test_what_the_accepted_templates_can_carry_is_told(made):
    lacks = {"user": set(), "tool": set()}
    for name in set(made) - REFUSED:
        for role, names in lacks.items():
            template = made[name]
            reason = template.refuses(role)
            assert template.refuses(role, tools=TOOLS) == reason
            names |= {name} if reason else set()
    assert lacks == {"user": NO_USER, "tool": NO_TOOL}


@pytest.mark.parametrize(
    ("name", "role", "words"),
    [
        (
            "qwen3_5_think.jinja",
            "user",
            "rewrites earlier turns: adding messages after an assistant's turn turns",
        ),
        ("glm4moe.jinja", "user", "adding message 3 (user) turns 'thought</think>"),
        (
            "gemma.jinja",
            "tool",
            "cannot render the roles user, assistant, tool: Conversation roles must alternate",
        ),
        ("cohere2.jinja", "tool", "it does not write them"),
        ("deepseekv3.jinja", "tool", "after a later turn it writes them in another way"),
        ("gptoss.jinja", "tool", "no previous assistant message with a tool call"),
    ],
)
def test_the_reason_is_told(made, name, role, words):
    assert words in made[name].refuses(role)


def test_an_opening_that_a_template_cannot_write_is_told(made):
    template = Template(
        "{{ raise_exception('one message') if messages[1].role == 'user' }}" + CHATML
    )
    assert template.refuses("user") == ""
    assert "one message" in template.refuses("user", [say("user", "s"), say("user", "q")])


def test_a_thought_that_a_turn_opens_is_known(made):
    opened = {name: made[name].opened for name in set(made) - REFUSED}
    assert {name for name, thought in opened.items() if thought} == THINKING
    assert {opened[name] for name in THINKING} == {"<think>\n"}
    assert (
        made["qwen3_5_nothink.jinja"]
        .render([say("user", "q")], generate=True)
        .endswith(
            "<think>\n\n</think>\n\n"  # opened and closed
        )
    )


def test_the_day_is_always_the_same(made):
    """A prompt that holds the date would be another one after midnight, and on the day a run is resumed."""
    template = made["llama3_1.jinja"]
    assert "Today Date: 26 Jul 2024" in template.render([say("user", "q")])
    assert Template("{{ strftime_now('%Y-%m-%d') }}").render([]) == "2024-07-26"


@pytest.mark.parametrize("name", sorted(VERBATIM))
def test_pieces_of_a_conversation_make_up_the_whole(made, name):
    template = made[name]
    roles = [role for role in ("user", "tool") if not template.refuses(role)]
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
        Template(
            chat_templates["qwen3.jinja"] + "{# another version #}", name="/models/qwen3"
        ).check()
    message = str(caught.value)
    assert message.startswith(
        "/models/qwen3 has a chat template that is not prefix-preserving: adding message 3 (tool)"
    )
    assert (
        "<think>" in message
        and "put a training variant" in message
        and "into chat_template.jinja" in message
    )
    assert (
        "--chat-template" in message
        and "Qwen3, Llama 3, Mistral, Gemma, SmolLM2, DeepSeek-R1" in message
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "{% for m in messages %}{{ m.role }}{% endfor %}",
            "does not write an assistant's content",
        ),
        (
            CHATML.replace("<|end|>", "{% if loop.last %}<|end|>{% endif %}"),
            "adding message 3 (tool) turns 'end|>' into 'tool|>",
        ),
        (CHATML + "{{ messages | length }}", "adding message 3 (tool) turns '2' into"),
        (
            "{% if messages[-1].role == 'tool' %}{{ raise_exception('no') }}{% endif %}{{ messages | length }}"
            + CHATML,
            "adding message 3 (user) turns '2<|user|>",
        ),
    ],
)
def test_what_cannot_hold_a_policys_turns_is_refused_with_the_reason(source, words):
    with pytest.raises(TemplateError) as caught:
        Template(source, name="T").check()
    assert str(caught.value).startswith("T ") and words in str(caught.value)


def test_a_call_may_be_written_from_a_string_of_arguments():
    """As TRL does: where a template joins the arguments to text, it is asked again with a string."""
    source = "{% for m in messages %}{{ m.content + '' }}{% for c in m.tool_calls %}{{ '(' + c.function.arguments + ')' }}"
    template = Template(source + "{% endfor %}{% endfor %}")
    before, after = template.answered_call()
    assert (before, after) == ("question({})", "question({})result")
    strict = Template("{{ raise_exception('no') if messages[-1].role == 'tool' }}" + CHATML)
    assert strict.answered_call() is None
    strict.check()
    picky = Template(
        "{{ raise_exception('no') if messages[1].tool_calls[0].function.arguments is mapping }}"
        + CHATML
    )
    assert picky.answered_call() is None  # it refuses the call of itself, so it is not asked again


def test_a_turn_may_open_otherwise_than_it_is_rendered():
    """What the model saw is what was laid, so that a template may open turns (with a thought, say) as it likes."""
    template = Template(CHATML.replace("<|assistant|>", "<|bot|>"))
    template.check()
    assert (
        not template.refuses("user")
        and template.after_turn([say("user", "b")]) == "<|end|><|user|>b<|end|><|bot|>"
    )


def test_what_holds_for_some_turns_or_tools_only_is_refused():
    late = Template(CHATML.replace("<|end|>", "<|end|>{% if loop.index == 5 %}!{% endif %}"))
    late.check()
    assert late.refuses("user") == "after a later turn it writes them in another way"
    untooled = Template("{{ raise_exception('no tools') if tools }}" + CHATML)
    untooled.check()
    assert not untooled.refuses("tool") and "no tools" in untooled.refuses("tool", tools=TOOLS)


def test_a_template_that_is_no_jinja_is_named():
    with pytest.raises(
        TemplateError, match=r"/models/x has a chat template that is not jinja \(line 2\): .*endfor"
    ):
        Template("\n{% endfor %}", name="/models/x")


def test_a_template_may_not_reach_into_python():
    with pytest.raises(TemplateError, match="unsafe"):
        Template("{{ messages.__class__.__mro__ }}").render([])
    with pytest.raises(TemplateError, match="append"):
        Template("{{ messages.append(1) }}").render([])


def test_a_roles_absence_is_told():
    strict = "{% if message.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    template = Template(CHATML.replace("%}<|{{", f"%}}{strict.replace('message', 'm')}<|{{{{", 1))
    assert not template.refuses("user") and template.refuses("tool")
    silent = Template(CHATML.replace("messages %}", "messages if m.role != 'tool' %}"))
    assert not silent.refuses("user") and silent.refuses("tool")


def test_messages_that_cannot_be_rendered_are_named():
    with pytest.raises(
        TemplateError,
        match="the chat template cannot render the roles system, user: no system here",
    ):
        Template("{{ raise_exception('no system here') }}").render(
            [say("system", "s"), say("user", "q")]
        )
    with pytest.raises(TemplateError, match="cannot render the roles user"):
        Template("{{ messages[0].content + 3 }}").render([say("user", "q")])
    with pytest.raises(TemplateError, match="cannot render the roles None: "):
        Template("{{ messages[0].content + 3 }}").render([{"content": "q"}])
    with pytest.raises(TemplateError, match=r"cannot render the roles user: .*zero"):
        Template("{{ 1 // (messages | length - 1) }}").render([say("user", "q")])


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
    "config",
    [None, {}, {"chat_template": None}, {"chat_template": [{"name": "rag", "template": "r"}]}],
)
def test_a_folder_without_a_template_is_named_with_the_fix(tmp_path, config):
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(FileNotFoundError) as caught:
        Template.from_folder(tmp_path)
    assert str(caught.value).startswith(
        f"{tmp_path} has no chat template: put one in chat_template.jinja"
    )


def test_whether_a_template_shows_tools_is_known(chat_templates):
    tool = {
        "type": "function",
        "function": {"name": "lookup", "description": "d", "parameters": {"type": "object"}},
    }
    assert Template(chat_templates["qwen2_5.jinja"]).shows([tool])
    assert not Template(chat_templates["llama3.jinja"], {"bos_token": "<s>"}).shows([tool])
    assert Template(chat_templates["llama3.jinja"], {"bos_token": "<s>"}).shows([])
    gemma = Template(chat_templates["gemma.jinja"], {"bos_token": "<s>"})
    assert not gemma.shows([tool], [say("user", "q")])  # it takes no system message


def test_what_the_template_wrote_is_known_by_character():
    text = Template(
        "<{{ bos_token }}>{{ messages[0].role }}:{{ messages[0].content }}", {"bos_token": "S"}
    ).render([say("user", "<S>")])
    assert (text, text.marks) == ("<S>user:<S>", "11111111000")
    sly = Template("{{ messages[0].role }}").render([say("<|end|>", "q")])
    assert sly.marks == "0" * 7  # a role is the template's word only where it is a name


def test_a_thought_that_the_template_opens_and_leaves_open_is_known(chat_templates):
    opened = {}
    for name in (
        "qwen3_5_think_training",
        "qwen3_6_training",
        "qwen3_5_nothink_training",
        "qwen2_5",
        "hermes chatml",
    ):
        source = next(text for key, text in chat_templates.items() if key.startswith(f"{name}.j"))
        opened[name] = Template(source, {"bos_token": "<s>", "eos_token": "</s>"}, name).opened
    assert opened == {
        "qwen3_5_think_training": "<think>\n",
        "qwen3_6_training": "<think>\n",
        "qwen3_5_nothink_training": "",
        "qwen2_5": "",
        "hermes chatml": "",
    }
