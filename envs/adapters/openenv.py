"""Environments as OpenEnv servers, and OpenEnv servers as environments, with the package `openenv`.

A session of the server is an environment of its own. An observation carries what OpenEnv's own fields cannot: whether
the episode terminated or was truncated, why, and whether it failed, which is no reward (`reward` is null then).
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, partial
from math import isnan
from typing import Any

import httpx
import numpy as np
from openenv.core import GenericEnvClient
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from pydantic import ConfigDict, Field

from ...tools.core import within
from ..core import EnvFailure, Outcome, Reply, StopReason, TextEnv
from ..splits import Split, begin, open_split
from ..tasks import SPLITS, check_known, choose_index


class Say(Action):
    """One action: a text; a number is one, too, as clients read an answer of digits as JSON."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    text: str


class Observed(Observation):
    """What the environment answers; `tools` are JSON schemas for a chat template, `stop` and `outcome` end it."""

    text: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = Field(default_factory=list)
    task_id: str = ""
    terminated: bool = False
    truncated: bool = False
    stop: str | None = None
    outcome: str | None = None


class Served(Environment[Say, Observed, State]):
    """A session: one environment of a split. `reset(split=…, index=…)` chooses the task, else `seed` draws it."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, splits: Mapping[str, Split]) -> None:
        super().__init__()
        self._splits, self._env, self._state = splits, next(iter(splits.values())).env.fork(), State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observed:
        """Begin an episode. Raises ValueError, IndexError where there is no such split, option or task."""
        name, index = kwargs.pop("split", next(iter(self._splits))), kwargs.pop("index", None)
        if kwargs:
            raise ValueError(f"reset has no option {', '.join(map(repr, kwargs))}; it has seed, split and index")
        tasks = self._split(name).tasks
        drawn = int(np.random.default_rng(seed).integers(len(tasks))) if index is None else index
        self.get_task(name, drawn)
        self._env.close()
        self._env = self._splits[name].env.fork()
        text, info = begin(self._env, tasks[drawn], seed or 0)
        self._state = State(episode_id=episode_id)
        return Observed(text=text, messages=info["messages"], tools=info["tools"], task_id=info["task_id"])

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Observed:
        """Take a turn; raises `Overdue` where it takes longer than `timeout_s` seconds."""
        step = partial(self._env.step, action.text)
        taken = step() if timeout_s is None else within(timeout_s, step, "the environment")
        text, reward, terminated, truncated, info = taken
        self._state.step_count += 1
        ended = {"terminated": terminated, "truncated": truncated, "done": terminated or truncated}
        why = {"stop": info.get("stop"), "outcome": info.get("outcome")}
        return Observed(text=text, messages=info["messages"], reward=None if isnan(reward) else reward, **ended, **why)

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        self._env.close()

    def list_splits(self) -> list[str]:
        return list(self._splits)

    def num_tasks(self, split: str) -> int:
        """Return how many tasks a split has; where it has none but seeds, how many of these."""
        return len(self._split(split).tasks)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a task as OpenEnv lists it; IndexError where there is none."""
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"index is {index}; split {split} has tasks 0 to {self.num_tasks(split) - 1}")
        return {"id": f"{split}-{index}", "index": index}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return [self.get_task(split, i) for i in range(self.num_tasks(split))[start:stop]]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split, stop=1000)

    def _split(self, name: str) -> Split:
        check_known(name, self._splits, f"split is {name!r}", "choose")
        return self._splits[name]


def app(env_id: str, sessions: int = 64, **options: Any) -> Any:
    """Return a FastAPI application for `uvicorn.run(app(…), host="127.0.0.1", port=8000)`.

    Args:
        env_id: As in `gymnasium.make`, or `module:Class`.
        sessions: Episodes that may be played at the same time, each in a connection of its own.
        options: The environment's own. `split` names the first split; all that can be opened are served.

    Raises ValueError, TypeError where it cannot be made.
    """
    first = options.pop("split", SPLITS[0])
    splits = {first: open_split(env_id, {**options, "split": first})}
    for name in (one for one in SPLITS if one != first):
        with suppress(ValueError):  # such as a set without tasks of this split
            splits[name] = open_split(env_id, {**options, "split": name})
    return create_fastapi_app(lambda: Served(splits), Say, Observed, sessions, env_name=env_id.replace("/", "-"))


class Remote(TextEnv):
    """An OpenEnv server's environment, whoever wrote it.

    Args:
        url: The server, such as `http://127.0.0.1:8000`.
        split: Which of its tasks, where it has any; else an episode is drawn by a seed.
        action: The field of an action that takes the text; by default the one text that it needs.
        observation: The field that is shown; by default `text`, else the observation as JSON.
        timeout: Seconds for an answer.
        max_turns: Turn limit beside the server's own.

    Raises ValueError where the server does not answer, or an action needs other than one text.
    """

    shared = TextEnv.shared | {"tasks"}

    def __init__(
        self,
        url: str,
        split: str = "train",
        action: str = "",
        observation: str = "text",
        timeout: float = 60.0,
        max_turns: int = 64,
    ) -> None:
        super().__init__(max_turns)
        self.url, self.split, self.timeout, self.shown = url.rstrip("/"), split, timeout, observation
        try:
            schema = httpx.get(f"{self.url}/schema", timeout=timeout).raise_for_status().json()["action"]
            self.tasks = self._count()
        except (httpx.HTTPError, KeyError, ValueError) as error:
            raise ValueError(f"url is {url!r}, where no OpenEnv server answers: {error}") from error
        needed = [name for name in schema.get("required", []) if schema["properties"][name].get("type") == "string"]
        if not action and len(needed) != 1:
            fields = ", ".join(schema.get("properties", {}))
            raise ValueError(f"an action of {url} has the fields {fields}; name the one for the text with action=…")
        self.action = action or needed[0]
        self._opened: Mapping[str, Any] = {}  # what the server says at the beginning

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        seed = int(rng.integers(2**31))
        chosen = {} if self.tasks is None else {"split": self.split, "index": choose_index(rng, options, self.tasks)}
        self._opened = seen = self._ask("reset", seed=seed, **chosen).observation
        self.task_id = str(seen.get("task_id") or chosen.get("index", seed))
        return self._text(seen)

    def on_step(self, text: str) -> Reply:
        """Send a text; an answer without a reward where the episode failed is a failure here, too."""
        result = self._ask("step", {self.action: text})
        seen = result.observation
        if seen.get("outcome") in (Outcome.INFRA_ERROR, Outcome.TOOL_ERROR):
            raise EnvFailure(f"{self.url} ended the episode with {seen.get('stop')}")
        stop = None
        if result.done:
            stop = StopReason.MAX_TURNS if seen.get("truncated") else StopReason.GOAL
            if seen.get("stop") in [*StopReason]:  # another's server may mean something else by it
                stop = StopReason(seen["stop"])
        role = (seen.get("messages") or [{"role": "user"}])[-1]["role"]
        return Reply(self._text(seen), float(result.reward or 0.0), stop, role)

    def messages(self, observation: str) -> list[dict[str, str]]:
        return self._opened.get("messages") or super().messages(observation)

    def tool_schemas(self) -> list[dict[str, Any]]:
        return self._opened.get("tools") or []

    def fork(self) -> "Remote":
        """Return a copy in a connection of its own, brought to the same state by playing the episode again.

        Raises RuntimeError where the server answered other than it did.
        """
        client = vars(self).pop("_client", None)  # the copy opens its own
        twin = super().fork()
        if client is not None:
            vars(self)["_client"] = client
        if self._began:
            twin.restore(self.snapshot())
        return twin

    def close(self) -> None:
        """End the connection, and with it the server's session."""
        if client := vars(self).pop("_client", None):
            client.close()

    @cached_property
    def _client(self) -> Any:
        return GenericEnvClient(base_url=self.url, message_timeout_s=self.timeout).sync()

    def _ask(self, what: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self._client, what)(*args, **kwargs)
        except (OSError, RuntimeError, TimeoutError) as error:
            self.close()
            raise EnvFailure(f"{self.url} did not answer {what}: {error}") from error

    def _count(self) -> range | None:
        """Return the numbers of the split's tasks; None where the server has none."""
        name = httpx.get(f"{self.url}/list_environments", timeout=self.timeout)
        if name.status_code != httpx.codes.OK or not name.json():
            return None
        asked = httpx.post(f"{self.url}/{name.json()[0]}/num_tasks", json={"split": self.split}, timeout=self.timeout)
        if asked.status_code == httpx.codes.NOT_IMPLEMENTED:
            return None
        return range(asked.raise_for_status().json()["num_tasks"])

    def _text(self, seen: Mapping[str, Any]) -> str:
        text = seen.get(self.shown)
        return text if isinstance(text, str) else json.dumps(seen, ensure_ascii=False)
