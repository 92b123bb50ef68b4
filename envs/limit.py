"""What `gymnasium.make(…, max_episode_steps=N)` adds: an episode that it cuts off says why it ended, as any other."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from .core import Outcome, StopReason


class Limited(gymnasium.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Adds `stop` and `outcome` to the last step of an episode that Gymnasium's TimeLimit below it ends."""

    def __init__(self, env: gymnasium.Env[str, str]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Take one turn."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated and "stop" not in info:
            info = {**info, "stop": str(StopReason.MAX_TURNS), "outcome": str(Outcome.TRUNCATED)}
        return observation, reward, terminated, truncated, info
