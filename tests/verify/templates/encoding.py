"""Conversations encoded token by token, against the same ones rendered whole by transformers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import TODAY, Template, TemplateError
from turngym.envs import Message
from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.templates.area import SPECIAL
from turngym.tests.verify.templates.tokenizers import letters

THOUGHT = "<think>\nIs it so?\n</think>\n\n"
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "print(6 * 7)"}}\n</tool_call>'
# What a policy draws in its turns, and whether it ends them itself: else a closer did, or the token limit.
TALKS = (
    (
        ("Let me see.", True),
        ("So 1 <  2,\nand 2 is even.", True),
        ("cut in the mid", False),
        ("Done.", True),
    ),
    ((CALL, False), (f"I call.\n{CALL}", True), ("The answer is \\boxed{42}.", True)),
    ((THOUGHT + CALL, False), (f"{THOUGHT}So I call.\n{CALL}", False), (f"{THOUGHT}Done.", True)),
)
TOOL = {
    "type": "function",
    "function": {
        "name": "python",
        "description": 'Run <b>code</b> & "see" é.',
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
        },
    },
}
ASK: Message = {"role": "user", "content": "What is 2 < 3?\n 两个"}
_CONTROL = r"<[|｜][^<>|｜\s]+[|｜]>|</?(?:think|tool_call|tool_response|start_of_turn|end_of_turn)>|<[be]os>"

Render = Callable[[Sequence[Message], bool], str]


@dataclass(frozen=True)
class Comparison:
    """A conversation of a template: what is wrong with its tokens, and whether they say just what a rendering says."""

    what: str
    fault: str
    verbatim: bool


def encoding_row(sources: Mapping[str, str], tools: Sequence[Mapping[str, Any]]) -> Row:
    """Count the conversations of all accepted templates whose tokens stand for what transformers renders."""
    done = list(conversations(sources, tools))
    wrong = [f"{one.what}: {one.fault}" for one in done if one.fault]
    plain = sum(one.verbatim for one in done)
    told = f"{plain} are whole renderings; in the others the template writes the policy's words in another way"
    note = "; ".join(filter(None, [first(wrong, 2), told]))
    shown = "shown" if tools else "not shown"
    return Row(
        f"templates: conversations laid as rendered, tools {shown}",
        len(done) - len(wrong),
        len(done),
        note,
    )


def conversations(
    sources: Mapping[str, str], tools: Sequence[Mapping[str, Any]]
) -> Iterator[Comparison]:
    """Yield the conversations of every accepted template, in the roles that can answer it."""
    tokenizer = family(sources)
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)
    for name, source in sources.items():
        try:
            chat = Chat(tokenizer, Template(source, SPECIAL, name))
        except TemplateError:
            continue
        render = renderer(theirs, source, tools)
        roles = [role for role in ("tool", "user") if not chat.template.refuses(role, [ASK], tools)]
        for said in TALKS if roles else ((),):
            for role in roles or [""]:
                yield converse(chat, render, tools, role, said)


def converse(
    chat: Chat,
    render: Render,
    tools: Sequence[Mapping[str, Any]],
    role: str,
    said: Sequence[tuple[str, bool]],
) -> Comparison:
    """Encode one conversation piece by piece; compare each piece, and the whole where it can be, with `render`."""
    what = f"{chat.template.name}, answers by {role or 'nobody'}"
    talk, path = [ASK], chat.prompt([ASK], tools).tolist()
    whole = render(talk, True)
    if _decode(chat, path) != whole:
        return Comparison(what, "the prompt is not what is rendered", False)
    for turn, (words, ends) in enumerate(said):
        drawn = chat.tokenizer.encode(words.removeprefix(chat.opened)).ids + (
            list(chat.end_ids) if ends else []
        )
        answer: Message = {"role": role, "content": f"to {turn}: 42\n"}
        talk.append(
            {"role": "assistant", "content": chat.text(np.array(drawn, np.int32), chat.end_ids)}
        )
        before, whole = render(talk, False), render([*talk, answer], True)
        talk.append(answer)
        rest = chat.reply([answer], drawn[-1]).tolist()
        ending = _decode(chat, drawn[-1:] if ends else []) + _decode(chat, rest)
        if chat.template.family and not whole.startswith(
            before
        ):  # what is laid stays; only what follows is compared
            if not whole.endswith(ending):
                return Comparison(what, f"what follows turn {turn} is not what is rendered", False)
            path += [*drawn, *rest]
            continue
        if not whole.startswith(before) or not ending.endswith(whole[len(before) :]):
            return Comparison(what, f"the answer to turn {turn} is not what is rendered", False)
        if not before.endswith(ending[: len(ending) - len(whole) + len(before)]):
            return Comparison(what, f"the end of turn {turn} is not what is rendered", False)
        path += [*drawn, *rest]
    verbatim = _decode(chat, path) == whole
    if verbatim and path != chat.tokenizer.encode(whole, add_special_tokens=False).ids:
        return Comparison(what, "the tokens are not those of the rendered text", False)
    return Comparison(what, "", verbatim)


def renderer(
    theirs: PreTrainedTokenizerFast, source: str, tools: Sequence[Mapping[str, Any]]
) -> Render:
    """Return transformers' rendering of a template, on the day that turngym's prompts are written on."""

    def render(talk: Sequence[Message], generate: bool) -> str:
        return str(
            theirs.apply_chat_template(
                list(talk),
                tools=list(tools) or None,
                chat_template=source,
                add_generation_prompt=generate,
                tokenize=False,
                strftime_now=TODAY.strftime,
            )
        )

    return render


def family(sources: Mapping[str, str]) -> Tokenizer:
    """Return a tokenizer of one token a byte that knows the control tokens of all templates."""
    found = {token for source in sources.values() for token in re.findall(_CONTROL, source)}
    return letters(*sorted(found | set(SPECIAL.values())))


def _decode(chat: Chat, ids: Sequence[int]) -> str:
    return str(chat.tokenizer.decode(list(ids), skip_special_tokens=False))
