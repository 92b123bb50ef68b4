"""Chat templates: rendering as transformers does it, and which templates keep a policy's tokens as they were drawn.

A template is prefix-preserving when a tool's answer never changes the text rendered before it. Of the known families
those that are not can be used, too: a prompt is what the template renders, and behind a turn stands what the template
writes behind a turn of a conversation without thoughts.
"""

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import jinja2

from ...envs import Message
from ..models.folder import TEMPLATE_FILE, read_bytes, read_json, template_digest
from .rendering import MarkedEnvironment, MarkedText, begin, limited, template_text

# The stock chat templates of the usual models, each version by its digest. What a known template writes behind a turn
# was compared for thoughts, calls and plain words, so that its continuation may be laid even where it would render
# earlier turns otherwise.
FAMILIES: Mapping[str, Sequence[str]] = json.loads(
    Path(__file__).with_name("families.json").read_text("utf-8")
)
LONGEST = 1 << 17  # characters of a template
MARK = "turngym-content"  # a word that no template writes by itself
_ASK: list[Message] = [{"role": "user", "content": "question"}]
_SYSTEM: Message = {"role": "system", "content": "system"}
_REPLY: Message = {"role": "assistant", "content": MARK}
_CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
CONTENTS = (  # what a policy says: plainly, after a thought (which the template may have opened), in a thought, a call
    *(
        "answer",
        "<think>\nthought\n</think>\n\nanswer",
        "thought\n</think>\n\nanswer",
        "<think>\nthought",
    ),
    f"<think>\nthought\n</think>\n\n{_CALL}",
)
# Wall-clock time would make prompts depend on the day of the run; this is the day that Llama's templates fall back to.
TODAY = datetime.datetime(2024, 7, 26, tzinfo=datetime.UTC)


class TemplateError(ValueError):
    """A chat template that cannot be used for training; the message says why and what to do."""


class Template:
    """A jinja chat template with the special-token strings it may name (`bos_token`, `eos_token`, …).

    `family` is the family of models whose template it is, by its hash; empty where it is none of the known ones.
    """

    def __init__(
        self, source: str, special: Mapping[str, str] | None = None, name: str = "the chat template"
    ) -> None:
        self.name, self.source = name, source
        digest = template_digest(source)
        self.family = next((name for name, known in FAMILIES.items() if digest in known), "")
        self.special = {key: template_text(token) for key, token in (special or {}).items()}
        try:
            self._template = _compiled(source)
        except jinja2.TemplateSyntaxError as error:
            where = f"(line {error.lineno}): {error}"
            raise TemplateError(f"{name} has a chat template that is not jinja {where}") from error
        except (ValueError, RecursionError, SyntaxError, OverflowError, MemoryError) as error:
            raise TemplateError(
                f"{name} has a chat template that cannot be used: {error}"
            ) from None

    @classmethod
    def from_folder(cls, folder: Path, file: Path | None = None) -> Self:
        """Read `file`, else the folder's own template. Raises FileNotFoundError where there is none, or ValueError."""
        config_file, jinja_file = folder / "tokenizer_config.json", file or folder / TEMPLATE_FILE
        config = read_json(config_file) if config_file.is_file() else {}
        source = (
            read_bytes(jinja_file, LONGEST).decode()
            if jinja_file.is_file()
            else config.get("chat_template")
        )
        if isinstance(source, list):
            named = [entry for entry in source if isinstance(entry, dict)]
            source = {entry.get("name"): entry.get("template") for entry in named}.get("default")
        if source and not isinstance(source, str):
            raise TemplateError(
                f"{folder} has a chat template that is a {type(source).__name__}; it must be a text"
            )
        if not source:
            fix = "a base model has none; use its instruct version or write a ChatML template"
            raise FileNotFoundError(
                f"{folder} has no chat template: put one in chat_template.jinja ({fix})"
            )
        return cls(source, special_tokens(config), str(file or folder))

    @property
    def origin(self) -> dict[str, str]:
        """Which template this is: the beginning of its sha256, and the family that it is known to be of."""
        return {"sha256": template_digest(self.source), "family": self.family}

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        generate: bool = False,
    ) -> MarkedText:
        """Return the text of a conversation; `generate` opens the assistant's next turn. Raises TemplateError.

        Where the template refuses system messages, their text stands in front of the first question.
        """
        roles = [message.get("role") for message in messages]
        if roles[:2] == ["system", "user"] and not self.takes_system:
            system, ask, *rest = messages
            messages = [{**ask, "content": f"{system['content']}\n\n{ask['content']}"}, *rest]
        return self._render(messages, tools, generate, roles)

    @cached_property
    def takes_system(self) -> bool:
        try:
            self._render([_SYSTEM, *_ASK], (), False, ())
        except TemplateError:
            return False
        return True

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        generate: bool,
        roles: Sequence[Any],
    ) -> MarkedText:
        begin((messages, tools))
        try:
            marked = [_with_marked_role(message) for message in messages]
            given = {
                "tools": list(tools) or None,
                "add_generation_prompt": generate,
                **self.special,
            }
            made = self._template.render(messages=marked, **given)
        except Exception as error:  # a template is a program: anything can go wrong in it
            shown, what = ", ".join(map(str, roles)), " ".join(str(error).split())
            raise TemplateError(
                f"{self.name} cannot render the roles {shown:.80}: {what:.300}"
            ) from error
        return made if isinstance(made, MarkedText) else MarkedText(made)

    def turn_end(self) -> MarkedText:
        return self._turn_texts[1]

    def after_turn(self, messages: Sequence[Message]) -> MarkedText:
        """Return the text between an assistant's content and the start of its next turn, with `messages` in between."""
        before, end = self._turn_texts
        after = self.render([*_ASK, _REPLY, *messages], generate=True)
        if self.family:
            return after[after.find(MARK) + len(MARK) :]
        if not after.startswith(before):
            change = _change("messages after an assistant's turn", before, after)
            raise TemplateError(f"{self.name} rewrites earlier turns: {change}")
        return end + after[len(before) :]

    @cached_property
    def _turn_texts(self) -> tuple[MarkedText, MarkedText]:
        """A question with an assistant's turn, and what of it stands after the content."""
        text = self.render([*_ASK, _REPLY])
        at = text.rfind(MARK)
        if at < 0:
            raise TemplateError(
                f"{self.name} does not write an assistant's content: it cannot hold a policy's turns"
            )
        return text, text[at + len(MARK) :]

    @cached_property
    def opened(self) -> str:
        """The thought that the opening of an assistant's turn leaves open, from its `<think>` on; else empty."""
        text = str.__str__(self.render(_ASK, generate=True))
        at = text.rfind("<think>")
        return text[at:] if at > text.rfind("</think>") else ""

    def answered_call(self) -> tuple[MarkedText, MarkedText] | None:
        """Return a call and the same with its answer, as TRL's check compares them; None where no tool may answer."""
        forms: tuple[Any, ...] = ({}, "{}")  # some templates take arguments only as a string
        for arguments in forms:
            call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
            talk: list[Message] = [
                *_ASK,
                {"role": "assistant", "content": "", "tool_calls": [call]},
            ]
            try:
                answered = [*talk, {"role": "tool", "name": "f", "content": "result"}]
                return self.render(talk), self.render(answered, generate=True)
            except TemplateError as error:
                if not isinstance(error.__cause__, TypeError):
                    return None
        return None

    def check(self) -> None:
        """Raise `TemplateError` unless the template is prefix-preserving.

        The verdict is that of TRL's `is_chat_template_prefix_preserving` (see `answered_call`). Where a template takes
        no tools' answers, a user's answer takes their place. `refuses` says which answers it can carry. Templates of a
        known family may rewrite turns: what stands behind a turn is known of them.
        """
        if self.family:
            self.turn_end()
            return
        role, pair = "tool", self.answered_call()
        if pair is None:
            role, pair = (
                "user",
                (self.render([*_ASK, _REPLY]), self.render([*_ASK, _REPLY, *_ASK], generate=True)),
            )
        before, after = pair
        if not after.startswith(before):
            change = _change(f"message 3 ({role})", before, after)
            raise TemplateError(
                f"{self.name} has a chat template that is not prefix-preserving: {change}, so the model's own tokens "
                "could not be kept; put a training variant that keeps earlier turns as they are (no removal of <think> "
                "blocks) into chat_template.jinja, or name its file with --chat-template (known are the templates of "
                f"{', '.join(FAMILIES)})"
            )
        self.turn_end()

    def refuses(
        self,
        role: str,
        opening: Sequence[Message] = tuple(_ASK),
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Return why messages of `role` cannot answer an assistant's turns after `opening`; empty where they can.

        They can where every turn, with a thought or a call or without, stays as it was, and where what follows it is
        always what `after_turn` gives. In a known family only what follows a turn counts.
        """
        answer: Message = {"role": role, "content": MARK}
        try:
            tail = self.after_turn([answer])
            if MARK not in tail:
                return "it does not write them"
            if self.family:  # what it rewrites, the opening included, has been laid already
                self.render(opening, tools, generate=True)
                opening, tools = _ASK, ()
            for content in CONTENTS:
                talk = list(opening)
                for _ in range(3):
                    talk.append({"role": "assistant", "content": content})
                    before = self.render(talk, tools)
                    talk.append(answer)
                    after = self.render(talk, tools, generate=True)
                    if not self.family and not after.startswith(before):
                        return _change(f"message {len(talk)} ({role})", before, after)
                    alike = (
                        after.endswith(tail)
                        if self.family
                        else self.turn_end() + after[len(before) :] == tail
                    )
                    if not alike:
                        return "after a later turn it writes them in another way"
        except TemplateError as error:
            return str(error).removeprefix(f"{self.name} ")
        return ""

    def shows(
        self, tools: Sequence[Mapping[str, Any]], opening: Sequence[Message] = (_SYSTEM, *_ASK)
    ) -> bool:
        text = self.render(opening, tools)
        return all(tool["function"]["name"] in text for tool in tools)


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens that a `tokenizer_config.json` names by what they do: `bos_token`, `eos_token`, …"""
    named = {key: token_text(entry) for key, entry in config.items() if key.endswith("_token")}
    return {key: text for key, text in named.items() if text is not None}


def token_text(entry: Any) -> str | None:
    """Return a token's text from either of its forms in a config; None where it is no token (`add_bos_token`)."""
    text = entry.get("content") if isinstance(entry, Mapping) else entry
    return text if isinstance(text, str) and text else None


@lru_cache(maxsize=64)
def _compiled(source: str) -> jinja2.Template:
    if len(source) > LONGEST:
        raise ValueError(f"it has {len(source)} characters; at most {LONGEST} are read")
    begin(())
    env = MarkedEnvironment()
    env.filters["tojson"] = limited(_tojson)
    env.globals["raise_exception"] = _raise
    env.globals["strftime_now"] = _today
    return env.compile_text(source)


def _with_marked_role(message: Message) -> Message:
    """Count the role as the template's word: templates write tokens with it, and it comes from code, not from text."""
    role = message.get("role")
    return (
        {**message, "role": template_text(role)}
        if isinstance(role, str) and role.isidentifier()
        else message
    )


def _change(what: str, before: str, after: str) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    was, now = (str.__str__(text)[at : at + 40] for text in (before, after))
    return f"adding {what} turns {was!r} into {now!r}"


def _today(form: str) -> str:
    if not re.fullmatch(r"([^%]|%[-A-Za-z%])*", form):  # %1000000000d: a width
        raise jinja2.TemplateError(f"the form of a date is {form!r:.40}; write it as in %d %b %Y")
    return TODAY.strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    if (
        not (indent is None or (isinstance(indent, int) and indent <= 16))
        or len(repr(separators)) > 80
    ):
        raise jinja2.TemplateError(
            f"tojson is given indent={indent!r:.40}, {separators!r:.80}; write tojson(indent=4)"
        )
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
