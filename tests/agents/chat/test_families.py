import json
import re

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from turngym.agents.chat import template as module
from turngym.agents.chat.chat import Chat, check_fit
from turngym.agents.chat.template import FAMILIES, TODAY, Template, TemplateError
from turngym.agents.models.folder import template_digest
from turngym.envs.registry import make

SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
CONTROL = r"<[|｜][^<>|｜\s]+[|｜]>|</?(?:think|tool_call|tool_response|start_of_turn|end_of_turn)>|<[be]os>"
KNOWN = {
    "qwen2_5.jinja": "Qwen2.5",
    **dict.fromkeys(
        ["qwen3.jinja", "qwen3_nonthinking.jinja", "qwen3_instruct_2507.jinja"], "Qwen3"
    ),
    **dict.fromkeys(["llama3.jinja", "llama3_1.jinja", "llama3_2.jinja"], "Llama 3"),
    **dict.fromkeys(["gemma.jinja", "gemma3.jinja"], "Gemma"),
    "deepseekv3.jinja": "DeepSeek-R1",
}
REWRITING = {"qwen3.jinja", "qwen3_nonthinking.jinja"}
TOOL = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Run <b>code</b>.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
        },
    },
}
# The system prompt stands in front of the last question, so that each answer moves it.
MOVING = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' }}"
    "{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}"
    "{{ m.content + '[/INST]' }}{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}"
    "{% elif m.role != 'system' %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}"
)
# Earlier thoughts are dropped, and each turn opens one; the last turn keeps its own.
THINKING = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ '<｜Assistant｜>' }}"
    "{{ m.content if loop.last else m.content.split('</think>')[-1] }}{{ eos_token }}"
    "{% else %}{{ '<｜User｜>' + m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"
)


def say(role, content):
    return {"role": role, "content": content}


def letters(*sources):
    """A tokenizer of one token a byte that knows the control tokens of the templates."""
    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    found = {token for source in sources for token in re.findall(CONTROL, source)} | set(
        SPECIAL.values()
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in sorted(found)])
    return tokenizer


@pytest.fixture
def known(monkeypatch):
    """Make a template one of a known family."""

    def add(source, family):
        table = {**FAMILIES, family: [*FAMILIES[family], template_digest(source)]}
        monkeypatch.setattr(module, "FAMILIES", table)
        return Template(source, SPECIAL, family)

    return add


def test_stock_templates_are_known_by_their_hash(chat_templates):
    found = {name: Template(source, SPECIAL).family for name, source in chat_templates.items()}
    assert {name: family for name, family in found.items() if family} == KNOWN
    source = chat_templates["qwen3.jinja"]
    assert (
        Template(source.rstrip("\n") + "\n\n").family == "Qwen3"
        and Template(" " + source).family == ""
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KNOWN))
@pytest.mark.parametrize("tools", [(), (TOOL,)], ids=["no tools", "tools"])
def test_the_first_turn_has_the_tokens_of_the_stock_template(
    chat_templates, qwen_folder, name, tools
):
    """The second source is transformers, with the real tokenizer for Qwen's templates."""
    source = chat_templates[name]
    small = not name.startswith("qwen")
    tokenizer = (
        letters(source) if small else Tokenizer.from_file(str(qwen_folder / "tokenizer.json"))
    )
    chat = Chat(tokenizer, Template(source, SPECIAL if small else {}, name))
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **(SPECIAL if small else {}))
    options = {
        "tools": list(tools) or None,
        "chat_template": source,
        "strftime_now": TODAY.strftime,
    }
    for opening in (
        [say("user", "2 < 3 两?")],
        [say("system", "Think. "), say("user", "2 < 3 两?")],
    ):
        stock = opening
        if opening[0]["role"] == "system" and name == "gemma.jinja":  # which refuses system prompts
            stock = [say("user", "Think. \n\n2 < 3 两?")]
        ids = theirs.apply_chat_template(
            stock, add_generation_prompt=True, return_dict=False, **options
        )
        assert chat.prompt(opening, tools).tolist() == ids


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_later_turns_follow_as_the_stock_template_writes_them(chat_templates, name):
    """Where the template keeps earlier turns, the whole path is its rendering; elsewhere what follows each turn is."""
    source = chat_templates[name]
    chat = Chat(letters(source), Template(source, SPECIAL, name))
    roles = [role for role in ("user", "tool") if not chat.template.refuses(role)]
    assert roles == (["user"] if KNOWN[name] in ("Gemma", "DeepSeek-R1") else ["user", "tool"])
    for role in roles:
        talk = [say("user", "q")]
        path = str.__str__(chat.template.render(talk, generate=True))
        for turn, content in enumerate(("<think>\nhm\n</think>\n\nyes", "plain", "no")):
            answer = say(role, f"to {turn}")
            talk += [say("assistant", content), answer]
            follows = str.__str__(chat.template.after_turn([answer]))
            path += content + follows
            whole = str.__str__(chat.template.render(talk, generate=True))
            assert whole.endswith(follows)
        if name not in REWRITING and not chat.opened:
            assert path == whole


def test_a_system_prompt_that_moves_is_laid_once(known):
    opening = [say("system", "s"), say("user", "q")]
    assert "in another way" in Template(MOVING, SPECIAL).refuses("user", opening)
    template = known(MOVING, "Mistral")
    assert template.refuses("user", opening) == ""
    assert template.render(opening, generate=True) == "<bos>[INST] s\n\nq[/INST]"
    assert template.after_turn([say("user", "r")]) == "<eos>[INST] r[/INST]"
    assert "no tool" in template.refuses("tool", opening)


def test_thoughts_that_are_dropped_later_stay_in_the_path(known):
    assert "</think>" in Template(THINKING, SPECIAL).refuses("user")
    template = known(THINKING, "DeepSeek-R1")
    assert template.refuses("user") == "" and template.opened == "<think>\n"
    assert template.after_turn([say("user", "r")]) == "<eos><｜User｜>r<｜Assistant｜><think>\n"


def test_an_answer_that_is_written_otherwise_later_is_refused_in_a_known_family(known):
    source = THINKING.replace(
        "'<｜User｜>' +", "'<｜User｜>' + ('again ' if loop.index > 4 else '') +"
    )
    assert (
        known(source, "DeepSeek-R1").refuses("user")
        == "after a later turn it writes them in another way"
    )


def test_a_system_prompt_stands_before_the_question_where_the_template_takes_none(chat_templates):
    gemma = Template(chat_templates["gemma.jinja"], SPECIAL, "gemma")
    assert not gemma.takes_system
    text = gemma.render([say("system", "s"), say("user", "q"), say("assistant", "a")])
    assert (
        text
        == "<bos><start_of_turn>user\ns\n\nq<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n"
    )
    check_fit(gemma, make("turngym/Math-v0"))
    with pytest.raises(
        TemplateError, match=r"gemma cannot render the roles system, assistant: System role"
    ):
        gemma.render([say("system", "s"), say("assistant", "a")])


def test_a_file_takes_the_place_of_the_folders_template(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "config", "bos_token": "<s>"})
    )
    (tmp_path / "mine").write_text("{{ bos_token }} mine")
    template = Template.from_folder(tmp_path, tmp_path / "mine")
    assert (template.render([]), template.name) == ("<s> mine", str(tmp_path / "mine"))
