"""Players that act by text: an expert that knows the gold, a script, a person. Their episodes are trees too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from ..envs import TextEnv
from .trajectory import Answer, Leaf, Tree, failure, given, opening, take

NO_TOKENS = np.zeros(0, np.int32)  # players speak and are spoken to in text


class Player(Protocol):
    """Chooses the next action of an episode."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str | None:
        """Return the action for what was last observed; None to leave."""


class Expert:
    """Plays the environment's own gold actions: what a perfect agent would earn."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Return the first of the expert's remaining actions."""
        return env.gold()[0]


class Observer:
    """Plays from what it is shown alone, by the policy that the environment offers as `expert()`, if any."""

    def __init__(self) -> None:
        self._minds: WeakKeyDictionary[TextEnv, Any] = WeakKeyDictionary()

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Return the policy's next action; every environment has a policy of its own."""
        if env not in self._minds:
            make = getattr(env, "expert", None)
            if make is None:
                raise TypeError(f"{type(env).__name__} has no expert() that plays from observations; use `expert`")
            self._minds[env] = make()
        return str(self._minds[env].act(observation))


class Script:
    """Says what is written, one text a turn, then leaves: for one episode."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = iter(texts)

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str | None:
        """Return the next text."""
        return next(self.texts, None)


class Human:
    """Asks a person through `ask`, a function from the observation to what was typed."""

    def __init__(self, ask: Callable[[str], str]) -> None:
        self.ask = ask

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Show the observation and return what the person answers."""
        return self.ask(observation)


PLAYERS: dict[str, Callable[[], Player]] = {"expert": Expert, "observer": Observer}


def play(env: TextEnv, player: Player, task: int, seed: int = 0) -> Tree:
    """Let a player play one task in a fork of `env` and return a tree of one path, without tokens.

    What the environment raises while it answers ends the path as an infrastructure failure. A path that the player
    left has no leaf. What the player raises, and a `reset` that fails, is raised.
    """
    env = env.fork()
    try:
        observation, info = env.reset(seed=seed, options={"task": task})
        tree = Tree((seed, 0, task), task, info["task_id"])
        node, score = tree.add(opening(observation, info, NO_TOKENS)), 0.0
        while (text := player.act(env, observation, info)) is not None:
            answer = _answer(env, text)
            score += answer.reward
            said = given(node, "assistant", text, NO_TOKENS)
            node = tree.add(replace(said, reward=answer.reward, info=answer.info))
            if answer.stop is not None:
                tree.leaves.append(Leaf.ended(node, 0, answer.stop, score, answer.info))
                break
            role, observation = (str(answer.messages[0][name]) for name in ("role", "content"))
            node = tree.add(given(node, role, observation, NO_TOKENS))
            info = {"messages": answer.messages, **answer.info}
        return tree
    finally:
        env.close()


def play_all(
    env: TextEnv,
    player: Player,
    tasks: Sequence[int],
    samples: int,
    on_tree: Callable[[Tree], None] | None = None,
    threads: int = 8,
) -> list[Tree]:
    """Let a player play every task `samples` times, with seeds from 0; what `play` raises ends them all."""
    trees = []
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(play, env, player, task, seed) for task in tasks for seed in range(samples)]
        try:
            for job in jobs:
                trees.append(job.result())
                if on_tree is not None:
                    on_tree(trees[-1])
        finally:
            pool.shutdown(cancel_futures=True)  # an error, or Ctrl-C, does not wait for what has not begun
    return trees


def _answer(env: TextEnv, text: str) -> Answer:
    try:
        return take(env, text)
    except Exception as error:
        return failure({"error": f"{type(error).__name__}: {error}"})
