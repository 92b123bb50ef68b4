"""Environments as OpenEnv servers, and OpenEnv servers as environments, with the package `openenv`.

`serve` and `app` offer an environment of turngym to OpenEnv clients; `Remote` is an environment
that plays on anybody's OpenEnv server.

Each session of our server has its own environment. An observation carries what OpenEnv's fields
cannot: whether the episode terminated or was truncated, why, and whether it failed. A failed
episode has no reward (`reward` is null).
"""

import asyncio
import json
import socket
from collections import deque
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
    MemoryShare,
    MemoryUse,
    Receive,
    Refusal,
    Scope,
    Send,
    check_host_and_origin,
    iterate_body,
    make_server_with_timeouts,
    send_refusal,
)
from ...tools.subprocesses.deadlines import call_within
from ..outcomes import EnvFailure, Outcome, Reply, StopReason
from ..split_episodes import Split, begin, open_split
from ..splits import SPLITS
from ..tasks import check_known, choose_index
from ..text_env import TextEnv

T = TypeVar("T")

MAX_BODY = 2**20  # bytes of one request, or of one websocket message
MAX_BODIES = 32 * 2**20  # bytes of all requests that are being read at the same time
FIRST_MESSAGE_TIMEOUT = 30.0  # seconds; a websocket gets a session only after its first message
IDLE_TIMEOUT = 3600.0  # seconds without a message after which a session ends
MAX_ANSWER = 8 * 2**20  # bytes of an answer that `Remote` reads
MAX_LISTED_TASKS = 1000
# Websocket close codes (RFC 6455, section 7.4.1).
_GOING_AWAY, _POLICY_VIOLATION, _TOO_BIG = 1001, 1008, 1009


class Say(Action):
    """One action, a text. A number is accepted, since clients read an answer of digits as JSON."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    text: str


class Observed(Observation):
    """An observation of ours as OpenEnv sends it.

    `tools` are JSON schemas for a chat template. `stop` and `outcome` say why an episode ended.
    """

    text: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = Field(default_factory=list)
    task_id: str = ""
    terminated: bool = False
    truncated: bool = False
    stop: str | None = None
    outcome: str | None = None


class Served(Environment[Say, Observed, State]):
    """A session of the server: one environment.

    `reset(split=…, index=…)` chooses the task; without an index it is drawn from `seed`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, splits: Mapping[str, Split]) -> None:
        super().__init__()
        self._splits = splits
        first_split = next(iter(splits.values()))
        self._env = first_split.env.fork()
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observed:
        """Begin an episode.

        Raises:
            ValueError: There is no such split or option.
            IndexError: The split has no task with this index.
        """
        split_name = kwargs.pop("split", next(iter(self._splits)))
        index = kwargs.pop("index", None)
        if kwargs:
            unknown = ", ".join(map(repr, kwargs))
            raise ValueError(f"reset has no option {unknown}; it has seed, split and index")
        split = self._split(split_name)
        if index is None:
            index = int(np.random.default_rng(seed).integers(len(split.tasks)))
        self.get_task(split_name, index)  # raises if there is no such task
        self._env.close()
        self._env = split.env.fork()
        text, info = begin(self._env, split.tasks[index], seed or 0)
        self._state = State(episode_id=episode_id)
        return Observed(
            text=text, messages=info["messages"], tools=info["tools"], task_id=info["task_id"]
        )

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Observed:
        """Take a turn.

        Raises:
            Overdue: It takes longer than `timeout_s` seconds.
        """
        step = partial(self._env.step, action.text)
        result = step() if timeout_s is None else call_within(timeout_s, step, "the environment")
        text, reward, terminated, truncated, info = result
        self._state.step_count += 1
        return Observed(
            text=text,
            messages=info["messages"],
            reward=None if isnan(reward) else reward,
            terminated=terminated,
            truncated=truncated,
            done=terminated or truncated,
            stop=info.get("stop"),
            outcome=info.get("outcome"),
        )

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        self._env.close()

    def list_splits(self) -> list[str]:
        return list(self._splits)

    def num_tasks(self, split: str) -> int:
        """Return how many tasks a split has; if its tasks are drawn from seeds, how many seeds."""
        return len(self._split(split).tasks)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a task as OpenEnv lists it; raise IndexError if there is none."""
        count = self.num_tasks(split)
        if not 0 <= index < count:
            raise IndexError(f"index is {index}; split {split} has tasks 0 to {count - 1}")
        return {"id": f"{split}-{index}", "index": index}

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        indices = range(self.num_tasks(split))[start:stop]
        return [self.get_task(split, index) for index in indices]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split, stop=MAX_LISTED_TASKS)

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
    """Serve an environment to OpenEnv clients until interrupted.

    Clients that are slow to send a request or to read an answer are disconnected, which
    `uvicorn.run` does not do.

    Args:
        env_id: As in `gymnasium.make`, or `module:Class`.
        host: The address to listen at.
        port: The port to listen at.
        sessions: Episodes that may be played at the same time.
        allow_hosts: More names under which clients ask, such as those of a container or a proxy.
        options: Options of the environment, and `split`; see `app`.

    Raises:
        ImportError: uvicorn is not installed.
        OSError: The server cannot listen there.
        ValueError, TypeError: The environment cannot be made.
    """
    application = app(env_id, sessions, allow_hosts={host, *allow_hosts}, **options)
    server = make_server_with_timeouts(application, ws_max_size=MAX_BODY)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        server.run(sockets=[listener])


def app(env_id: str, sessions: int = 64, allow_hosts: Collection[str] = (), **options: Any) -> Any:
    """Return an ASGI application that serves an environment to OpenEnv clients.

    `uvicorn.run(app(…), host="127.0.0.1", port=8000)` runs it; `serve` does so with timeouts.

    A request or websocket is refused if its `Host` header is neither loopback, nor the address that
    it was sent to, nor an allowed name, or if it comes from a web page of another site: such a page
    could act in the environment and run code in a tool's sandbox.

    Args:
        env_id: As in `gymnasium.make`, or `module:Class`.
        sessions: Episodes that may be played at the same time, each in its own connection.
        allow_hosts: More names under which clients ask, such as those of a container or a proxy.
        options: Options of the environment. `split` names the default split; every split that can
            be opened is served.

    Raises:
        ValueError, TypeError: The environment cannot be made.
    """
    default_split = options.pop("split", SPLITS[0])
    splits = {default_split: open_split(env_id, {**options, "split": default_split})}
    for name in SPLITS:
        if name == default_split:
            continue
        with suppress(ValueError):  # such as a set without tasks of this split
            split = open_split(env_id, {**options, "split": name})
            if not split.repeats_training:
                splits[name] = split
    application = create_fastapi_app(
        lambda: Served(splits),
        Say,
        Observed,
        concurrency_config=ConcurrencyConfig(
            max_concurrent_envs=sessions, session_timeout=IDLE_TIMEOUT
        ),
        env_name=env_id.replace("/", "-"),
    )
    return _GuardedApplication(application, Hosts(allow_hosts))


class _GuardedApplication:
    """An ASGI application behind our servers' limits: who may ask, how much, and how slowly."""

    def __init__(self, application: Any, hosts: Hosts) -> None:
        self._application = application
        self._hosts = hosts
        self._bodies = MemoryUse()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the guarded application, such as its routes."""
        return getattr(self._application, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve_request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the whole body within its limits, then let the application answer."""
        body_parts = iterate_body(receive)
        body = bytearray()
        with self._bodies.share() as share, suppress(ConnectionError):
            try:
                check_host_and_origin(self._hosts, scope)
                async for part in body_parts:
                    body += part
                    _add_to_body(len(part), share)
            except Refusal as refusal:
                share.close()
                await send_refusal(refusal, body_parts, send)
                return
            is_body_delivered = False

            async def receive_whole_body() -> Mapping[str, Any]:
                nonlocal is_body_delivered
                if is_body_delivered:
                    return await receive()
                is_body_delivered = True
                return {"type": "http.request", "body": bytes(body), "more_body": False}

            await self._application(scope, receive_whole_body, send)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept a websocket, and hand it to the application when its first message has come.

        A session costs an environment, so a client that connects and says nothing gets none. The
        application then sees `connect` and the first message as if they came now; its own `accept`
        is left out, since the websocket has been accepted already.
        """
        connect = await receive()
        try:
            check_host_and_origin(self._hosts, scope)
        except Refusal:
            # Closed before it is accepted, which clients see as status 403.
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        await send({"type": "websocket.accept"})
        first_message = await _receive_message(receive, send, FIRST_MESSAGE_TIMEOUT)
        if first_message["type"] == "websocket.disconnect":
            return
        waiting_messages = deque([connect, first_message])

        async def receive_in_order() -> Mapping[str, Any]:
            if waiting_messages:
                return waiting_messages.popleft()
            return await _receive_message(receive, send, IDLE_TIMEOUT)

        async def send_unless_accept(message: Mapping[str, Any]) -> None:
            if message["type"] != "websocket.accept":
                await send(message)

        await self._application(scope, receive_in_order, send_unless_accept)


def _add_to_body(size: int, share: MemoryShare) -> None:
    """Count bytes of a request's body; raise Refusal if it, or all bodies together, are too
    large."""
    if share.held + size > MAX_BODY:
        raise Refusal(413, f"the body has more than {MAX_BODY} bytes; send less at once")
    share.add(size, MAX_BODIES, "requests")


async def _receive_message(receive: Receive, send: Send, timeout: float) -> Mapping[str, Any]:
    """Return the next message of a websocket.

    If none comes within `timeout` seconds, or it is too large, the websocket is closed and a
    `websocket.disconnect` is returned.
    """
    try:
        message = await asyncio.wait_for(receive(), timeout)
    except TimeoutError:
        code = _GOING_AWAY
        reason = f"nothing came for {timeout:g} s"
    else:
        size = len(message.get("text") or "") + len(message.get("bytes") or b"")
        if size <= MAX_BODY:
            return message
        code = _TOO_BIG
        reason = f"a message has more than {MAX_BODY} characters"
    await send({"type": "websocket.close", "code": code, "reason": reason})
    return {"type": "websocket.disconnect", "code": code, "reason": reason}


class ServerFailure(EnvFailure, ValueError):
    """No OpenEnv server answers at a URL, or its answer cannot be used.

    It is a ValueError, too, since the URL may be wrong.
    """


class Remote(TextEnv):
    """An environment on an OpenEnv server, whoever wrote it.

    Args:
        url: The server, such as `http://127.0.0.1:8000`.
        split: Which of the server's tasks to play; if it has none, an episode is drawn from a seed.
        action: The field of an action that takes the text; by default its only required text.
        observation: The field that is shown; without such a field, the observation as JSON.
        timeout: Seconds for an answer, of at most `MAX_ANSWER` bytes.
        max_turns: Turn limit beside the server's own.

    Raises:
        ServerFailure: The server does not answer, or not as OpenEnv prescribes.
        ValueError: `action` is needed: an action requires no text, or several.
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
        self.url = url.rstrip("/")
        self.split = split
        self.timeout = timeout
        self.shown = observation
        try:
            action_schema = self._get("/schema")["action"]
            fields = _field_names(action_schema)
            required_texts = _required_text_fields(action_schema)
            self.tasks = self._fetch_task_indices()
        except (HttpFailure, ShapeError) as error:
            raise ServerFailure(
                f"url is {url!r}, where no OpenEnv server answers: {error}"
            ) from None
        if not action and len(required_texts) != 1:
            raise ValueError(
                f"an action of {url} has the fields {', '.join(fields)}; "
                "name the one for the text with action=…"
            )
        self.action = action or required_texts[0]
        self._first_observation: Mapping[str, Any] = {}

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        seed = int(rng.integers(2**31))
        reset_options: dict[str, Any] = {}
        if self.tasks is not None:
            index = choose_index(rng, options, self.tasks)
            reset_options = {"split": self.split, "index": index}
        self._first_observation, text = self._ask(
            "reset", self._read_first_observation, seed=seed, **reset_options
        )
        task_id = self._first_observation.get("task_id") or reset_options.get("index", seed)
        self.task_id = str(task_id)
        return text

    def on_step(self, text: str) -> Reply:
        """Send a text; an episode that failed on the server is an infrastructure failure here."""
        return self._ask("step", self._read_reply, {self.action: text})

    def _read_first_observation(self, result: Any) -> tuple[Mapping[str, Any], str]:
        """Return the observation that begins an episode, and the text that is shown of it."""
        observation = _observation_of(result)
        for name in ("messages", "tools"):
            if not isinstance(observation.get(name) or [], list):
                raise ShapeError(f"{name} is {observation[name]!r:.60}; expected a list")
        return observation, self._shown_text(observation)

    def _read_reply(self, result: Any) -> Reply:
        """Turn the answer to an action into our `Reply`; raise EnvFailure if the episode failed.

        A server of another make may send any `stop`, so only our own stop reasons are taken over.
        """
        observation = _observation_of(result)
        if observation.get("outcome") in (Outcome.INFRA_ERROR, Outcome.TOOL_ERROR):
            raise EnvFailure(f"{self.url} ended the episode with {observation.get('stop')}")
        stop = None
        if result.done:
            stop = StopReason.MAX_TURNS if observation.get("truncated") else StopReason.GOAL
            if observation.get("stop") in [*StopReason]:
                stop = StopReason(observation["stop"])
        messages = observation.get("messages") or [{"role": "user"}]
        return Reply(
            self._shown_text(observation),
            reward=float(result.reward or 0.0),
            stop=stop,
            role=messages[-1]["role"],
        )

    def messages(self, observation: str) -> list[dict[str, str]]:
        return self._first_observation.get("messages") or super().messages(observation)

    def tool_schemas(self) -> list[dict[str, Any]]:
        return self._first_observation.get("tools") or []

    def fork(self) -> "Remote":
        """Return a copy in its own connection, brought to the same state by replaying the episode.

        Raises:
            RuntimeError: The server answered differently than it did before.
        """
        client = vars(self).pop("_client", None)  # not copied: the fork opens its own
        fork = super().fork()
        if client is not None:
            vars(self)["_client"] = client
        if self._start:
            fork.restore(self.snapshot())
        return fork

    def close(self) -> None:
        """End the connection, and with it the server's session."""
        client = vars(self).pop("_client", None)
        if client is not None:
            client.close()

    @cached_property
    def _client(self) -> Any:
        client = GenericEnvClient(
            self.url, message_timeout_s=self.timeout, max_message_size_mb=MAX_ANSWER / 2**20
        )
        return client.sync()

    def _ask(self, request: str, read: Callable[[Any], T], *args: Any, **kwargs: Any) -> T:
        """Send `reset` or `step` to the server, and return what `read` makes of its answer.

        Raises:
            EnvFailure: The server failed, or its answer cannot be read.
        """
        try:
            send = getattr(self._client, request)
            return read(send(*args, **kwargs))
        except EnvFailure:
            raise
        except Exception as error:
            # Of any type: a broken or hostile server may raise anything in the package's client.
            self.close()
            reason = " ".join(f"{error}".split())[:300] or type(error).__name__
            raise EnvFailure(f"{self.url} did not answer {request}: {reason}") from error

    def _http(self, path: str) -> JsonClient:
        return JsonClient(self.url, path, limits=Limits(self.timeout, 1, MAX_ANSWER))

    def _get(self, path: str) -> Node:
        client = self._http(path)
        try:
            return client.get()
        finally:
            client.close()

    def _fetch_task_indices(self) -> range | None:
        """Ask the server for the number of the split's tasks; return their indices, None if none.

        Listing tasks is optional in OpenEnv: a server without them answers with an error status.
        """
        try:
            environment_names = self._get("/list_environments").array()
        except HttpFailure as failure:
            if failure.status:
                return None
            raise
        if not environment_names:
            return None
        client = self._http(f"/{environment_names[0].string()}/num_tasks")
        try:
            answer = client.post({"split": self.split})
            return range(answer["num_tasks"].integer(0, 2**31))
        except HttpFailure as failure:
            if failure.status == httpx.codes.NOT_IMPLEMENTED:
                return None
            raise
        finally:
            client.close()

    def _shown_text(self, observation: Mapping[str, Any]) -> str:
        """Return the observation's field for the agent; without such a text, all of it as JSON."""
        text = observation.get(self.shown)
        if isinstance(text, str):
            return text
        return json.dumps(observation, ensure_ascii=False)


def _field_names(action_schema: Node) -> list[str]:
    """Return the names of an action's fields."""
    if "properties" not in action_schema:
        return []
    return list(action_schema["properties"].object())


def _required_text_fields(action_schema: Node) -> list[str]:
    """Return the names of an action's fields that are required and take a text."""
    if "required" not in action_schema:
        return []
    names = [name.string() for name in action_schema["required"].array()]
    properties = action_schema["properties"]
    return [name for name in names if properties[name].object().get("type") == "string"]


def _observation_of(result: Any) -> Mapping[str, Any]:
    """Return the observation of a server's answer; raise ShapeError if it is no JSON object."""
    observation = result.observation
    if not isinstance(observation, dict):
        raise ShapeError(f"its observation is {observation!r:.60}; expected an object")
    return observation
