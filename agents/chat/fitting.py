"""What an environment is asked for to suit a stock model: a full prompt, and calls as the model writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...envs.registry import defaults_of
from ...tools import FORMATS

if TYPE_CHECKING:  # it needs the training extra
    from .template import Template

FITTED = ("system", "format")  # the options that may be chosen here


def fitting(env_id: str, options: Mapping[str, Any], template: Template | None) -> dict[str, Any]:
    """Return options for an environment to suit a stock model, where `options` leave them open.

    `system=True`, where the environment has such a prompt, and the call format that the template can carry.

    Args:
        env_id: The environment; it is not made.
        options: What was chosen for it.
        template: The model's; None where a server has it.
    """
    defaults = defaults_of(env_id)
    found: dict[str, Any] = {"system": True} if defaults.get("system") is False else {}
    style = FORMATS.get(str(defaults.get("format")))
    if template is not None and style is not None and style.native:
        found |= {"format": name} if (name := _format(template)) not in ("", style.name) else {}
    return {name: value for name, value in found.items() if name not in options}


def _format(template: Template) -> str:
    """Return the format in which a template writes calls, `tags` where it shows no tools; empty where neither fits."""
    function = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    tool = {"type": "function", "function": function}
    if (pair := template.answered_call()) and template.shows([tool]) and not template.refuses("tool", tools=[tool]):
        written = str.__str__(pair[0])
        for style in FORMATS.values():
            if style.native and style.parse(written, ("f",)).call is not None:
                return style.name
    return "tags" if not template.refuses("user") else ""
