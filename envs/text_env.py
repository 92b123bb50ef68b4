"""The environment base class: text in, text out, many turns, forkable.

An author subclasses `TextEnv`; users call `reset` and `step` as in Gymnasium, and `fork`,
`snapshot` and `restore`.

Invariant: an episode depends only on the random generator's state at its beginning, its reset
options, and the actions taken. So any episode can be copied (`fork`), written down (`snapshot`) and
replayed (`restore`).
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np

from ..tools import ToolFailure
from ..tools.thoughts import without_thoughts
from .examples import Examples
from .outcomes import EnvFailure, Outcome, Reply, StopReason, outcome_of
from .rewards import Rewards, add_rewards
from .spaces import TextSpace
from .tasks import Message

# Outcomes of an episode in which the agent could earn no reward, good or bad.
_OUTCOMES_WITHOUT_REWARD = (Outcome.TOOL_ERROR, Outcome.INFRA_ERROR)


@dataclass(slots=True)
class TurnRecord:
    """One turn of an episode: the action, and what the environment gave back.

    Args:
        action: The agent's text, with its thoughts.
        role: Who speaks the observation in the chat: `user` or `tool`.
        observation: The environment's text.
        reward: The reward of this turn; NaN if a tool or the environment failed.
        stop: Why the episode ended with this turn; None if it goes on.
        reward_sums: The named rewards so far, as `add_rewards` returns them; empty if none has a
            name.
    """

    action: str
    role: str
    observation: str
    reward: float
    stop: StopReason | None
    reward_sums: dict[str, dict[str, float]]


class TextEnv(gymnasium.Env[str, str]):
    """A Gymnasium environment whose observations and actions are text.

    Authors write `on_reset` and `on_step` and, if there is an expert, `gold`. When an episode is
    forked, the attributes named in `shared` are read-only and shared, attributes with a `fork`
    method are forked by it, and all others are deep-copied.

    Args:
        max_turns: The number of actions after which an episode is truncated.

    Raises:
        ValueError: `max_turns` is not a whole number, or below 1.
        gymnasium.error.ResetNeeded: `step` is called before `reset` or after the episode ended, or
            `reset` in another thread replaced the episode during the step.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own annotation)
    shared: ClassVar[frozenset[str]] = frozenset(
        {"observation_space", "action_space", "spec", "examples"}
    )
    # Whether `on_step` gets the whole action; by default the agent's thoughts are cut out of it.
    reads_thoughts: ClassVar[bool] = False

    def __init__(self, max_turns: int = 8) -> None:
        """Make an environment whose first episode begins with `reset`.

        Args:
            max_turns: The number of actions after which an episode is truncated.
        """
        if not isinstance(max_turns, int | np.integer):
            raise ValueError(f"max_turns is {max_turns!r}; it must be a whole number, such as 5")
        if max_turns < 1:
            raise ValueError(f"max_turns is {max_turns}; an episode needs at least 1 turn")
        self.max_turns = max_turns
        self.observation_space = TextSpace()
        self.action_space = TextSpace()
        self.examples = Examples()  # worked examples in front of each question
        self.turn = 0  # the number of turns taken
        self.live = False  # whether an episode has begun and not ended
        self.task_id = ""  # set by `on_reset` if tasks have names
        self.category = ""  # set by `on_reset` if reports count several kinds of tasks apart
        self._start: dict[str, Any] = {}  # the generator's state and the options of `reset`
        self._opening: tuple[str, dict[str, Any]] = "", {}  # what `reset` returned
        self._last_observation = ""
        self._turns: list[TurnRecord] = []
        self._reward_sums: dict[str, dict[str, float]] = {}  # of the named rewards so far
        # The digest of the opening and of the first `_digested_turns` turns; "" if there is none.
        self._digest_so_far = ""
        self._digested_turns = 0

    @property
    def actions(self) -> list[str]:
        """The actions taken in this episode."""
        return [turn.action for turn in self._turns]

    @property
    def turn_rewards(self) -> list[float]:
        """The reward of each turn of this episode."""
        return [turn.reward for turn in self._turns]

    # -- what an author writes -----------------------------------------------------------------

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Begin an episode and return the first observation; draw randomness only from `rng`."""
        raise TypeError(f"{type(self).__name__} must define on_reset(rng, options) -> str")

    def on_step(self, text: str) -> Reply:
        """Answer one action, from which thoughts are cut out unless `reads_thoughts` is set."""
        raise TypeError(f"{type(self).__name__} must define on_step(text) -> Reply")

    def without_thoughts(self, action: str) -> str:
        """Return an action without the agent's thoughts; empty if a thought is never closed."""
        return without_thoughts(action)

    def gold(self) -> list[str]:
        """Return an expert's actions for the rest of this episode; never shown to the agent."""
        raise TypeError(f"{type(self).__name__} has no expert: define gold() -> list[str]")

    def plant(self, canary: str) -> bool:
        """Replace every gold answer by the text `canary` from the next `reset` on.

        A check plants a canary and then looks for it in everything the agent reads, where no gold
        answer may appear.

        Returns:
            Whether there is a gold text to replace; False if the gold is a way of acting.
        """
        return False

    def same(self, first: str, second: str) -> bool:
        """Return whether two answers to one task mean the same; majority votes are counted by it.

        Args:
            first: An answer as `info["answer"]` has it.
            second: Another answer to the same task.
        """
        return first == second

    def messages(self, observation: str) -> list[Message]:
        """Return the chat messages an episode opens with."""
        return [{"role": "user", "content": observation}]

    def with_examples(self, messages: list[Message]) -> list[Message]:
        """Return the opening messages with worked examples, if any, in front of the question."""
        if not self.examples.shots:
            return messages
        return self.examples.put_before_question(messages)

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools' JSON schemas for a chat template; none if the prompt explains them."""
        return []

    # -- Gymnasium -------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seeds the random generator; if None, it goes on from its present state.
            options: Passed to `on_reset`, as a copy.

        Returns:
            The first observation, and `info` with `messages` (the opening chat), `tools` (their
            JSON schemas), `task_id`, and `category` if the task has one.
        """
        super().reset(seed=seed)
        # What `snapshot` writes down of the beginning. It is set only once the episode has begun:
        # if `on_reset` raises, no episode is left to step or to write down.
        start = {
            "rng": self.np_random.bit_generator.state,
            "options": copy_data(options) if options else {},
        }
        self.live = False
        self.turn = 0
        self._turns = []
        self._reward_sums = {}
        self._start = {}
        # `on_reset` may change the options, so it gets a copy.
        options_copy = copy_data(options) if options else {}
        first_text = self.on_reset(self.np_random, options_copy)
        observation = _to_encodable_text(first_text, env=self, method="on_reset")
        info = copy_data(
            {
                "messages": self.with_examples(self.messages(observation)),
                "tools": self.tool_schemas(),
                "task_id": self.task_id,
            }
        )
        if self.category:
            info["category"] = self.category
        self._start = start
        self._opening = (observation, info)
        self._last_observation = observation
        self._digest_so_far = ""
        self._digested_turns = 0
        self.live = True
        # The caller may change `info`, but the digest of the episode needs it as it is.
        return observation, copy_data(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn.

        Args:
            action: The agent's text.

        Returns:
            Gymnasium's five: observation, reward, terminated, truncated and `info`. `info` has
            `turn`, `messages` (the observation as a chat message), the reply's own `info`, the sums
            of named `rewards` and their `weights` if there are any, `valid` if the reply says it,
            and at the end of the episode `stop` and `outcome`. The reward of a turn that ended in
            `tool_error` or `infra_error` is NaN, not 0: the agent had no chance to earn one.

        Raises:
            gymnasium.error.ResetNeeded: The episode has ended or never began, or `reset` was called
                in another thread during the step.
        """
        if not self.live:
            raise gymnasium.error.ResetNeeded(
                "this episode has ended (or never began): call reset() before step()"
            )
        if not isinstance(action, str):
            raise TypeError(f"action is a {type(action).__name__}; this environment takes str")
        reply = self._reply_to(action)
        observation = _to_encodable_text(reply.text, env=self, method="on_step")
        self.turn += 1
        stop = reply.stop
        if stop is None and self.turn >= self.max_turns:
            stop = StopReason.MAX_TURNS
        outcome = None if stop is None else outcome_of(stop)
        if outcome in _OUTCOMES_WITHOUT_REWARD:
            reward = float("nan")
            self._reward_sums = {}
        else:
            reward = float(reply.reward)
            if isinstance(reply.reward, Rewards):  # several rewards, each with a name
                self._reward_sums = add_rewards(self._reward_sums, reply.reward)
        self.live = stop is None
        self._last_observation = observation
        self._turns.append(
            TurnRecord(action, reply.role, observation, reward, stop, self._reward_sums)
        )
        info = self._step_info(reply, observation, stop, outcome)
        terminated = outcome is Outcome.DONE
        truncated = stop is not None and not terminated
        return observation, reward, terminated, truncated, info

    def _reply_to(self, action: str) -> Reply:
        """Return the reply of `on_step` to an action.

        If a tool or the environment fails, the reply is empty and ends the episode.

        Raises:
            TypeError: `on_step` does not return a `Reply`.
            gymnasium.error.ResetNeeded: `reset` was called in another thread meanwhile.
        """
        start = self._start
        # If `on_step` raises, the episode cannot go on. Otherwise `step` sets `live` again.
        self.live = False
        try:
            text = action if self.reads_thoughts else self.without_thoughts(action)
            reply = self.on_step(text)
        except ToolFailure as failure:
            reply = Reply("", stop=StopReason.TOOL_ERROR, info={"error": str(failure)})
        except EnvFailure as failure:
            reply = Reply("", stop=StopReason.INFRA_ERROR, info={"error": str(failure)})
        if not isinstance(reply, Reply):
            raise TypeError(
                f"{type(self).__name__}.on_step gives {reply!r:.60}; it must return a Reply"
            )
        # Each `reset` makes a new dict `_start`. If it is another object now, this reply belongs to
        # the episode before, and must not change the new one.
        if self._start is not start:
            raise gymnasium.error.ResetNeeded(
                "reset() began another episode during this step; its answer is dropped"
            )
        return reply

    def _step_info(
        self, reply: Reply, observation: str, stop: StopReason | None, outcome: Outcome | None
    ) -> dict[str, Any]:
        """Return the `info` of a turn, as `step` describes it.

        Args:
            reply: The reply of the environment.
            observation: Its text.
            stop: Why the episode ends with this turn; None if it goes on.
            outcome: The outcome of the episode; None if it goes on.
        """
        info: dict[str, Any] = {
            "turn": self.turn,
            "messages": [{"role": reply.role, "content": observation}],
        }
        if reply.info or self._reward_sums:
            # The environment may later change the values in its reply, so `info` gets copies.
            info |= copy_data({**reply.info, **self._reward_sums})
        if reply.valid is not None:
            info["valid"] = reply.valid
        if stop is not None:
            info["stop"] = str(stop)
            info["outcome"] = str(outcome)
        return info

    # -- copies ----------------------------------------------------------------------------------

    def fork(self) -> Self:
        """Return an independent copy of the environment in the middle of the same episode.

        Attributes named in `shared` are the same objects in both, those with a method `fork` are
        forked, and all others, also the random generator, are deep-copied.
        """
        twin = copy.copy(self)
        # `deepcopy` first looks up the id of each object here, and takes the value as its copy.
        # Records of turns and the opening never change, so both environments can share them.
        memo: dict[int, Any] = {
            id(self): twin,
            id(self._turns): list(self._turns),
            id(self._opening): self._opening,
        }
        # All shared and forked attributes are entered before any attribute is copied, as the copied
        # ones may refer to them.
        for name, value in vars(self).items():
            if name in self.shared:
                memo[id(value)] = value
            elif id(value) not in memo and callable(getattr(value, "fork", None)):
                memo[id(value)] = value.fork()
        for name, value in vars(self).items():
            vars(twin)[name] = copy.deepcopy(value, memo)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a fork, as some parts (a tool's process) can be forked but not deep-copied."""
        return self.fork()

    def snapshot(self) -> dict[str, Any]:
        """Return the episode so far as JSON data, for `restore`.

        Returns:
            `rng` (the random generator's state at the beginning), `options` (of `reset`),
            `actions`, and `digest` (of all observations and rewards so far, by which `restore`
            notices a replay that differs).

        Raises:
            gymnasium.error.ResetNeeded: No episode has begun.
        """
        if not self._start:
            raise gymnasium.error.ResetNeeded(
                "there is no episode to write down: call reset() before snapshot()"
            )
        return {**copy.deepcopy(self._start), "actions": self.actions, "digest": self._digest()}

    def restore(self, snapshot: Mapping[str, Any]) -> str:
        """Replay the episode of a snapshot in this environment and return its last observation.

        Args:
            snapshot: The result of `snapshot`, of an environment with the same arguments.

        Raises:
            RuntimeError: An observation or a reward of the replay differs from the original.
        """
        self.np_random.bit_generator.state = snapshot["rng"]
        self.reset(options=dict(snapshot["options"]))
        for action in snapshot["actions"]:
            if self.live:
                self.step(action)
        if self._digest() != snapshot["digest"]:
            raise RuntimeError(
                f"replay of {len(snapshot['actions'])} actions diverged: the last observation is "
                f"{self._last_observation[:80]!r}, not the one in the snapshot; "
                "was it made with other constructor arguments?"
            )
        return self._last_observation

    def _digest(self) -> str:
        """Return a digest of all observations and rewards of this episode.

        Each turn's digest includes the one before. So only the turns since the last call are read.
        """
        if not self._digest_so_far:
            self._digest_so_far = _chain_digest("", *self._opening)
        for turn in self._turns[self._digested_turns :]:
            self._digest_so_far = _chain_digest(
                self._digest_so_far,
                turn.role,
                turn.observation,
                turn.reward,
                turn.stop,
                *turn.reward_sums.values(),
            )
        self._digested_turns = len(self._turns)
        return self._digest_so_far


def fork(
    env: gymnasium.Env[str, str], memo: dict[int, Any] | None = None
) -> gymnasium.Env[str, str]:
    """Return an independent copy of an environment and of all its wrappers, in the same state.

    Args:
        env: A `TextEnv`, wrapped or not.
        memo: The copies so far by the id of the original, as in `copy.deepcopy`. Only the recursion
            passes it.

    Raises:
        TypeError: The environment below the wrappers is not a `TextEnv`.
    """
    memo = {} if memo is None else memo
    if isinstance(env, gymnasium.Wrapper):
        wrapper_twin = copy.copy(env)
        memo[id(env)] = wrapper_twin
        # The inner environment comes first, as the wrapper's other attributes may refer to it.
        wrapper_twin.env = fork(env.env, memo)
        for name, value in vars(env).items():
            vars(wrapper_twin)[name] = copy.deepcopy(value, memo)
        return wrapper_twin
    if not isinstance(env, TextEnv):
        raise TypeError(f"{type(env).__name__} cannot fork: only turngym.TextEnv environments can")
    twin = env.fork()
    memo[id(env)] = twin
    return twin


def _to_encodable_text(text: Any, env: TextEnv, method: str) -> str:
    """Return an observation with `?` for each lone surrogate, which UTF-8 cannot encode.

    Args:
        text: The observation.
        env: The environment that gave it, for the error.
        method: The name of the method that returned it, for the error.

    Raises:
        TypeError: The observation is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"{type(env).__name__}.{method} gives {text!r:.60} as the observation; it must be a str"
        )
    if type(text) is str and text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def _chain_digest(previous: str, *values: Any) -> str:
    """Return a digest (16 hex digits) of JSON values and of the digest of all before them."""
    return hashlib.sha256(json.dumps([previous, *values]).encode()).hexdigest()[:16]


_IMMUTABLE = frozenset({str, int, float, bool, type(None)})  # types that need no copy


def copy_data(value: Any) -> Any:
    """Return a deep copy, for JSON data many times faster than by `copy.deepcopy`."""
    if type(value) is dict:
        return {
            key: item if type(item) in _IMMUTABLE else copy_data(item)
            for key, item in value.items()
        }
    if type(value) is list:
        return [item if type(item) in _IMMUTABLE else copy_data(item) for item in value]
    return copy.deepcopy(value)
