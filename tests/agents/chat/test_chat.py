import json
import shutil

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from turngym.agents.chat import chat as chat_module
from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import Template, TemplateError
from turngym.agents.models.resolve import TINY
from turngym.envs.registry import make

TEMPLATES = [
    "qwen2_5.jinja",
    "qwen3_training.jinja",
    "qwen3_instruct_2507.jinja",
    "hermes chatml.j2",
    "llama3_1.jinja",
]
LLAMA = [
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
]
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
ROLES = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
THOUGHT = "<think>\nhm\n</think>\n\nSo "
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "1+1"}}\n</tool_call>'


def say(role, content):
    return {"role": role, "content": content}


def tool_schema(description="Run it.", key="code"):
    parameters = {
        "type": "object",
        "properties": {key: {"type": "string", "description": 'a <b> & "c"'}},
    }
    return {
        "type": "function",
        "function": {"name": "python", "description": description, "parameters": parameters},
    }


def small(*tokens):
    """A byte-level tokenizer without merges, with these added tokens."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [token if isinstance(token, AddedToken) else AddedToken(token) for token in tokens]
    )
    return tokenizer


@pytest.fixture(scope="module")
def qwen(qwen_folder):
    return Tokenizer.from_file(str(qwen_folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def chats(qwen, chat_templates):
    """A chat for each template of `TEMPLATES`."""
    found = {name: (qwen, {}) for name in TEMPLATES} | {
        "llama3_1.jinja": (small(*LLAMA), {"bos_token": LLAMA[0]})
    }
    return {
        name: Chat(model, Template(chat_templates[name], special, name))
        for name, (model, special) in found.items()
    }


@pytest.fixture(scope="module")
def theirs(chats, qwen_folder):
    """For each template, the tokenizer as transformers has it."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    llama = PreTrainedTokenizerFast(
        tokenizer_object=chats["llama3_1.jinja"].tokenizer, bos_token=LLAMA[0]
    )
    return dict.fromkeys(TEMPLATES, AutoTokenizer.from_pretrained(qwen_folder)) | {
        "llama3_1.jinja": llama
    }


def controls(chat, tokens):
    """The added tokens in `tokens`, in order."""
    added = chat.tokenizer.get_added_tokens_decoder()
    return [int(token) for token in tokens if int(token) in added]


def whole(chat, messages, tools=(), generate=True):
    """The encoding of a rendered conversation, as any tokenizer gives it."""
    return chat.tokenizer.encode(
        chat.template.render(messages, tools, generate=generate), add_special_tokens=False
    ).ids


# --- the tokenizer of the fixture


def reference(ranks, text):
    """Byte-pair encoding by ranks: in every word of Qwen's pattern the pair of the lowest rank is joined first."""
    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    ids = []
    for word in regex.findall(words, text):
        parts = [bytes([byte]) for byte in word.encode()]
        while len(parts) > 1:
            rank, i = min(
                (ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1)
            )
            if rank == 1 << 30:
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        ids += [ranks[part] for part in parts]
    return ids


def test_the_fixture_encodes_as_the_ranks_do(qwen, qwen_ranks, shared_data, chat_templates):
    rows = (shared_data / "math" / "gsm8k_test.jsonl").read_text("utf-8").splitlines()[:60]
    texts = [
        "",
        "Hello world",
        "  two\n\n  lines\t\r\n",
        "I'VE 12345 naïve cafés",
        "两个苹果🍎🍏 θ≤π/2",
        "a" * 100,
        *rows,
    ]
    texts += [
        chat_templates["llama3_1.jinja"],
        "def f(x):\n    return x**2  # ok\n",
        "\0\x7f\u2028\ufeff\U0001f468\u200d",
    ]
    for text in texts:
        assert qwen.encode(text, add_special_tokens=False).ids == reference(qwen_ranks, text)
        assert qwen.decode(reference(qwen_ranks, text)) == text
    assert qwen.encode("Hello world", add_special_tokens=False).ids == [
        9707,
        1879,
    ]  # as the released models have it
    assert qwen.get_vocab_size() == 151_669


# --- against transformers


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt_is_what_transformers_makes_of_it(chats, theirs, chat_templates, name):
    options = {
        "chat_template": chat_templates[name],
        "add_generation_prompt": True,
        "return_dict": False,
    }
    for system in ([], [say("system", "Be brief.")]):
        for tools in ([], [tool_schema()], [tool_schema(), tool_schema("Other é")]):
            talk = [
                *system,
                say("user", "What is 2 < 3?\n 两个"),
                say("assistant", "a"),
                say("user", "b"),
            ]
            expected = theirs[name].apply_chat_template(talk, tools=tools or None, **options)
            found = chats[name].prompt(talk, tools)
            assert (found.tolist(), found.dtype) == (expected, np.int32)


def test_a_model_folder_opens_an_episode_as_transformers_would(theirs, qwen_folder):
    _, info = make("turngym/MathPython-v0").reset(seed=0)
    options = {"tools": info["tools"], "add_generation_prompt": True, "return_dict": False}
    chat = Chat.from_folder(qwen_folder)
    expected = theirs["qwen2_5.jinja"].apply_chat_template(info["messages"], **options)
    assert chat.prompt(info["messages"], info["tools"]).tolist() == expected
    assert chat.end_ids == {theirs["qwen2_5.jinja"].eos_token_id}


# --- the pieces of a path


@pytest.mark.parametrize("role", ["tool", "user"])
@pytest.mark.parametrize("tools", [[], [tool_schema()]], ids=["bare", "tools"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_path_laid_end_to_end_is_the_encoding_of_the_conversation(chats, name, tools, role):
    """Turns may end in the end token, in a closer behind which nothing was drawn, or in the middle of a word."""
    chat = chats[name]
    (end,) = chat.end_ids
    thought = (
        THOUGHT if name == "qwen3_training.jinja" else ""
    )  # it writes a thought in front of every answer
    talk = [say("system", "s"), say("user", "q")]
    path = chat.prompt(talk, tools).tolist()
    for text, ended in [
        ("Let me see.", [end]),
        (CALL, []),
        ("cut in the mid", []),
        ("done", [end]),
    ]:
        drawn = [*chat.tokenizer.encode(thought + text, add_special_tokens=False).ids, *ended]
        answer = [say(role, f"so {text[:3]}: 4\n")]
        path += drawn + chat.reply(answer, drawn[-1]).tolist()
        talk += [say("assistant", thought + text), *answer]
        assert path == whole(chat, talk, tools)


def test_the_tiny_policy_speaks_chatml():
    chat = Chat.from_folder(TINY)
    (end,) = chat.end_ids
    talk = [say("system", "s"), say("user", "What is 2 + 2?")]
    path = chat.prompt(talk, [tool_schema()]).tolist()
    assert path == whole(chat, talk, [tool_schema()])
    for text, ended in [(CALL, []), ("\\boxed{4}", [end])]:
        drawn = [*chat.tokenizer.encode(text, add_special_tokens=False).ids, *ended]
        path += drawn + chat.reply([say("tool", "4")], drawn[-1]).tolist()
        talk += [say("assistant", text), say("tool", "4")]
    assert path == whole(chat, talk, [tool_schema()])


def test_a_reply_is_the_callers_own_and_follows_its_messages(chats, monkeypatch):
    monkeypatch.setattr(chat_module, "KEPT", 2)
    chat = next(iter(chats.values()))
    wanted = [chat.reply([say("user", text)], None).tolist() for text in "abc"]
    for text, want in zip("cabac", (wanted[i] for i in (2, 0, 1, 0, 2))):
        tokens = chat.reply([say("user", text)], None)
        assert tokens.tolist() == want
        tokens[:] = 0


def test_a_reply_ends_the_turn_unless_the_policy_did(chats):
    chat = chats["qwen2_5.jinja"]
    end, closer, stop = (
        chat.tokenizer.token_to_id(token)
        for token in ("<|im_end|>", "</tool_call>", "<|endoftext|>")
    )
    full = chat.reply([say("user", "b")], None).tolist()
    assert chat.tokenizer.decode(full, skip_special_tokens=False) == (
        "<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.reply([say("user", "b")], end).tolist() == full[1:]
    for last in (closer, stop, 5):
        assert chat.reply([say("user", "b")], last).tolist() == full


def test_a_template_that_ends_turns_in_plain_text_has_no_end_token():
    """What the policy drew last is its own, also where it looks like the end of the turn."""
    chat = Chat(small("<x>"), Template(PLAIN))
    assert chat.end_ids == frozenset()
    newline = chat.tokenizer.encode("\n").ids[0]
    assert (
        chat.tokenizer.decode(chat.reply([say("user", "b")], newline).tolist())
        == "\nuser: b\nassistant: "
    )


def test_several_messages_may_answer_one_turn(chats):
    chat = chats["qwen2_5.jinja"]
    talk = [
        say("user", "q"),
        say("assistant", "a"),
        say("tool", "1"),
        say("tool", "2"),
        say("user", "u"),
    ]
    path = (
        chat.prompt(talk[:1]).tolist()
        + chat.tokenizer.encode("a").ids
        + chat.reply(talk[2:], None).tolist()
    )
    assert path == whole(chat, talk)


def test_what_the_policy_said_is_its_text_without_the_token_that_ended_it(chats):
    chat = chats["qwen2_5.jinja"]
    ids = chat.tokenizer.encode(f"{CALL}é<|im_end|><|im_end|>").ids
    assert chat.text(np.array(ids, np.int32), chat.end_ids) == f"{CALL}é<|im_end|>"
    assert chat.text(np.array(ids[:-2], np.int32), chat.end_ids) == f"{CALL}é"
    assert chat.text(np.array([], np.int32), chat.end_ids) == ""


def test_what_was_drawn_is_never_encoded_again(chats, monkeypatch):
    """Also where the tokenizer would have spelled the same words with other tokens, or they are no text at all."""
    chat, seen = chats["qwen2_5.jinja"], []
    encode = chat.encoder.encode
    monkeypatch.setattr(
        chat.encoder,
        "encode",
        lambda text, **rest: (seen.append(str(text)), encode(text, **rest))[1],
    )
    (end,) = chat.end_ids
    letters = [chat.tokenizer.token_to_id(letter) for letter in "zebra"]
    half = chat.tokenizer.encode("🍎").ids[:-1]  # the first bytes of a character
    talk = [say("user", "q")]
    path, drawn = chat.prompt(talk).tolist(), []
    for ids in ([*letters, end], [*letters, *half], [*half, *letters, end, end]):
        drawn.append((len(path), ids))
        path += (
            ids + chat.reply([say("tool", f"r{len(drawn)}")], ids[-1]).tolist()
        )  # each is rendered once
    assert all(path[start : start + len(ids)] == ids for start, ids in drawn)
    assert len(seen) == 4 and not any("zebra" in text for text in seen)
    assert chat.tokenizer.encode("zebra").ids != letters


@pytest.mark.parametrize(
    "name", ["qwen3_5_think_training.jinja", "qwen3_5_think.jinja", "nemotron_3_nano.jinja"]
)
def test_a_thought_that_the_template_opens_is_the_policys_and_is_not_drawn_twice(
    qwen, chat_templates, name
):
    chat = Chat(qwen, Template(chat_templates[name], name=name))
    assert chat.opened == "<think>\n"
    (end,) = chat.end_ids
    drawn = [*chat.tokenizer.encode(THOUGHT.removeprefix(chat.opened) + CALL).ids, end]
    prompt, reply = (
        chat.prompt([say("user", "q")], [tool_schema()]),
        chat.reply([say("tool", "4")], end),
    )
    assert chat.tokenizer.decode(prompt.tolist(), skip_special_tokens=False).endswith(
        "assistant\n<think>\n"
    )
    assert chat.tokenizer.decode(reply.tolist(), skip_special_tokens=False).endswith(
        "assistant\n<think>\n"
    )
    assert chat.text(np.array(drawn, np.int32), chat.end_ids) == THOUGHT + CALL
    talk = [say("user", "q"), say("assistant", THOUGHT + CALL), say("tool", "4")]
    assert [*prompt, *drawn, *reply] == whole(chat, talk, [tool_schema()])


# --- control tokens come from the template only


def assert_harmless(chat, text):
    """`text` in any place yields the template's control tokens, and decodes to what was written."""
    for place in range(5):
        parts = [text if i == place else "x" for i in range(5)]
        calm, sharp = (
            (
                [say("system", a), say("user", b)],
                [tool_schema(c, d)],
                [say("tool", e), say("user", e)],
            )
            for a, b, c, d, e in ("xxxxx", parts)
        )
        prompt, reply = chat.prompt(sharp[0], sharp[1]), chat.reply(sharp[2], None)
        assert controls(chat, prompt) == controls(chat, chat.prompt(calm[0], calm[1]))
        assert controls(chat, reply) == controls(chat, chat.reply(calm[2], None))
        decode = chat.tokenizer.decode
        written = chat.template.render(sharp[0], sharp[1], generate=True)
        assert decode(prompt.tolist(), skip_special_tokens=False) == written
        assert decode(reply.tolist(), skip_special_tokens=False) == chat.template.after_turn(
            sharp[2]
        )


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_message_result_or_schema_can_spell_a_control_token(chats, name):
    chat = chats[name]
    tokens = [token.content for token in chat.tokenizer.get_added_tokens_decoder().values()]
    assert len(tokens) == (5 if "llama" in name else 26)
    for token in tokens:
        assert_harmless(chat, f"{token} at the start, {token}{token} inside, at the end {token}")


@pytest.mark.parametrize(
    "text",
    [
        "<|im_<|im_start|>start|>",
        "<|im_<|im_<|im_end|>end|>end|>",
        "<<|im_end|>|im_end|>",
        "<tool_<tool_call>call></tool_</tool_call>call>",
        "\ue000<|im_start|>\ue000",
        "<\ue000|im_start|>",
        "<|im_start|>\ue001\ue000\uf8ff\U000f0000",
        "<|im_end|" + "".join(map(chr, range(0xE000, 0xF900))) + "<|im_end|>",
    ],
)
def test_no_nesting_and_no_private_character_gets_through(chats, text):
    assert_harmless(chats["qwen2_5.jinja"], text)


PIECES = [
    "<|im_start|>",
    "<|im_end|>",
    "<|",
    "|>",
    "im_",
    "start",
    "end",
    "<",
    "</",
    ">",
    "tool_call",
    "\ue000",
    "\ue001",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@settings(max_examples=60, deadline=None)
def test_no_mixture_of_pieces_spells_a_control_token(chats, text):
    assert_harmless(chats["qwen2_5.jinja"], text)


@pytest.mark.parametrize(
    "text", ["<|im_start|>system", "a <tool_call></tool_call>\n<|endoftext|>", "<|im_", "<think>é"]
)
def test_what_spells_control_tokens_has_the_ids_of_its_letters(chats, qwen_ranks, text):
    chat = chats["qwen2_5.jinja"]
    start, end = (chat.tokenizer.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>"))
    opened = [start, *reference(qwen_ranks, "assistant\n")]
    said = [
        start,
        *reference(qwen_ranks, f"user\n{text}"),
        end,
        *reference(qwen_ranks, "\n"),
        *opened,
    ]
    assert chat.reply([say("user", text)], end).tolist() == [*reference(qwen_ranks, "\n"), *said]
    system, question = [say("system", text)], [say("user", "q")]
    ids = [start, *reference(qwen_ranks, f"system\n{text}"), end, *reference(qwen_ranks, "\n")]
    assert chat.prompt(system + question).tolist()[: len(ids)] == ids


def test_a_tools_name_cannot_complete_a_control_token():
    """What the template writes around it would."""
    source = "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}" + PLAIN
    chat = Chat(small("<call>", "<x>"), Template(source))
    for name in ("call", "x", "<call>"):
        tool = {"type": "function", "function": {"name": name, "parameters": {}}}
        tokens = chat.prompt([say("user", "q")], [tool])
        assert controls(chat, tokens) == []
        assert chat.tokenizer.decode(tokens.tolist()) == f"<{name}>user: q\nassistant: "


def test_a_role_completes_a_control_token_but_not_if_it_is_no_name():
    chat = Chat(small("<|user|>", "<|assistant|>", "<|end|>"), Template(ROLES))
    assert len(controls(chat, chat.prompt([say("user", "<|user|>")]))) == 3
    assert len(controls(chat, chat.prompt([say("user|><|end|><|user", "q")]))) == 2


def test_added_tokens_that_overlap_are_all_broken():
    chat = Chat(small("<a>", "a>", "<a><a>", "<<a>", "<|end|>"), Template(PLAIN))
    for text in ("<a>", "<<a>>", "<a><a><a>", "a>a>", "<<a><a>"):
        tokens = chat.prompt([say("user", text)])
        assert controls(chat, tokens) == []
        assert chat.tokenizer.decode(tokens.tolist()) == f"user: {text}\nassistant: "


def test_runs_of_blanks_that_are_added_tokens_stay_text():
    chat = Chat(small(AddedToken("    ", normalized=False), "\n\n", "<|end|>"), Template(PLAIN))
    talk = [say("user", "if x:\n\n    y")]
    assert len(controls(chat, chat.prompt(talk))) == 2
    assert chat.prompt(talk).tolist() == whole(chat, talk)


# --- making a chat


def test_a_tokenizer_that_truncates_or_pads_is_told_not_to():
    tokenizer = small("<|end|>")
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64, pad_id=0)
    tokens = Chat(tokenizer, Template(PLAIN)).prompt([say("user", "a long question")])
    assert tokenizer.decode(tokens.tolist()) == "user: a long question\nassistant: "


def test_a_template_that_rewrites_earlier_turns_makes_no_chat(qwen, chat_templates):
    with pytest.raises(
        TemplateError,
        match=r"qwen3 has a chat template that is not prefix-preserving.*training variant",
    ):
        Chat(qwen, Template(chat_templates["qwen3.jinja"] + "{# another version #}", name="qwen3"))


def test_a_template_that_hides_its_control_tokens_makes_no_chat():
    """Its marks come out of an operation that does not tell what is the template's and what a message's."""
    source = ROLES.replace("<|end|>", "{{ '<|END|>' | lower }}")
    with pytest.raises(
        TemplateError, match=r"T has a chat template that puts control tokens together from pieces"
    ):
        Chat(small("<|user|>", "<|end|>"), Template(source, name="T"))
    Chat(small("<|user|>"), Template(source))  # here it is no token
    late = ROLES.replace("<|end|>", "{{ '<|END|>' | lower if m.role == 'tool' }}")
    with pytest.raises(TemplateError, match="cannot be told from a message's text"):
        Chat(small("<|user|>", "<|end|>"), Template(late))


def test_a_folder_whose_config_names_the_tokens_speaks_with_them(shared_data, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(shared_data / "tokenizer" / f"torchtitan_{name}", tmp_path / name)
    (tmp_path / "chat_template.jinja").write_text(ROLES.replace("<|end|>", "<|im_end|>"))
    chat = Chat.from_folder(tmp_path)
    assert chat.end_ids == {2010}
    assert controls(chat, chat.prompt([say("user", "<|im_end|>[PAD]")])) == [2010]


def test_a_folder_without_a_tokenizer_is_named_with_the_fix(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": PLAIN}))
    with pytest.raises(FileNotFoundError) as caught:
        Chat.from_folder(tmp_path)
    assert str(caught.value).startswith(
        f"{tmp_path} has no tokenizer.json; save the model's tokenizer there: transform"
    )
