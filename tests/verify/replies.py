"""Hostile replies, played in every environment: none may end an episode without a verdict, nor raise.

An episode is void only where the machine fails. A policy that could void one would choose which of its episodes count.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from turngym.envs.outcomes import Outcome
from turngym.envs.text_env import TextEnv
from turngym.tests.verify.rows import Row, Tally

VOID = (Outcome.TOOL_ERROR, Outcome.INFRA_ERROR)
PIECES = (
    *(
        "\\boxed{",
        "}",
        "<answer>",
        "</answer>",
        "<tool_call>",
        "</tool_call>",
        "<python>",
        "</python>",
        "<search>",
    ),
    *(
        "</search>",
        "<think>",
        "</think>",
        "```python\n",
        "```",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"name"',
        '"arguments"',
    ),
    *(
        '"python"',
        '"search"',
        ":",
        ",",
        "'",
        '"',
        "=",
        "\n",
        "\0",
        "\ud83d",
        "\udc00",
        "\u200b",
        "\\u0000",
        "\\ud800",
    ),
    *(
        "NaN",
        "1e999",
        "-0",
        "9" * 50,
        "0x" + "f" * 40,
        "\\frac",
        "\\sqrt",
        "^",
        "_",
        "<",
        "%",
        "$",
        "\\text{",
        "a",
        "#",
    ),
    *(
        "go to ",
        "open ",
        "take ",
        "look",
        "print(",
        "f(a=",
        "1",
        "None",
        "...",
        "ｏｐｅｎ",
        "𝟎",
        "١",
        "é",
        "两",
        "🍎",
        "\x1b[2J",
    ),
)
VALUES = (
    *(
        "''",
        "'a'",
        "'\\ud800'",
        "'\\x00'",
        "'" + "a" * 5000 + "'",
        "-1",
        "0",
        "10**9",
        "1000000000",
        "-1000000000",
    ),
    *(
        "'9**9**9**9'",
        "'1/0'",
        "1e308",
        "1e999",
        "-1e308",
        "nan",
        "1j",
        "True",
        "None",
        "[]",
        "[1, 'a']",
        "{}",
        "{'a': 1}",
        "{1}",
        "()",
        "...",
    ),
    *(
        "[" * 40 + "]" * 40,
        "9" * 4000,
        "0x" + "f" * 5000,
        "'1e999999999'",
        "'../../..'",
        "'%s%n'",
        "b'a'",
        "f(x=1)",
    ),
)
LONG = (
    *(
        "a" * 70_000,
        "é" * 40_000,
        "\n" * 70_000,
        "<think>" * 9000,
        "</think>" * 9000,
        "\\boxed{" * 9000,
        "[" * 5000,
    ),
    *(
        "\\boxed{" + "9" * 6000 + "}",
        "\\boxed{10^{10^{10}}}",
        "\\boxed{9**9**9**9}",
        "\\boxed{" + "9" * 4400 + "/7}",
    ),
    *(
        "\\boxed{1e" + "9" * 400 + "}",
        "\\boxed{" + "1," * 2400 + "}",
        "<answer>" + "x" * 6000 + "</answer>",
    ),
    *(
        "[f(a=" + "(" * 5000 + ")]",
        "[f(" + "a=" * 3000 + ")]",
        "```python\n" * 3000,
        '{"a":' * 3000,
        "[f()" + ", f()" * 3000,
    ),
    *(
        "<python>" + "x = 1\n" * 90_000 + "</python>",
        "<search>" + "q" * 5000 + "</search>",
        "f" + ".a" * 3000 + "()",
    ),
)


@dataclass(frozen=True)
class Place:
    """An environment, by a name of its own, and calls that an agent can write there."""

    name: str
    make: Callable[[], TextEnv]
    calls: Mapping[str, tuple[str, ...]] | None = None  # names of functions, and of their arguments


class Replies:
    """Draws replies: long ones, pieces in any order, calls with hostile values, and right actions with a fault."""

    def __init__(self, rng: random.Random, calls: Mapping[str, tuple[str, ...]] | None) -> None:
        self.rng, self.calls = rng, calls or {"python": ("code",), "search": ("query",), "done": ()}

    def draw(self, gold: list[str]) -> str:
        kind = self.rng.random()
        if kind < 0.05:
            return self.rng.choice(LONG)
        if kind < 0.3:
            return "".join(self.rng.choices(PIECES, k=self.rng.randint(0, 25)))
        if kind < 0.5:
            return f"[{', '.join(self._pythonic() for _ in range(self.rng.randint(1, 3)))}]"
        if kind < 0.65:
            return self._json()
        if not gold:
            return "".join(self.rng.choices(PIECES, k=3))
        right = self.rng.choice(gold)
        return right if kind > 0.85 else self._broken(right)

    def _pythonic(self) -> str:
        name = self.rng.choice(list(self.calls))
        given = [
            f"{key}={self.rng.choice(VALUES)}"
            for key in self.calls[name]
            if self.rng.random() < 0.9
        ]
        return f"{name}({', '.join(given)})"

    def _json(self) -> str:
        name = self.rng.choice(list(self.calls))
        values: list[Any] = [
            "",
            "a" * 3000,
            "\ud800",
            "\0",
            -1,
            10**400,
            1e308,
            True,
            None,
            [],
            {"a": {}},
            [[[]]],
            "print(1)",
            "9**9**9**9",
            "1/0",
            "(" * 500,
        ]
        arguments = {key: self.rng.choice(values) for key in self.calls[name]}
        body = json.dumps({"name": name, "arguments": arguments})
        return self.rng.choice(
            ("<tool_call>{}</tool_call>", "<tool_call>\n{}\n</tool_call>", "{}", "```json\n{}\n```")
        ).format(body)

    def _broken(self, text: str) -> str:
        """Return a text with pieces put in, left out or repeated."""
        for _ in range(self.rng.randint(1, 4)):
            start = self.rng.randint(0, len(text))
            end = self.rng.randint(start, min(len(text), start + 10))
            piece = self.rng.choice((*PIECES, text[start:end] * 2, self.rng.choice(VALUES)))
            text = text[:start] + piece + text[end:]
        return text


def play(place: Place, count: int, seed: int, copies: float = 0.02) -> Row:
    """Play `count` replies; a case holds where the step gives an observation, an outcome that counts, and plain info.

    After a share of the replies, `copies`, the episode is forked, written down, and goes on in the fork.
    """
    tally = Tally(f"{place.name}: hostile replies void no episode, and raise nothing")
    rng, env = random.Random(f"{seed} {place.name}"), place.make()
    replies = Replies(rng, place.calls)
    for number in range(count):
        if not env.live:
            env.reset(seed=rng.randrange(10**6))
        reply = replies.draw(_gold(env))
        tally.add(f"{number} {reply[:60]!r}", _fault(env, reply))
        if env.live and rng.random() < copies:
            twin = env.fork()
            env.snapshot()
            env.close()
            env = twin
    env.close()
    return tally.row()


def _gold(env: TextEnv) -> list[str]:
    try:
        return env.gold()[:5]
    except (
        TypeError,
        RuntimeError,
        NotImplementedError,
    ):  # it has no expert, or the expert knows no way from here
        return []


def _fault(env: TextEnv, reply: str) -> str:
    try:
        observation, _, _, _, info = env.step(reply)
    except Exception as error:
        env.live = False
        return f"{type(error).__name__}: {error}"[:200]
    if info.get("outcome") in VOID:
        return f"{info['outcome']}: {info.get('error', '')}"[:200]
    if not env.observation_space.contains(observation):
        return f"an observation of {len(observation)} characters"
    try:
        json.dumps(info, allow_nan=False)
    except ValueError as error:
        return f"info: {error}"[:200]
    return ""


def places() -> Iterator[Place]:
    """Yield the environments that need no package of others."""
    from turngym.envs import registry

    def place(name: str, **options: Any) -> Place:
        spelt = " ".join(str(value) for value in options.values())

        def make() -> TextEnv:
            env = registry.make(f"turngym/{name}-v0", **options).unwrapped
            assert isinstance(env, TextEnv)
            return env

        return Place(f"{name} {spelt}".strip(), make)

    yield place("Math")
    yield place("Math", answers="lenient")
    for format in ("hermes", "llama-json", "pythonic", "tags", "fenced"):
        yield place("MathPython", format=format, timeout=2.0)
    yield place("Search", format="tags")
    yield place("Search", format="hermes")
    yield place("Household")
    yield place("LateBloomer")
    yield place("Distractor")
    yield place("ManyWays")


def reasoning() -> Iterator[Place]:
    """Yield the data sets of reasoning-gym."""
    from turngym.envs.math import make_math
    from turngym.envs.math.reasoning.tasks import offered

    names = offered()
    for first in range(0, len(names), 9):
        some = ",".join(names[first : first + 9])
        yield Place(
            f"reasoning-gym {some[:40]}…", partial(make_math, tasks=f"reasoning-gym:{some}")
        )


def suites(*only: str) -> Iterator[Place]:
    """Yield the environments of suites whose packages are installed; of some packages only, where they are named."""
    import inspect
    from importlib.util import find_spec

    packages = {name for name in only or ("bfcl_eval", "tau2", "scienceworld") if find_spec(name)}
    if "bfcl_eval" in packages:
        from turngym.envs.suites.bfcl import CONVERSATIONS, SINGLE, make_bfcl
        from turngym.envs.suites.calls import MODULES, SOURCES, import_official

        calls: dict[str, tuple[str, ...]] = {}
        for name, module in MODULES.items():
            for method, function in inspect.getmembers(
                getattr(import_official(f"{SOURCES}.{module}"), name), inspect.isfunction
            ):
                if not method.startswith("_"):
                    calls[method] = tuple(inspect.signature(function).parameters)[1:]
        yield Place("BFCL replies", lambda: make_bfcl(SINGLE), calls)
        yield Place("BFCL conversations", lambda: make_bfcl(CONVERSATIONS), calls)
    if "tau2" in packages:
        from turngym.envs.suites import tau2
        from turngym.tests.verify.suites.tau2 import Customer

        for domain in tau2.DOMAINS:
            user: Any = None if domain == "telecom" else Customer()
            tasks = tau2.Tau2Tasks(domain, "all", held=True)
            calls = {}
            for task in tasks:
                for action in task.evaluation_criteria.actions or []:
                    calls[action.name] = tuple(action.arguments)
            calls |= {"done": ()}
            yield Place(f"tau2 {domain}", partial(tau2.Tau2, tasks, user), calls)
    if "scienceworld" in packages:
        from turngym.envs.suites import make_scienceworld

        yield Place("ScienceWorld", make_scienceworld)
