"""Environments as OpenEnv servers, and OpenEnv servers as environments, with the package `openenv`.

A session of the server is an environment of its own. An observation carries what OpenEnv's own fields cannot: whether
the episode terminated or was truncated, why, and whether it failed, which is no reward (`reward` is null then).
"""

import asyncio
import json
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cached_property, partial
from math import isnan
from typing import Any, TypeVar

import httpx
import numpy as np
from openenv.core import GenericEnvClient
from openenv.core.env_server import (
    Action,
    ConcurrencyConfig,
    Environment,
    Observation,
    State,
    create_fastapi_app,
)
from pydantic import ConfigDict, Field

from ...tools.http.client import JsonClient
from ...tools.http.failures import HttpFailure, Limits, ShapeError
from ...tools.http.hosts import Hosts
from ...tools.http.json_values import Node
from ...tools.http.server import (
    HeldBytes,
    Receive,
    Refusal,
    Scope,
    Send,
    Share,
    admit,
    body_of,
    patient_server,
    refuse,
)
from ...tools.subprocesses.deadlines import within
from ..outcomes import EnvFailure, Outcome, Reply, StopReason
from ..split_episodes import Split, begin, open_split
from ..splits import SPLITS
from ..tasks import check_known, choose_index
from ..text_env import TextEnv

T = TypeVar("T")

BODY = 2**20  # bytes of a request, and of a message through a socket
BODIES = 32 * 2**20  # bytes of all requests at a time
PATIENCE = 30.0  # seconds in which a socket must say what it wants; until then it takes no session
IDLE = 3600.0  # seconds without a message after which a session ends
ANSWER = 8 * 2**20  # bytes of an answer that `Remote` reads


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
        self._splits, self._env, self._state = (
            splits,
            next(iter(splits.values())).env.fork(),
            State(),
        )

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observed:
        """Begin an episode. Raises ValueError, IndexError where there is no such split, option or task."""
        name, index = kwargs.pop("split", next(iter(self._splits))), kwargs.pop("index", None)
        if kwargs:
            raise ValueError(
                f"reset has no option {', '.join(map(repr, kwargs))}; it has seed, split and index"
            )
        tasks = self._split(name).tasks
        drawn = int(np.random.default_rng(seed).integers(len(tasks))) if index is None else index
        self.get_task(name, drawn)
        self._env.close()
        self._env = self._splits[name].env.fork()
        text, info = begin(self._env, tasks[drawn], seed or 0)
        self._state = State(episode_id=episode_id)
        return Observed(
            text=text, messages=info["messages"], tools=info["tools"], task_id=info["task_id"]
        )

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Observed:
        """Take a turn; raises `Overdue` where it takes longer than `timeout_s` seconds."""
        step = partial(self._env.step, action.text)
        taken = step() if timeout_s is None else within(timeout_s, step, "the environment")
        text, reward, terminated, truncated, info = taken
        self._state.step_count += 1
        ended = {"terminated": terminated, "truncated": truncated, "done": terminated or truncated}
        why = {"stop": info.get("stop"), "outcome": info.get("outcome")}
        return Observed(
            text=text,
            messages=info["messages"],
            reward=None if isnan(reward) else reward,
            **ended,
            **why,
        )

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
            raise IndexError(
                f"index is {index}; split {split} has tasks 0 to {self.num_tasks(split) - 1}"
            )
        return {"id": f"{split}-{index}", "index": index}

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        return [self.get_task(split, i) for i in range(self.num_tasks(split))[start:stop]]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split, stop=1000)

    def _split(self, name: str) -> Split:
        check_known(name, self._splits, f"split is {name!r}", "choose")
        return self._splits[name]


def serve(
    env_id: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    sessions: int = 64,
    allow_hosts: Collection[str] = (),
    **options: Any,
) -> None:
    """Serve an environment until interrupted; the arguments are those of `app`, besides `host` and `port`.

    Clients that are slow to send a request or to take an answer are left, which `uvicorn.run` does not do. Raises
    ImportError where uvicorn is not installed; OSError where it cannot listen; ValueError, TypeError as `app` does.
    """
    application = app(env_id, sessions, allow_hosts={host, *allow_hosts}, **options)
    server = patient_server(application, ws_max_size=BODY)
    with socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
    ) as listener:
        server.run(sockets=[listener])


def app(env_id: str, sessions: int = 64, allow_hosts: Collection[str] = (), **options: Any) -> Any:
    """Return an ASGI application for `uvicorn.run(app(…), host="127.0.0.1", port=8000)`; better is `serve`.

    A request or a socket is refused whose `Host` is neither loopback, nor the address that it was sent to, nor a name
    that is allowed, or that comes from a page of another site: such a page would act, and run code in a tool's sandbox.

    Args:
        env_id: As in `gymnasium.make`, or `module:Class`.
        sessions: Episodes that may be played at the same time, each in a connection of its own.
        allow_hosts: More names under which clients ask, as those of a container or a proxy.
        options: The environment's own. `split` names the first split; all that can be opened are served.

    Raises ValueError, TypeError where it cannot be made.
    """
    first = options.pop("split", SPLITS[0])
    splits = {first: open_split(env_id, {**options, "split": first})}
    for name in (one for one in SPLITS if one != first):
        with suppress(ValueError):  # such as a set without tasks of this split
            split = open_split(env_id, {**options, "split": name})
            if not split.repeats_training:
                splits[name] = split
    places = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=IDLE)
    name = env_id.replace("/", "-")
    served = create_fastapi_app(
        lambda: Served(splits), Say, Observed, concurrency_config=places, env_name=name
    )
    return _Guarded(served, Hosts(allow_hosts))


class _Guarded:
    """An application behind the rules for all servers of ours: who may ask, how much, and how slowly."""

    def __init__(self, served: Any, hosts: Hosts) -> None:
        self._served, self._hosts, self._bodies = served, hosts, HeldBytes()

    def __getattr__(self, name: str) -> Any:  # its routes, say
        return getattr(self._served, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._talk(scope, receive, send)
        else:
            await self._served(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, whole = body_of(receive), bytearray()
        with self._bodies.share() as share, suppress(ConnectionError):
            try:
                admit(self._hosts, scope)
                async for part in body:
                    whole += part
                    _count(len(part), share)
            except Refusal as refusal:
                share.close()
                await refuse(refusal, body, send)
                return
            read = False

            async def again() -> Mapping[str, Any]:
                nonlocal read
                if read:
                    return await receive()
                read = True
                return {"type": "http.request", "body": bytes(whole), "more_body": False}

            await self._served(scope, again, send)

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        connect = await receive()
        try:
            admit(self._hosts, scope)
        except Refusal:
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: 403
            return
        await send({"type": "websocket.accept"})
        first = await _message(receive, send, PATIENCE)
        if first["type"] == "websocket.disconnect":
            return
        waiting = [first, connect]  # what the application is to hear first, last first

        async def hear() -> Mapping[str, Any]:
            return waiting.pop() if waiting else await _message(receive, send, IDLE)

        async def say(message: Mapping[str, Any]) -> None:
            if message["type"] != "websocket.accept":
                await send(message)

        await self._served(scope, hear, say)


def _count(size: int, share: Share) -> None:
    if share.held + size > BODY:
        raise Refusal(413, f"the body has more than {BODY} bytes; send less at once")
    share.add(size, BODIES, "requests")


async def _message(receive: Receive, send: Send, patience: float) -> Mapping[str, Any]:
    """Return what comes through a socket; its end, of the server's making, where that is too late or too large."""
    try:
        message = await asyncio.wait_for(receive(), patience)
    except TimeoutError:
        code, why = 1001, f"nothing came for {patience:g} s"
    else:
        text = message.get("text") or ""
        if len(text) + len(message.get("bytes") or b"") <= BODY:
            return message
        code, why = 1009, f"a message has more than {BODY} characters"
    await send({"type": "websocket.close", "code": code, "reason": why})
    return {"type": "websocket.disconnect", "code": code, "reason": why}


class ServerFailure(EnvFailure, ValueError):
    """An OpenEnv server that does not answer, or whose answer cannot be used: the URL is wrong, or the server is."""


class Remote(TextEnv):
    """An OpenEnv server's environment, whoever wrote it.

    Args:
        url: The server, such as `http://127.0.0.1:8000`.
        split: Which of its tasks, where it has any; else an episode is drawn by a seed.
        action: The field of an action that takes the text; by default the one text that it needs.
        observation: The field that is shown; by default `text`, else the observation as JSON.
        timeout: Seconds for an answer.
        max_turns: Turn limit beside the server's own.

    An answer has at most `ANSWER` bytes. Raises ServerFailure, which is a ValueError and an EnvFailure, where the
    server does not answer, or not as OpenEnv prescribes; ValueError where an action needs other than one text.
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
        self.url, self.split, self.timeout, self.shown = (
            url.rstrip("/"),
            split,
            timeout,
            observation,
        )
        try:
            fields, needed = _fields(self._get("/schema")["action"])
            self.tasks = self._count()
        except (HttpFailure, ShapeError) as error:
            raise ServerFailure(
                f"url is {url!r}, where no OpenEnv server answers: {error}"
            ) from None
        if not action and len(needed) != 1:
            listed = ", ".join(fields)
            raise ValueError(
                f"an action of {url} has the fields {listed}; name the one for the text with action=…"
            )
        self.action = action or needed[0]
        self._opened: Mapping[str, Any] = {}  # what the server says at the beginning

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        seed = int(rng.integers(2**31))
        chosen = (
            {}
            if self.tasks is None
            else {"split": self.split, "index": choose_index(rng, options, self.tasks)}
        )
        self._opened, text = self._ask("reset", self._begun, seed=seed, **chosen)
        self.task_id = str(self._opened.get("task_id") or chosen.get("index", seed))
        return text

    def on_step(self, text: str) -> Reply:
        """Send a text; an answer without a reward where the episode failed is a failure here, too."""
        return self._ask("step", self._reply, {self.action: text})

    def _begun(self, result: Any) -> tuple[Mapping[str, Any], str]:
        seen = _seen(result)
        for name in ("messages", "tools"):
            if not isinstance(seen.get(name) or [], list):
                raise ShapeError(f"{name} is {seen[name]!r:.60}; expected a list")
        return seen, self._text(seen)

    def _reply(self, result: Any) -> Reply:
        seen = _seen(result)
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
        size = ANSWER / 2**20
        return GenericEnvClient(
            self.url, message_timeout_s=self.timeout, max_message_size_mb=size
        ).sync()

    def _ask(self, what: str, read: Callable[[Any], T], *args: Any, **kwargs: Any) -> T:
        """Return what `read` makes of an answer; EnvFailure where the server failed, or it cannot be read."""
        try:
            return read(getattr(self._client, what)(*args, **kwargs))
        except EnvFailure:
            raise
        except (
            Exception
        ) as error:  # whatever a server that is broken or hostile makes of the package's client
            self.close()
            why = " ".join(f"{error}".split())[:300] or type(error).__name__
            raise EnvFailure(f"{self.url} did not answer {what}: {why}") from error

    def _http(self, path: str) -> JsonClient:
        return JsonClient(self.url, path, limits=Limits(self.timeout, 1, ANSWER))

    def _get(self, path: str) -> Node:
        client = self._http(path)
        try:
            return client.get()
        finally:
            client.close()

    def _count(self) -> range | None:
        """Return the numbers of the split's tasks; None where the server has none."""
        try:
            names = self._get("/list_environments").array()
        except HttpFailure as failure:
            if failure.status:
                return None
            raise
        if not names:
            return None
        client = self._http(f"/{names[0].string()}/num_tasks")
        try:
            return range(client.post({"split": self.split})["num_tasks"].integer(0, 2**31))
        except HttpFailure as failure:
            if failure.status == httpx.codes.NOT_IMPLEMENTED:
                return None
            raise
        finally:
            client.close()

    def _text(self, seen: Mapping[str, Any]) -> str:
        text = seen.get(self.shown)
        return text if isinstance(text, str) else json.dumps(seen, ensure_ascii=False)


def _fields(action: Node) -> tuple[list[str], list[str]]:
    """Return the fields of an action by its JSON schema, and those of them that are texts and needed."""
    known = action["properties"].object() if "properties" in action else {}
    required = (
        [name.string() for name in action["required"].array()] if "required" in action else []
    )
    kinds = {name: action["properties"][name].object().get("type") for name in required}
    return list(known), [name for name, kind in kinds.items() if kind == "string"]


def _seen(result: Any) -> Mapping[str, Any]:
    """Return an answer's observation; ShapeError where it is none."""
    if not isinstance(result.observation, dict):
        raise ShapeError(f"its observation is {result.observation!r:.60}; expected an object")
    return result.observation
