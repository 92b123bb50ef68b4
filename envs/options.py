"""The options of an environment as a command or a file names them, and the isolation of its tools."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..tools.files import parse_toml
from ..tools.python import LEVELS, require
from .question.env import QuestionEnv
from .text_env import TextEnv


@dataclass(frozen=True)
class EnvOptions:
    """Options of the environment."""

    tasks: str | None = None
    """The tasks: a file (JSONL, JSON, CSV, Parquet; fields `problem, answer`, `question, answer` or as verl has them),
    a folder in the layout of the Hugging Face hub, a data set (`gsm8k`, `math`, `math500`, `aime24`, `aime25`, `amc23`,
    `hmmt25`, `brumo25`, `cmimc25`, `minerva`, `olympiadbench`, `omni-math`, `dapo-math`, `deepscaler`, `hotpotqa`,
    `nq`, `2wiki`, `musique`, `bamboogle`, `triviaqa`, `popqa`, or `OWNER/NAME` on the Hugging Face hub), or
    `reasoning-gym:NAME,NAME`. By default the environment generates tasks."""
    difficulty: tuple[int, ...] | None = None
    """Difficulties of generated tasks, 1 to 5."""
    shots: int | str = 0
    """Worked examples in front of a question: how many of the expert's, or a JSONL file of `messages`."""
    option: tuple[str, ...] = ()
    """Other options of the environment as `name=value`; the value is TOML, and a bare word is a string. They add to
    those of a recipe, and change the ones that they name."""

    def kwargs(self) -> dict[str, Any]:
        """Return the constructor arguments.

        Raises ValueError where an `option` has no `=`, or something is given twice.
        """
        shots = None if self.shots == 0 else self.shots
        fields = {"shots": shots, "tasks": self.tasks, "difficulty": self.difficulty}
        values = {name: value for name, value in fields.items() if value is not None}
        for name, value in named_values("option", self.option).items():
            if name in values:
                raise ValueError(
                    f"{name} is given twice, by --{name} and by --option {name}={value}; give it once"
                )
            values[name] = value
        return values

    def over(self, options: Iterable[str]) -> "EnvOptions":
        """Return these options with those of a recipe, `options`, that these do not name.

        A `difficulty`, `tasks` or `shots` among the options of a command stands in place of the recipe's field.
        Raises ValueError where an option is given twice, or has no `=`.
        """
        values = named_values("option", self.option)
        others = [item for item in options if item.partition("=")[0] not in values]
        return EnvOptions(
            tasks=None if "tasks" in values else self.tasks,
            difficulty=None if "difficulty" in values else self.difficulty,
            shots=0 if "shots" in values else self.shots,
            option=(*others, *self.option),
        )


def named_values(flag: str, items: Iterable[str]) -> dict[str, Any]:
    """Return the values of `name=value`, which are TOML or bare words; `flag` names the option that has them.

    Raises ValueError where one has no `=`, or a name is given twice.
    """
    values: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if name in values:
            raise ValueError(
                f"--{flag} {name} is given twice, the second time as {item!r}; give it once"
            )
        if not equals:
            raise ValueError(
                f"--{flag} {item!r} is not of the form name=value, such as max_turns=3"
            )
        try:
            values[name] = parse_toml(f"value = {value}")["value"]
        except ValueError:  # no TOML, or too much of it
            values[name] = value
    return values


def levels_of(
    env: TextEnv,
) -> dict[str, str]:  # the isolation levels of the tools of `env` that have one, by name
    return env.toolbox.levels if isinstance(env, QuestionEnv) else {}


def check_levels(env: TextEnv) -> None:
    """Find out before an episode begins whether this machine can isolate the tools of `env` as asked.

    Raises LevelRefused where it cannot; the message says why and how to allow a weaker level.
    """
    for level in levels_of(env).values():
        if level in LEVELS:  # a tool of another package has its own
            require(level)


def _literal(value: Any) -> str:
    """Return a value of JSON as TOML has it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(str(key))} = {_literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, default=str)
