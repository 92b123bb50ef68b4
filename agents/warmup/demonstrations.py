"""Demonstrations: an environment's expert plays its tasks, with some wrong actions on purpose.

A policy that learns from such play can do what the expert does and does not always do it, so that reinforcement
learning has something to select.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...envs import Message, TextEnv
from ...envs.splits import begin, task_count


class Expert(Protocol):
    """Chooses the next action from what was last observed; `command` is what it takes to have been done."""

    command: str

    def act(self, observation: str) -> str:
        """Return the next action."""


@dataclass(frozen=True)
class Demonstration:
    """One episode: the messages and tools it opens with, what was said in each turn, and the answers in between."""

    opening: list[Message]
    tools: list[dict[str, Any]]
    says: tuple[str, ...]
    answers: tuple[list[Message], ...]  # one less than `says`: nothing answers the last turn
    reward: float

    def texts(self) -> Iterator[str]:
        """Yield all that is written in the episode."""
        for message in (*self.opening, *(message for answer in self.answers for message in answer)):
            yield f"{message['role']}\n"
            yield str(message["content"])
        yield from self.says


def demonstrations(
    env: TextEnv, count: int, noise: float, seed: int, tasks: Sequence[int] = ()
) -> Iterator[Demonstration]:
    """Yield `count` episodes on tasks of `env` in order; the same arguments give the same episodes.

    Args:
        env: What is played; it needs a gold.
        count: How many episodes; tasks are played again when they run out.
        noise: Chance that a turn is wrong: another command that is allowed, or a turn of another task's gold.
        seed: Decides which turns are wrong, and how.
        tasks: Which; all by default.
    """
    tasks = tasks or range(task_count(env))
    for index in range(count):
        yield demonstrate(env, tasks, index % len(tasks), noise, random.Random(f"{seed}/{index}"))


def demonstrate(env: TextEnv, tasks: Sequence[int], place: int, noise: float, rng: random.Random) -> Demonstration:
    """Play one of `tasks` in a fork of `env`; wrong turns are from the gold of others of them."""
    env = env.fork()
    try:
        observation, info = begin(env, tasks[place], rng.getrandbits(31))
        opening, tools = info["messages"], info["tools"]
        expert = _expert(env)
        says: list[str] = []
        answers: list[list[Message]] = []
        reward = 0.0
        while env.live:
            says.append(expert.act(observation))
            if rng.random() < noise:
                says[-1] = expert.command = _wrong_action(env, tasks, rng)
            observation, earned, _, _, info = env.step(says[-1])
            answers.append(info["messages"])
            reward += earned
        return Demonstration(opening, tools, tuple(says), tuple(answers[:-1]), reward)
    finally:
        env.close()


class _Gold:
    """Says what the environment's gold says; `command` is what was said last, where that was something else."""

    command = ""

    def __init__(self, env: TextEnv) -> None:
        self.env = env

    def act(self, observation: str) -> str:
        return self.env.gold()[0]


def _expert(env: TextEnv) -> Expert:
    """Return what plays `env` well from what it is shown, where there is such a thing, else its gold."""
    own = getattr(env, "expert", None)
    expert: Expert = _Gold(env) if own is None else own()
    return expert


def _wrong_action(env: TextEnv, tasks: Sequence[int], rng: random.Random) -> str:
    """Return an action that the environment takes, though not for what it may lead to."""
    allowed = getattr(env, "admissible_commands", None)
    if allowed is not None:
        return str(rng.choice(allowed()))
    other = env.fork()
    try:
        begin(other, tasks[rng.randrange(len(tasks))], None)
        return rng.choice(other.gold())
    finally:
        other.close()
