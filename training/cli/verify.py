"""The command `turngym verify`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Verify:
    """Measure how far the promises of turngym hold; only in a source checkout."""


def verify_command(args: list[str]) -> Any:
    """Return the command `verify`. Raises ValueError where `args` ask for it in an installed package."""
    if args[:1] != ["verify"]:
        return Verify
    try:
        return import_module("...tests.verify.command", __package__).Verify
    except ModuleNotFoundError as error:
        if not f"{error.name}".endswith((".tests", ".tests.verify")):
            raise
        raise ValueError(
            "`turngym verify` needs a source checkout; the installed package leaves tests/ out"
        ) from None
