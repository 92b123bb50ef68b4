"""The environment base class: text in, text out, many turns, forkable.

Invariant: everything an episode depends on is the generator state it began with, its reset options and the actions
taken, so any episode can be copied (`fork`), written down (`snapshot`) and repeated (`restore`).
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np

from ..tools import ToolFailure
from ..tools.thoughts import without_thoughts
from .examples import Examples
from .outcomes import EnvFailure, Outcome, Reply, StopReason, outcome_of
from .rewards import Rewards, added
from .spaces import TextSpace
from .tasks import Message


class TextEnv(gymnasium.Env[str, str]):
    """A Gymnasium environment whose observations and actions are text.

    Authors write `on_reset` and `on_step` and, where an expert exists, `gold`. Attributes named in `shared` are
    read-only and shared by forks, attributes with a `fork` method are forked by it, all others are deep-copied.

    Raises ValueError where `max_turns` is no whole number or below 1; gymnasium.error.ResetNeeded where `step` is called before `reset` or
    after the episode ended, or a `reset` in another thread took its episode away.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own annotation)
    shared: ClassVar[frozenset[str]] = frozenset(
        {"observation_space", "action_space", "spec", "examples"}
    )
    reads_thoughts: ClassVar[bool] = (
        False  # whether `on_step` gets an action with what the agent thinks
    )

    def __init__(self, max_turns: int = 8) -> None:
        if not isinstance(max_turns, int | np.integer):
            raise ValueError(f"max_turns is {max_turns!r}; it must be a whole number, such as 5")
        if max_turns < 1:
            raise ValueError(f"max_turns is {max_turns}; an episode needs at least 1 turn")
        self.max_turns = max_turns
        self.observation_space = TextSpace()
        self.action_space = TextSpace()
        self.examples = Examples()  # in front of each question
        self.turn, self.live = 0, False  # live: between reset and the end of an episode
        self.task_id = ""  # set by on_reset where tasks have names
        self.category = (
            ""  # set by on_reset where tasks are of several kinds, which reports count apart
        )
        self._named: dict[
            str, dict[str, float]
        ] = {}  # rewards so far that have names, and their weights
        self._began: dict[str, Any] = {}
        self._last = ""
        self._opening: tuple[str, dict[str, Any]] = "", {}
        self._turns: list[
            Any
        ] = []  # six items a turn, as one list costs less than a record of each
        self._seen, self._read = (
            "",
            0,
        )  # digest of what the agent was shown and paid, and the number of turns in it

    @property
    def actions(self) -> list[str]:
        """The actions taken in this episode."""
        return self._turns[0::6]

    @property
    def turn_rewards(self) -> list[float]:
        """The rewards of its turns."""
        return self._turns[3::6]

    # -- what an author writes -------------------------------------------------------------------------------------

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Begin an episode and return the first observation; draw randomness from `rng` only."""
        raise TypeError(f"{type(self).__name__} must define on_reset(rng, options) -> str")

    def on_step(self, text: str) -> Reply:
        """Answer one action of the agent; `text` has its thoughts in it only where `reads_thoughts` is set."""
        raise TypeError(f"{type(self).__name__} must define on_step(text) -> Reply")

    def without_thoughts(self, action: str) -> str:
        """Return what an action says: its text without what the agent thinks, which is empty if that never ends."""
        return without_thoughts(action)

    def gold(self) -> list[str]:
        """Return an expert's actions for the rest of this episode; never shown to the agent."""
        raise TypeError(f"{type(self).__name__} has no expert: define gold() -> list[str]")

    def plant(self, canary: str) -> bool:
        """Put `canary` in place of every gold answer from the next `reset` on; return whether there is any such text.

        False means that the gold is no text but a way of acting. A check looks for the canary where no gold may be.
        """
        return False

    def same(self, first: str, second: str) -> bool:
        """Return whether two answers to one task, as `info["answer"]` says them, are the same; votes are counted so."""
        return first == second

    def messages(self, observation: str) -> list[Message]:
        """Return the chat messages an episode opens with."""
        return [{"role": "user", "content": observation}]

    def with_examples(self, messages: list[Message]) -> list[Message]:
        """Return the messages of an opening with worked examples among them, if there are any."""
        return self.examples.before(messages) if self.examples.shots else messages

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the JSON schemas of tools for the chat template to show; empty where the messages teach the calls."""
        return []

    # -- Gymnasium --------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode; `info` holds `messages`, `tools` (JSON schemas), `task_id`, and maybe `category`."""
        super().reset(seed=seed)
        began = {
            "rng": self.np_random.bit_generator.state,
            "options": copied(options) if options else {},
        }
        self.live, self.turn, self._turns, self._named, self._began = False, 0, [], {}, {}
        # Copies, as whoever gets them, and the environment whose they are, may change them or take them apart.
        given = copied(options) if options else {}
        observation = _carried(self.on_reset(self.np_random, given), self, "on_reset")
        shown = self.with_examples(self.messages(observation))
        info = copied({"messages": shown, "tools": self.tool_schemas(), "task_id": self.task_id})
        info |= {"category": self.category} if self.category else {}
        self._began, self._opening, self._last = began, (observation, info), observation
        self._seen, self._read, self.live = "", 0, True
        return observation, copied(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn; when the episode ends `info` holds `stop` and `outcome`, and `valid` where the reply says it.

        An episode that ended in `tool_error` or `infra_error` earned no reward: its reward is NaN, never 0.
        """
        if not self.live:
            raise gymnasium.error.ResetNeeded(
                "this episode has ended (or never began): call reset() before step()"
            )
        if not isinstance(action, str):
            raise TypeError(f"action is a {type(action).__name__}; this environment takes str")
        self.live, began = False, self._began  # an episode whose step raises cannot go on
        try:
            reply = self.on_step(action if self.reads_thoughts else self.without_thoughts(action))
        except ToolFailure as failure:
            reply = Reply("", stop=StopReason.TOOL_ERROR, info={"error": str(failure)})
        except EnvFailure as failure:
            reply = Reply("", stop=StopReason.INFRA_ERROR, info={"error": str(failure)})
        if not isinstance(reply, Reply):
            raise TypeError(
                f"{type(self).__name__}.on_step gives {reply!r:.60}; it must return a Reply"
            )
        if self._began is not began:  # in another thread: the new episode is left as it is
            raise gymnasium.error.ResetNeeded(
                "reset() began another episode during this step; its answer is dropped"
            )
        text, stop, role = _carried(reply.text, self, "on_step"), reply.stop, reply.role
        self.turn += 1
        if stop is None and self.turn >= self.max_turns:
            stop = StopReason.MAX_TURNS
        outcome = None if stop is None else outcome_of(stop)
        failed = outcome in (Outcome.TOOL_ERROR, Outcome.INFRA_ERROR)
        reward = float("nan") if failed else float(reply.reward)
        if failed:
            self._named = {}
        elif isinstance(reply.reward, Rewards):
            self._named = added(self._named, reply.reward)
        self.live, self._last = stop is None, text
        self._turns += action, role, text, reward, stop, self._named
        info: dict[str, Any] = {"turn": self.turn, "messages": [{"role": role, "content": text}]}
        if reply.info or self._named:
            info |= copied(
                {**reply.info, **self._named}
            )  # what it is made of may live on in the environment
        if reply.valid is not None:
            info["valid"] = reply.valid
        if stop is not None:
            info |= {"stop": str(stop), "outcome": str(outcome)}
        done = outcome is Outcome.DONE
        return text, reward, done, stop is not None and not done, info

    # -- copies -----------------------------------------------------------------------------------------------------

    def fork(self) -> Self:
        """Return a live, independent copy in the same state with the same generator state."""
        twin = copy.copy(self)
        memo: dict[int, Any] = {
            id(self): twin,
            id(self._turns): [*self._turns],
            id(self._opening): self._opening,
        }
        for name, value in vars(self).items():
            if name in self.shared:
                memo[id(value)] = value
            elif id(value) not in memo and callable(getattr(value, "fork", None)):
                memo[id(value)] = value.fork()
        for name, value in vars(self).items():
            vars(twin)[name] = copy.deepcopy(value, memo)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a fork: what an environment holds, such as a tool's process, is forked and cannot be copied."""
        return self.fork()

    def snapshot(self) -> dict[str, Any]:
        """Return the episode so far as JSON data: how it began, what was done, and a digest of all that was seen.

        Raises gymnasium.error.ResetNeeded where no episode has begun.
        """
        if not self._began:
            raise gymnasium.error.ResetNeeded(
                "there is no episode to write down: call reset() before snapshot()"
            )
        return {**copy.deepcopy(self._began), "actions": self.actions, "digest": self._digest()}

    def restore(self, snapshot: Mapping[str, Any]) -> str:
        """Bring this environment to the state of `snapshot` by replay and return the last observation.

        Raises RuntimeError where the replay saw something else than the original did.
        """
        self.np_random.bit_generator.state = snapshot["rng"]
        self.reset(options=dict(snapshot["options"]))
        for action in snapshot["actions"]:
            if self.live:
                self.step(action)
        if self._digest() != snapshot["digest"]:
            seen = f"the last observation is {self._last[:80]!r}, not the one in the snapshot"
            why = f"{seen}; was it made with other constructor arguments?"
            raise RuntimeError(f"replay of {len(snapshot['actions'])} actions diverged: {why}")
        return self._last

    def _digest(self) -> str:
        self._seen = self._seen or _digest("", *self._opening)
        for place in range(6 * self._read, len(self._turns), 6):
            role, text, reward, stop, named = self._turns[place + 1 : place + 6]
            self._seen = _digest(self._seen, role, text, reward, stop, *named.values())
        self._read = self.turn
        return self._seen


def fork(
    env: gymnasium.Env[str, str], memo: dict[int, Any] | None = None
) -> gymnasium.Env[str, str]:
    """Return a live copy of an environment and of all its wrappers; `memo` is as `copy.deepcopy` has it.

    Raises TypeError where the environment below the wrappers is no `TextEnv`.
    """
    memo = {} if memo is None else memo
    if isinstance(env, gymnasium.Wrapper):
        twin = memo[id(env)] = copy.copy(env)
        twin.env = fork(
            env.env, memo
        )  # first: what the wrapper holds may refer to the environments below it
        for name, value in vars(env).items():
            vars(twin)[name] = copy.deepcopy(value, memo)
        return twin
    if not isinstance(env, TextEnv):
        raise TypeError(f"{type(env).__name__} cannot fork: only turngym.TextEnv environments can")
    bare = memo[id(env)] = env.fork()
    return bare


def _carried(text: Any, env: TextEnv, method: str) -> str:
    """Return `text` with `?` for lone surrogates, which UTF-8 and so the text space cannot carry."""
    if not isinstance(text, str):
        raise TypeError(
            f"{type(env).__name__}.{method} gives {text!r:.60} as the observation; it must be a str"
        )
    return (
        text if type(text) is str and text.isascii() else text.encode("utf-8", "replace").decode()
    )


def _digest(before: str, *seen: Any) -> str:
    return hashlib.sha256(json.dumps([before, *seen]).encode()).hexdigest()[:16]


_CONSTANT = frozenset({str, int, float, bool, type(None)})  # types that need no copy


def copied(value: Any) -> Any:
    """Return a deep copy; of messages and other JSON data at a fraction of the time that `deepcopy` takes."""
    kind = type(value)
    if kind is dict:
        return {
            key: item if type(item) in _CONSTANT else copied(item) for key, item in value.items()
        }
    if kind is list:
        return [item if type(item) in _CONSTANT else copied(item) for item in value]
    return copy.deepcopy(value)
