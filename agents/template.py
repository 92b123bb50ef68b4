"""Chat templates: rendering as transformers does it, and the test that a template is prefix-preserving.

A template is prefix-preserving when adding a message never changes the text rendered before it; only then can a
policy's own tokens be kept as they were drawn.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..envs import Message

_CONTENT = "turngym-content"  # a word that no template writes by itself
_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
_ASK: list[Message] = [{"role": "user", "content": "question"}]
_SAY: Message = {"role": "assistant", "content": _CONTENT}


class TemplateError(ValueError):
    """A chat template that cannot be used for training; the message says why and what to do."""


class _Generation(Extension):
    """The `{% generation %}` block of training templates: renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own annotation)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Template:
    """A jinja chat template with the special-token strings it may name (`bos_token`, `eos_token`, …)."""

    def __init__(self, source: str, special: Mapping[str, str] | None = None, name: str = "the chat template") -> None:
        self.name = name
        self.special = dict(special or {})
        env = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        env.filters["tojson"] = _tojson
        env.globals["raise_exception"] = _raise
        env.globals["strftime_now"] = _now
        try:
            self._template = env.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"{name} has a chat template that is not jinja (line {error.lineno}): {error}"
            ) from error

    @classmethod
    def from_folder(cls, folder: Path) -> Template:
        """Read `chat_template.jinja`, or `chat_template` of `tokenizer_config.json`.

        Raises:
            FileNotFoundError: the folder has neither.
        """
        config_file, jinja_file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
        config = json.loads(config_file.read_text("utf-8")) if config_file.is_file() else {}
        source = jinja_file.read_text("utf-8") if jinja_file.is_file() else config.get("chat_template")
        if isinstance(source, list):
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
        if not source:
            raise FileNotFoundError(
                f"{folder} has no chat template: put one in chat_template.jinja (a base model has none; use its "
                "instruct version or write a ChatML template)"
            )
        special = {key: _content(value) for key, value in config.items() if key.endswith("_token") and value}
        return cls(source, special, str(folder))

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, generate: bool = False
    ) -> str:
        """Return the text of a conversation; `generate` opens the assistant's next turn.

        Raises:
            TemplateError: the template itself refuses the messages.
        """
        try:
            return self._template.render(
                messages=list(messages), tools=list(tools) or None, add_generation_prompt=generate, **self.special
            )
        except (jinja2.TemplateError, TypeError) as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise TemplateError(f"{self.name} cannot render the roles {roles}: {error}") from error

    def turn_end(self) -> str:
        """Return the text the template writes after an assistant's content."""
        text = self.render([*_ASK, _SAY])
        if _CONTENT not in text:
            raise TemplateError(f"{self.name} does not write an assistant's content: it cannot hold a policy's turns")
        return text.rpartition(_CONTENT)[2]

    def after_turn(self, messages: Sequence[Message]) -> str:
        """Return the text between an assistant's content and the start of its next turn, with `messages` in between."""
        before = self.render([*_ASK, _SAY])
        after = self.render([*_ASK, _SAY, *messages], generate=True)
        if not after.startswith(before):
            raise TemplateError(_refusal(self.name, "messages after an assistant's turn", before, after))
        return self.turn_end() + after[len(before) :]

    def check(self) -> None:
        """Raise `TemplateError` unless the template is prefix-preserving over tools, thinking and many turns."""
        for tools in ((), (_TOOL,)):
            for content in ("answer", "<think>\nthought\n</think>\n\nanswer"):
                said: Message = {"role": "assistant", "content": content}
                talk = [*_ASK, said, *_ASK, said, *_ASK]
                self._check_growth(talk, tools)
        self.turn_end()

    def _check_growth(self, talk: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> None:
        for size in range(1, len(talk)):
            before, after = self.render(talk[:size], tools), self.render(talk[: size + 1], tools)
            if not after.startswith(before):
                raise TemplateError(_refusal(self.name, f"message {size + 1} ({talk[size]['role']})", before, after))
            if talk[size]["role"] == "assistant":
                opened = self.render(talk[:size], tools, generate=True)
                if not after.startswith(opened):
                    raise TemplateError(_refusal(self.name, "the opened assistant turn", opened, after))

    def shows(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the names of `tools` reach the model."""
        system: Message = {"role": "system", "content": "system"}
        text = self.render([system, *_ASK], tools)
        return all(tool["function"]["name"] in text for tool in tools)

    def speaks(self, role: str) -> bool:
        """Return whether messages of `role` can follow an assistant's turn."""
        try:
            return _CONTENT in self.after_turn([{"role": role, "content": _CONTENT}])
        except TemplateError:
            return False


def _refusal(name: str, what: str, before: str, after: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    return (
        f"{name} has a chat template that is not prefix-preserving: adding {what} turns {before[at : at + 40]!r} into "
        f"{after[at : at + 40]!r}, so the model's own tokens could not be kept; put a training variant that keeps "
        "earlier turns as they are (no removal of <think> blocks) into chat_template.jinja"
    )


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, Mapping) else token)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(layout: str) -> str:
    return datetime.datetime.now(datetime.UTC).strftime(layout)
