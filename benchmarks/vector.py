r"""Steps of vectors of environments: turngym's beside plain Gymnasium's and GEM's, one guessing game in all three.

    python benchmarks/vector.py [--quick] [--rounds 15]

All play "guess a number from 1 to 50 in 7 turns" with the same answers in one process: a `TextEnv` in a TextVectorEnv,
a plain `gymnasium.Env` in Gymnasium's SyncVectorEnv, and GEM's own game in GEM's SyncVectorEnv, each without other
wrappers. The plain one keeps nothing of an episode: no turns, messages or digests.

Microseconds are CPU time of the process a step, with the resets of ended episodes; medians of rounds in which all take
turns. GEM is left out where it cannot be imported; beside turngym[train,tasks] it needs
`pip install --no-deps gem-llm fire pylatexenc nltk msgspec termcolor`. The exit status is 1 where a step of ours costs
more than one of GEM's, or one of the largest vector much more than one of the smallest.
"""

from __future__ import annotations

import argparse
import logging
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv

from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.vector import TextVectorEnv

COUNTS = (64, 256, 1024)
LAST, TURNS = 50, 7
GUESS = re.compile(r"\\boxed{(\d+)}")
OPENING = (
    f"Guess a number from 1 to {LAST} in at most {TURNS} turns. After each guess you hear whether the number is higher "
    "or lower. Write your guess as \\boxed{17}; anything else in your answer is not read, so think as long as you like."
)
FLAT = 1.25  # the most by which a step of the largest vector may cost more than one of the smallest
STEPS = 16_384  # of all environments of a vector together, a round
Play = Callable[
    [list[str]], int
]  # from the answers of one round of steps to how many of them were steps


def judged(action: str, number: int, turn: int) -> tuple[str, bool | None]:
    """Return what the game says to a guess, and whether it was right; None where the guesser may go on."""
    found = GUESS.findall(action)
    if not found:
        return f"Turn {turn}: there was no guess.", False
    guess = int(found[-1])
    if guess == number:
        return f"Turn {turn}: {guess} is right.", True
    hint = "lower" if guess > number else "higher"
    return f"Turn {turn}: you guessed {guess}, and the number is {hint} than that.", None


class Guess(TextEnv):
    """The game as a `TextEnv`."""

    def __init__(self) -> None:
        super().__init__(max_turns=TURNS)

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Think of a number."""
        self.number = int(LAST * rng.random()) + 1
        return OPENING

    def on_step(self, text: str) -> Reply:
        """Judge a guess."""
        said, right = judged(text, self.number, self.turn + 1)
        return Reply(said, float(right or 0), None if right is None else StopReason.ANSWERED)


class Plain(gymnasium.Env[str, str]):
    """The game with nothing but what Gymnasium asks for."""

    observation_space = action_space = gymnasium.spaces.Text(1000)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Think of a number."""
        super().reset(seed=seed)
        self.number, self.turn = int(LAST * self.np_random.random()) + 1, 0
        return OPENING, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Judge a guess."""
        self.turn += 1
        said, right = judged(action, self.number, self.turn)
        return said, float(right or 0), right is not None, self.turn >= TURNS, {}


def in_gymnasium(kind: type[gymnasium.Env[str, str]], count: int) -> Play:
    """Return the step of a vector of Gymnasium's; the step behind an end resets, and counts for none."""
    vector: Any = (TextVectorEnv if kind is Guess else SyncVectorEnv)([kind] * count)
    vector.reset(seed=0)
    ended = np.zeros(count, bool)

    def play(actions: list[str]) -> int:
        nonlocal ended
        steps = count - int(ended.sum())
        _, _, terminated, truncated, _ = vector.step(tuple(actions))
        ended = terminated | truncated
        return steps

    return play


def in_gem(count: int) -> Play:
    """Return the step of a vector of GEM's, which resets what has ended in the same step."""
    from gem.envs.registration import make
    from gem.vector.sync_vector_env import SyncVectorEnv as Vector

    name = "game:GuessTheNumber-v0-hard"
    vector = Vector([name] * count, [lambda: make(name)] * count)
    vector.reset(seed=0)
    return lambda actions: len(vector.step(actions)[0])


def contenders(count: int) -> dict[str, Play]:
    """Return what can be measured with `count` environments."""
    found = {"turngym": in_gymnasium(Guess, count), "gymnasium": in_gymnasium(Plain, count)}
    try:
        return found | {"gem": in_gem(count)}
    except ImportError as error:
        print(f"GEM is left out: {error}")
        return found


def measured(count: int, rounds: int) -> dict[str, float]:
    """Return the microseconds of CPU time a step, by contender."""
    rng, plays = np.random.default_rng(0), contenders(count)
    seconds: dict[str, list[float]] = {name: [] for name in plays}
    for i in range(rounds + 1):
        answers = [
            [f"It may be \\boxed{{{n}}}." for n in row]
            for row in rng.integers(1, LAST + 1, (STEPS // count, count))
        ]
        for name, play in plays.items():
            began = time.process_time()
            steps = sum(play(actions) for actions in answers)
            if i:  # the first round warms up
                seconds[name].append((time.process_time() - began) / steps)
    return {name: 1e6 * median(times) for name, times in seconds.items()}


def main() -> int:
    """Measure, print, and return 1 where a figure misses its goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="3 rounds in less than a minute")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # of what GEM imports
    print(
        f"Python {platform.python_version()}, gymnasium {gymnasium.__version__}, {platform.machine()}"
    )
    print("envs   turngym us   gymnasium us   gem us   of gymnasium   of gem")
    ours, missed = [], []
    for count in COUNTS:
        us = measured(count, 3 if given.quick else given.rounds)
        gem = us.get("gem", float("nan"))
        ours.append(us["turngym"])
        print(
            f"{count:4}{us['turngym']:13.1f}{us['gymnasium']:15.1f}{gem:9.1f}"
            f"{us['gymnasium'] / us['turngym']:14.2f}x{gem / us['turngym']:8.2f}x"
        )
        if gem < us["turngym"]:
            missed.append(f"{count} environments are slower than GEM's")
    if ours[-1] > FLAT * ours[0]:
        missed.append(
            f"a step of {COUNTS[-1]} costs {ours[-1] / ours[0]:.2f} times one of {COUNTS[0]}"
        )
    print("\n".join(f"MISSED: {what}" for what in missed) or "all goals are met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
