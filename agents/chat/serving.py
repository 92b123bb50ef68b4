"""The chat template under which a trained model is served: it renders conversations as training saw them.

Training lays turns end to end as they were drawn: a prompt is what the base's template renders, and behind a turn
stands what that template writes behind a turn. Many stock templates render earlier turns otherwise once they are
history: they remove thoughts, trim blanks, write the date of the day. A model that is served so reads what it never
saw in training. If the base's template does none of this it is kept as it is; else it becomes a macro of one that
writes turns as they were drawn.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...envs import Message
from ..models.resolve import Source
from .template import CONTENTS, MARK, TODAY, Template, TemplateError

_ASK: Message = {"role": "user", "content": "question"}
_SYSTEM: Message = {"role": "system", "content": "system"}
_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
}
_BLANKS = " answer\n"
_DATE = re.compile(r"""strftime_now\(\s*(?P<quote>["'])(?P<form>[^"']*)(?P=quote)""")
_SHOWN = 60  # characters of an example

# `turngym.text` is what stands in front of the next turn, or at the end. Names begin with the project's, as those of
# the base's template are not known. A message with structured calls or thoughts is written as the base's template does
# it in the last turn, where no template removes anything.
_WRITER = r"""
{%- set turngym_ask = [{'role': 'user', 'content': 'question'}] -%}
{%- set turngym_mark = '@MARK@' -%}
{%- set turngym_reply = [{'role': 'assistant', 'content': turngym_mark}] -%}
{%- set turngym_opened = @OPENED@ -%}
{%- set turngym = namespace(messages=messages, begun=false, answers=[], text='', body='') -%}
@SYSTEM@
{%- for message in turngym.messages -%}
  {%- if message['role'] != 'assistant' -%}
    {%- set turngym.answers = turngym.answers + [message] -%}
  {%- else -%}
    {%- if turngym.begun -%}
      {%- set turngym.text = turngym_base(turngym_ask + turngym_reply + turngym.answers, true, none) -%}
      {%- set turngym.text = turngym.text[turngym.text.find(turngym_mark) + turngym_mark|length:] -%}
    {%- else -%}
      {%- set turngym.text = turngym_base(turngym.answers, true, tools) -%}
    {%- endif -%}
    {%- set turngym.body = message['content'] -%}
    {%- if message['tool_calls'] or message['reasoning_content'] or turngym.body is not string -%}
      {%- set turngym_whole = turngym_base(turngym_ask + [message], false, none) -%}
      {%- set turngym_head = turngym_base(turngym_ask, true, none) -%}
      {%- set turngym_head = turngym_head[:turngym_head|length - turngym_opened|length] -%}
      {%- set turngym_end = turngym_base(turngym_ask + turngym_reply, false, none) -%}
      {%- set turngym_end = turngym_end[turngym_end.rfind(turngym_mark) + turngym_mark|length:] -%}
      {%- if turngym_whole.startswith(turngym_head) and turngym_whole.endswith(turngym_end) -%}
        {%- set turngym.body = turngym_whole[turngym_head|length:turngym_whole|length - turngym_end|length] -%}
      {%- endif -%}
    {%- endif -%}
    {%- if turngym_opened and turngym.body.startswith(turngym_opened) -%}
      {%- set turngym.body = turngym.body[turngym_opened|length:] -%}
    {%- elif turngym_opened and '</think>' not in turngym.body -%}
      {%- set turngym.text = turngym.text[:turngym.text|length - turngym_opened|length] -%}
    {%- endif -%}
    {{- turngym.text -}}
    {{- turngym.body -}}
    {%- set turngym.begun = true -%}
    {%- set turngym.answers = [] -%}
  {%- endif -%}
{%- endfor -%}
{%- if turngym.begun -%}
  {%- set turngym.text = turngym_base(turngym_ask + turngym_reply + turngym.answers, add_generation_prompt, none) -%}
  {{- turngym.text[turngym.text.find(turngym_mark) + turngym_mark|length:] -}}
{%- else -%}
  {{- turngym_base(turngym.messages, add_generation_prompt, tools) -}}
{%- endif -%}
"""
_MERGED_SYSTEM = r"""
{%- if messages|length > 1 and messages[0]['role'] == 'system' and messages[1]['role'] == 'user' -%}
  {%- set turngym_first = messages[0]['content'] ~ '\n\n' ~ messages[1]['content'] -%}
  {%- set turngym.messages = [{'role': 'user', 'content': turngym_first}] + messages[2:] -%}
{%- endif -%}
"""


@dataclass(frozen=True)
class ServedTemplate:
    """A chat template, jinja, and how it differs from the base model's: a sentence each, none where it is the same."""

    source: str
    differences: tuple[str, ...]


def served(source: Source) -> ServedTemplate | None:
    """Return the template under which a policy trained from `source` is served; None where there is no template.

    Where no template can be written that renders conversations as training saw them it is the base's, and
    `differences` say so. Raises ValueError where the base's cannot be read.
    """
    try:
        template = Template.from_folder(source.folder, source.template)
    except FileNotFoundError:
        return None
    differences = list[str]()
    if source.template is not None and template.source != _own(source):
        differences.append(
            "the one that the run was given with --chat-template, not the base model's"
        )
    changed = _changes(template)
    if not changed:
        return ServedTemplate(template.source, tuple(differences))
    made = as_trained(template)
    try:
        written = Template(
            made, {key: str.__str__(text) for key, text in template.special.items()}, template.name
        )
        left = _changes(written, template)
    except TemplateError as error:
        left = [str(error)]
    if left:
        differences += [
            f"not as training saw it, which turngym cannot write for this model: {one}"
            for one in changed
        ]
        return ServedTemplate(template.source, tuple(differences))
    return ServedTemplate(made, (*differences, *(f"as training saw it: {one}" for one in changed)))


def as_trained(template: Template) -> str:
    """Return a template that writes turns as they were drawn, and all else as `template` does."""
    source = template.source.removesuffix("\n")
    parts = [
        "{#- Written by turngym: turns stay as they were drawn, all else is the base model's template. -#}"
    ]
    if forms := dict.fromkeys(found["form"] for found in _DATE.finditer(source)):
        cases = "".join(
            f"{{%- if form == {form!r} -%}}{TODAY.strftime(form)}{{%- endif -%}}" for form in forms
        )
        parts.append(f"{{%- macro strftime_now(form) -%}}{cases}{{%- endmacro -%}}")
    parts.append(
        f"{{%- macro turngym_base(messages, add_generation_prompt, tools) %}}\n{source}{{% endmacro -%}}"
    )
    writer = _WRITER.strip().replace("@MARK@", MARK).replace("@OPENED@", repr(template.opened))
    parts.append(
        writer.replace("@SYSTEM@", "" if template.takes_system else _MERGED_SYSTEM.strip())
    )
    return "\n".join(parts) + "\n"


def trained_text(
    template: Template, talk: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return the text that training lays for a conversation that begins with a question and ends with an answer."""
    turns = [place for place, message in enumerate(talk) if message["role"] == "assistant"]
    text = str.__str__(template.render(talk[: turns[0]], tools, generate=True))
    for place, end in zip(turns, [*turns[1:], len(talk)], strict=True):
        drawn = str(talk[place]["content"]).removeprefix(template.opened)
        text += drawn + str.__str__(template.after_turn(talk[place + 1 : end]))
    return text


def _changes(template: Template, trained: Template | None = None) -> list[str]:
    """Return in which ways a template writes conversations otherwise than training with `trained`, or itself, does."""
    trained, found = trained or template, dict[str, str]()
    if _DATE.search(template.source) and template is trained:
        found["date"] = (
            f"where the base's template writes today's date it is always {TODAY:%d %b %Y}"
        )
    if not template.takes_system:
        found["system"] = (
            "a system prompt stands in front of the first question, which the base's template refuses"
        )
    for role in ("tool", "user"):
        if trained.refuses(role):
            continue
        for content in (*CONTENTS, _BLANKS):
            said = (
                content
                if not trained.opened or content.startswith(trained.opened)
                else trained.opened + content
            )
            reply: Message = {"role": "assistant", "content": said}
            talk = [
                _SYSTEM,
                _ASK,
                reply,
                {"role": role, "content": "result"},
                reply,
                {"role": role, "content": "more"},
            ]
            for tools in ([], [_TOOL]):
                _compare(template, trained, talk, tools, found)
    return list(found.values())


def _compare(
    template: Template,
    trained: Template,
    talk: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    found: dict[str, str],
) -> None:
    said = str(talk[2]["content"])
    kind = "thoughts" if "think>" in said else "blanks" if said == _BLANKS else "words"
    if kind in found:
        return
    wanted = trained_text(trained, talk, tools)
    try:
        text = str.__str__(template.render(talk, tools, generate=True))
    except TemplateError as error:
        found[kind] = (
            f"the base's template cannot write a turn like {said!r:.{_SHOWN}} ({error!s:.{_SHOWN}})"
        )
        return
    if text != wanted:
        at = next(
            (i for i, (one, other) in enumerate(zip(wanted, text)) if one != other),
            min(len(wanted), len(text)),
        )
        drawn, stock = wanted[at : at + _SHOWN], text[at : at + _SHOWN]
        found[kind] = (
            f"earlier turns keep their {kind} as they were drawn: {drawn!r}, where the base's has {stock!r}"
        )


def _own(source: Source) -> str:
    try:
        return Template.from_folder(source.folder).source
    except (FileNotFoundError, TemplateError):
        return ""
