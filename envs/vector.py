"""A vector of text environments."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
"""One flag for each environment of a vector."""


class TextVectorEnv(SyncVectorEnv):
    """Gymnasium's SyncVectorEnv with its default settings: the same results at a smaller cost.

    An environment whose episode ended is reset in the next step, which ignores its action.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gymnasium.Env[str, str]]]) -> None:
        super().__init__(env_fns)

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Take one turn in every environment.

        Args:
            actions: One action for each environment.

        Returns:
            Gymnasium's five, each with one item for each environment: observations, rewards,
            terminated, truncated, and infos (see `_stack_infos`).
        """
        observations: list[Any] = self._env_obs
        rewards: list[Any] = [0.0] * self.num_envs
        terminated = [False] * self.num_envs
        truncated = [False] * self.num_envs
        values_by_key: dict[str, dict[int, Any]] = {}
        has_ended = self._autoreset_envs.tolist()
        turns = zip(self.envs, actions, has_ended, strict=True)
        for i, (env, action, needs_reset) in enumerate(turns):
            if needs_reset:
                observations[i], info = env.reset()
            else:
                observations[i], rewards[i], terminated[i], truncated[i], info = env.step(action)
            for key, value in info.items():
                values_by_key.setdefault(key, {})[i] = value
        terminated_array = np.array(terminated)
        truncated_array = np.array(truncated)
        self._autoreset_envs = terminated_array | truncated_array
        return (
            tuple(observations),
            np.array(rewards),
            terminated_array,
            truncated_array,
            self._stack_infos(values_by_key),
        )

    def _stack_infos(self, values_by_key: dict[str, dict[int, Any]]) -> dict[str, Any]:
        """Return the infos of one step in the form that Gymnasium gives them in.

        Args:
            values_by_key: For each key of any `info`, its values by the number of the environment.

        Returns:
            For each key an array with one item for each environment, and for `_key` the flags of
            the environments whose `info` has the key.
        """
        infos: dict[str, Any] = {}
        for key, values in values_by_key.items():
            first_type = type(next(iter(values.values())))
            if issubclass(first_type, dict | np.ndarray):
                # These are nested: Gymnasium's own slower method does it.
                for i, value in values.items():
                    infos = self._add_info(infos, {key: value}, i)
                continue
            if first_type in (int, float, bool) or issubclass(first_type, np.number):
                array = np.zeros(self.num_envs, first_type)
            else:
                array = np.empty(self.num_envs, object)
            has_key = np.zeros(self.num_envs, np.bool_)
            env_numbers = list(values)
            array[env_numbers] = np.fromiter(values.values(), array.dtype, len(env_numbers))
            has_key[env_numbers] = True
            infos[key] = array
            infos[f"_{key}"] = has_key
        return infos
