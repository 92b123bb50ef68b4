"""Token-exact chat: messages to token ids, never re-encoding what the model drew.

Invariant: a path's tokens are `prompt` + drawn tokens + `reply` + drawn tokens + …; control tokens come from the
template only, and what messages spell is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ...envs import Message, TextEnv
from ...envs.question import QuestionEnv
from ...tools import FORMATS, Format
from ..model_folder import read_json
from .encoder import Encoder, MarkedText, add_named_tokens, read_tokenizer
from .template import Template, TemplateError

_TEMPLATE = "put a template that can (for models that think: the training variant of theirs) into chat_template.jinja"


class Chat:
    """A tokenizer with a chat template that is prefix-preserving.

    `opened` is the thought that the template leaves open where the policy begins to draw ("<think>\n"; mostly empty).

    Raises:
        TemplateError: the template is not prefix-preserving, so that the tokens of a path would not be what the
            model saw; or it writes control tokens in a way that cannot be told from a message's text.
    """

    def __init__(self, tokenizer: Tokenizer, template: Template) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.template = template
        self.encoder = Encoder(tokenizer)
        template.check()
        self.opened = template.opened
        end = self.encoder.encode(template.turn_end(), inside=True)[:1].tolist()
        self._end_ids = self.encoder.control & set(end)
        self._check_control()

    @classmethod
    def from_folder(cls, folder: str | Path, template: Path | None = None) -> Chat:
        """Load `tokenizer.json`, the tokens that `tokenizer_config.json` adds, and the chat template of a model folder.

        `template` is a file that takes the place of the folder's own.

        Raises:
            FileNotFoundError: a file is missing; the message says how to write it.
            ValueError: a file cannot be used, or the two disagree on a token's id.
        """
        folder = Path(folder)
        path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} has no tokenizer.json; save the model's tokenizer there: "
                "transformers.AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
            )
        tokenizer = read_tokenizer(path)
        try:
            add_named_tokens(tokenizer, read_json(config) if config.is_file() else {})
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{config} names tokens in a way that cannot be read ({error!r}); save it again") from None
        return cls(tokenizer, Template.from_folder(folder, template))

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> NDArray[np.int32]:
        """Return the tokens `(n,)` that open an episode, up to where the policy starts to draw."""
        return self.encoder.encode(self.template.render(messages, tools, generate=True))

    def reply(self, messages: Sequence[Message], last: int | None) -> NDArray[np.int32]:
        """Return the tokens `(n,)` between a turn that the policy drew and its next one.

        They are the end of its turn (less what it drew itself: `last` is its last token), the messages, and the start
        of the next turn.
        """
        tokens = self.encoder.encode(self.template.after_turn(messages), inside=True)
        return tokens[1:] if last in self._end_ids else tokens

    def text(self, tokens: NDArray[np.int32], end_ids: frozenset[int]) -> str:
        """Return what the policy said, without the token that ended its turn.

        A thought that the template opened is its own: `opened` stands in front.
        """
        ids = [int(token) for token in tokens]
        if ids and ids[-1] in end_ids:
            ids.pop()
        return self.opened + str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def end_ids(self) -> frozenset[int]:
        """Return the token that the template ends a turn with, as a set (empty if it ends turns with plain text)."""
        return self._end_ids

    def _check_control(self) -> None:
        """Make sure that in calm text the control tokens are those that the tokenizer itself finds."""
        for text in _calm(self.template):
            found = self.tokenizer.encode(str.__str__(text), add_special_tokens=False).ids
            ours, theirs = (
                [index for index in ids if index in self.encoder.added]
                for ids in (self.encoder.encode(text).tolist(), found)
            )
            if ours != theirs:
                raise TemplateError(
                    f"{self.template.name} has a chat template that puts control tokens together from pieces that "
                    "cannot be told from a message's text; write them out as strings in chat_template.jinja"
                )


def _calm(template: Template) -> Iterator[MarkedText]:
    """Yield what a template writes around messages that spell nothing, as far as it can."""
    ask, system = ({"role": role, "content": "turngym"} for role in ("user", "system"))
    tool = {"type": "function", "function": {"name": "turngym", "parameters": {"type": "object", "properties": {}}}}
    yield template.render([ask], generate=True) + template.turn_end()
    with suppress(TemplateError):
        yield template.render([system, ask], [tool], generate=True)
    for role in ("tool", "user"):
        with suppress(TemplateError):
            yield template.after_turn([{"role": role, "content": "turngym"}])


def check_fit(template: Template, env: TextEnv) -> None:
    """Check that `template` can open an episode of `env`, show its tools, and carry its answers.

    Raises:
        TemplateError: it cannot; the message says what can be done.
    """
    question = isinstance(env, QuestionEnv)
    opening = env.messages("question") if question else [{"role": "user", "content": "question"}]
    tools = env.tool_schemas()
    try:
        template.render(opening, tools, generate=True)
    except TemplateError as error:
        raise TemplateError(f"{error}; {_TEMPLATE}") from error
    if env.max_turns == 1:
        return
    style = env.format if isinstance(env, QuestionEnv) and len(env.toolbox) else None
    lacks = _lacks(template, env, style)
    if lacks:
        styles = [other.name for other in FORMATS.values() if style and not _lacks(template, env, other)]
        way = f"choose another call format: --option format={' or '.join(styles)}" if styles else _TEMPLATE
        raise TemplateError(f"{template.name} has a chat template {lacks}; {way}")


def _lacks(template: Template, env: TextEnv, style: Format | None) -> str:
    """Return what a template lacks for `env` with the call format `style`; empty where nothing is missing."""
    tools = env.toolbox.schemas if isinstance(env, QuestionEnv) and style is not None and style.native else []
    opening = env.messages("question") if isinstance(env, QuestionEnv) else [{"role": "user", "content": "question"}]
    for role in sorted(_roles(env, style)):
        if reason := template.refuses(role, opening, tools):
            return f"that cannot carry the role {role!r} that this environment answers in ({reason})"
    if style is not None and style.native and not template.shows(tools, opening):
        return "that does not show tools to the model"
    return ""


def _roles(env: TextEnv, style: Format | None) -> set[str]:
    """Return the roles that `env` answers in; an environment without a call format answers as the user."""
    if style is None:
        return {"user"}
    names: Iterable[str | None] = [None, *(env.toolbox.tools if isinstance(env, QuestionEnv) else ())]
    return {style.observe("", name)[0] for name in names}
