"""The options of an environment, as a command or a file names them; its tools' isolation levels."""

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

    # Line breaks of these texts are those of `--help`, so some lines are long.
    tasks: str | None = None
    """The tasks: a file (JSONL, JSON, CSV, Parquet; fields `problem, answer`, `question, answer` or as verl has them),
    a folder in the layout of the Hugging Face hub, a data set (`gsm8k`, `math`, `math500`, `aime24`, `aime25`, `amc23`,
    `hmmt25`, `brumo25`, `cmimc25`, `minerva`, `olympiadbench`, `omni-math`, `dapo-math`, `deepscaler`, `hotpotqa`,
    `nq`, `2wiki`, `musique`, `bamboogle`, `triviaqa`, `popqa`, or `OWNER/NAME` on the Hugging Face hub), or
    `reasoning-gym:NAME,NAME`. By default the environment generates tasks."""  # noqa: E501
    difficulty: tuple[int, ...] | None = None
    """Difficulties of generated tasks, 1 to 5."""
    shots: int | str = 0
    """Worked examples in front of a question: how many of the expert's, or a JSONL file of `messages`."""  # noqa: E501
    option: tuple[str, ...] = ()
    """Other options of the environment as `name=value`; the value is TOML, and a bare word is a string. They add to
    those of a recipe, and change the ones that they name."""  # noqa: E501

    def kwargs(self) -> dict[str, Any]:
        """Return the arguments for the environment's constructor.

        Raises:
            ValueError: An `option` has no `=`, or something is given twice.
        """
        shots = None if self.shots == 0 else self.shots
        # These three have flags of their own; None is one that is not given.
        flag_values = {"shots": shots, "tasks": self.tasks, "difficulty": self.difficulty}
        arguments = {name: value for name, value in flag_values.items() if value is not None}
        for name, value in parse_named_values("option", self.option).items():
            if name in arguments:
                raise ValueError(
                    f"{name} is given twice, by --{name} and by --option {name}={value}; "
                    "give it once"
                )
            arguments[name] = value
        return arguments

    def merge_recipe(self, options: Iterable[str]) -> "EnvOptions":
        """Return the command's options (`self`) merged with those of a recipe.

        Args:
            options: The recipe's options, as `name=value`. An option that the command also names is
                left out.

        Returns:
            The options of both. If the command has `--option tasks=…`, the field `tasks`, which the
            recipe has filled, is unset; so are `difficulty` and `shots`.

        Raises:
            ValueError: An option of the command is given twice, or has no `=`.
        """
        command_values = parse_named_values("option", self.option)
        recipe_options = [item for item in options if item.partition("=")[0] not in command_values]
        return EnvOptions(
            tasks=None if "tasks" in command_values else self.tasks,
            difficulty=None if "difficulty" in command_values else self.difficulty,
            shots=0 if "shots" in command_values else self.shots,
            option=(*recipe_options, *self.option),
        )


def parse_named_values(flag: str, items: Iterable[str]) -> dict[str, Any]:
    """Parse items of the form `name=value`: ("k=3", "split=test") -> {"k": 3, "split": "test"}.

    Args:
        flag: The name of the command's flag that the items were given by, for the error.
        items: The items. A value that is not TOML is a string without quotes.

    Raises:
        ValueError: An item has no `=`, or a name is given twice.
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
        except ValueError:  # it is not TOML, or too large or nested too deeply
            values[name] = value
    return values


def levels_of(env: TextEnv) -> dict[str, str]:
    """Return the isolation levels of an environment's tools that have one, by the tool's name."""
    return env.toolbox.levels if isinstance(env, QuestionEnv) else {}


def check_levels(env: TextEnv) -> None:
    """Check, before an episode begins, that this machine can isolate an environment's tools.

    Raises:
        LevelRefused: It cannot at the level of a tool. The message says why, and how to allow a
            weaker level.
    """
    for level in levels_of(env).values():
        if level in LEVELS:  # a tool of another package may have levels that only it knows
            require(level)


def to_toml_value(value: Any) -> str:
    """Return a JSON value as TOML on one line: {"k": [1]} -> {"k" = [1]}."""
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(str(key))} = {to_toml_value(item)}" for key, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml_value, value))}]"
    return json.dumps(value, default=str)
