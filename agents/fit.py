"""Whether a chat template can hold a conversation with an environment, and what to choose where it cannot."""

from __future__ import annotations

from collections.abc import Iterable

from ..envs import TextEnv
from ..envs.question import QuestionEnv
from ..tools import FORMATS, Format
from .template import Template, TemplateError

_TEMPLATE = "put a template that can (for models that think: the training variant of theirs) into chat_template.jinja"


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
