"""Environment options from the command line and from recipes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EnvOptions:
    """What an environment is made with."""

    tasks: str | None = None
    """Questions: a JSONL file (`problem, answer`, or `question, answers`; `.gz` too), a data set (`gsm8k`, `math`,
    `math500`, `aime24`, `aime25`, `amc23`, `minerva`, `olympiadbench`, `dapo-math`, `deepscaler`, `hotpotqa`,
    `nq`, `2wiki`, `musique`, `bamboogle`, `triviaqa`, `popqa`, or `OWNER/NAME` on the hub), or
    `reasoning-gym:NAME,NAME`; the built-in generator when left out."""
    difficulty: tuple[int, ...] | None = None
    """Difficulties of generated tasks, 1 to 5."""
    option: tuple[str, ...] = ()
    """Further options of the environment as `name=value` (TOML values; bare words are strings)."""

    def kwargs(self) -> dict[str, Any]:
        """Return the constructor arguments.

        Raises:
            ValueError: an `option` has no `=`.
        """
        given: dict[str, Any] = {}
        if self.tasks is not None:
            given["tasks"] = self.tasks
        if self.difficulty is not None:
            given["difficulty"] = self.difficulty
        for item in self.option:
            name, equals, value = item.partition("=")
            if not equals:
                raise ValueError(f"--option {item!r} is no name=value pair; write, say, max_turns=3")
            given[name] = _value(value)
        return given


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
