"""The episodes that a check plays: environments made afresh, the actions tried in them, and what was seen of both.

What was seen is kept as text, so that episodes of other instances, threads and processes can be compared with it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import gymnasium

from ...envs import TextEnv
from ...envs.question.env import QuestionEnv
from ...envs.registry import make, spec_of
from ...envs.split_episodes import begin
from ...tools import PythonTool, ToolCall

LONGEST = 32  # turns of an expert's episode that are played: what is done at every turn is done this often at most
# Every call of a session that keeps its variables prints another number.
COUNTER = "n = globals().get('n', 0) + 1\nprint(n)"
_EXAMPLES = {
    "string": "1",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "null": None,
    "array": [],
    "object": {},
}


class Broken(Exception):
    """A promise that an environment does not keep: what broke, its value and the fix."""


@dataclass(frozen=True)
class Scenario:
    """An episode to play: the seed of its reset and the actions, of which an ended episode takes no more."""

    seed: int
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """An environment under check: its id, the options it is made with, and a seed for tasks and actions."""

    env_id: str
    options: Mapping[str, Any]
    seed: int = 0

    def bare(self) -> closing[TextEnv]:
        """Make the environment as rollouts do, without wrappers."""
        return closing(make(self.env_id, **self.options))

    def wrapped(self) -> closing[gymnasium.Env[str, str]]:
        """Make the environment as Gymnasium does."""
        return closing(gymnasium.make(spec_of(self.env_id), **self.options))

    @cached_property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Two experts' episodes, one of tools and words, and one whose end the expert leaves to chance."""
        with self.bare() as env:
            golds = [Scenario(seed, expert(env, seed)) for seed in range(self.seed, self.seed + 3)]
            tried, calls = words(env, self.seed), tuple(example_calls(env))
        mixed = Scenario(self.seed + 3, (*calls, *calls, *tried))
        return (*golds[:2], mixed, Scenario(golds[2].seed, (*golds[2].actions[:-1], *tried)))

    def episode(self, scenario: Scenario) -> list[str]:
        with self.bare() as env:
            return episode(env, scenario)


def moment(*seen: Any) -> str:
    return repr(seen)


def play(env: gymnasium.Env[str, str], actions: Sequence[str]) -> list[str]:
    seen = []
    for action in actions:
        answer = env.step(action)
        seen.append(moment(*answer))
        if answer[2] or answer[3]:
            break
    return seen


def episode(env: gymnasium.Env[str, str], scenario: Scenario) -> list[str]:
    return [moment(*env.reset(seed=scenario.seed)), *play(env, scenario.actions)]


def same(expected: Sequence[str], found: Sequence[str], what: str, turn: int = 0) -> None:
    """Raise `Broken` with `what` and the first moment in which two episodes, seen from `turn` on, are not the same."""
    for number, (one, other) in enumerate(
        zip_longest(expected, found, fillvalue="nothing, as it has ended"), turn
    ):
        if one != other:
            alike = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            start = max(alike - 40, 0)
            where = f"turn {number}" if number else "reset"
            raise Broken(
                f"{what}: at {where} it gave {_cut(other, start)} and not {_cut(one, start)}"
            )


def as_json(what: str, value: Any) -> str:
    """Return `value` as JSON text. Raises `Broken` where it does not come back from it as it was."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Broken(
            f"{what} is no JSON data ({error}), so no journal can hold it: {value!r:.200}"
        ) from None
    if json.loads(text) != value:
        raise Broken(
            f"{what} comes back from JSON as {text:.200}; use str keys, lists, numbers and strings"
        )
    return text


def expert(env: TextEnv, seed: int, task: int | None = None) -> tuple[str, ...]:
    """Return up to `LONGEST` actions of the expert; none where there is no usable one, which another clause minds."""
    actions: list[str] = []
    if task is None:
        env.reset(seed=seed)
    else:
        begin(env, task, seed)
    try:
        while env.live and len(actions) < LONGEST:
            actions.append(env.gold()[0])
            env.step(actions[-1])
    except Exception:
        return ()
    return tuple(actions)


def words(env: TextEnv, seed: int) -> tuple[str, ...]:
    env.action_space.seed(seed)
    return tuple(env.action_space.sample() for _ in range(3))


def example_calls(env: TextEnv, text: str | None = None) -> Iterator[str]:
    """Return one call of each tool, as the environment's format writes it, with `text` for every string in it."""
    if not isinstance(env, QuestionEnv):
        return
    for tool in env.toolbox.tools.values():
        arguments = _example({"type": "object", **tool.schema["function"]["parameters"]}, text)
        if isinstance(tool, PythonTool) and text is None:
            arguments = {"code": COUNTER}
        with suppress(
            ValueError
        ):  # where the format has no words for this call, no agent can make it
            yield env.format.render(ToolCall(tool.name, arguments))


def _example(field: Mapping[str, Any], text: str | None) -> Any:
    if "enum" in field:
        return field["enum"][0]
    if "anyOf" in field:
        return _example(field["anyOf"][0], text)
    if field.get("type") == "string" and text is not None:
        return text
    if field.get("type") == "object":
        return {
            name: _example(field["properties"][name], text) for name in field.get("required", ())
        }
    return _EXAMPLES[field.get("type", "string")]


def _cut(text: str, start: int, most: int = 120) -> str:
    return f"{'…' if start else ''}{text[start : start + most]}{'…' if len(text) > start + most else ''}"
