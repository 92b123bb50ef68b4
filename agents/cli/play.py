"""The command `turngym play`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import tyro

from ...envs.options import EnvOptions, check_levels
from ...envs.split_episodes import begin, make_with_examples
from ..players import play_at_terminal
from .evaluate import Environment
from .terminal import console, mistakes


@dataclass(frozen=True)
class Play:
    """Play an environment in the terminal."""

    env: tyro.conf.Positional[str] = "turngym/MathPython-v0"
    """Environment id."""
    task: int | None = None
    """Index of the task; by default a random one."""
    seed: int | None = None
    """Seed of the environment."""
    options: Environment = EnvOptions()

    def run(self) -> int:
        with mistakes():
            env = make_with_examples(self.env, self.options.kwargs())
            check_levels(env)
            _, info = (
                env.reset(seed=self.seed) if self.task is None else begin(env, self.task, self.seed)
            )
        with mistakes(), closing(env):
            play_at_terminal(env, info["messages"], console)
        return 0
