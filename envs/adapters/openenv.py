"""Environments as OpenEnv servers, and OpenEnv servers as environments, with the package `openenv`.

`serve` and `app` offer an environment of turngym to OpenEnv clients; `Remote` is an environment
whose episodes run on any OpenEnv server.

Each session of our server has its own environment. Our observations have more fields than those of
OpenEnv: whether the episode terminated or was truncated, why, and whether it failed. A failed
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
_CLOSE_GOING_AWAY = 1001
_CLOSE_POLICY_VIOLATION = 1008
_CLOSE_TOO_BIG = 1009


class Say(Action):
    """An action, which is a text. A number is accepted: clients parse a text of digits as JSON."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    text: str


class Observed(Observation):
    """An observation of a turngym environment as OpenEnv sends it.

    `tools` are JSON schemas for a chat template. `stop` is the reason why the episode ended, and
    `outcome` whether it succeeded or failed.
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
        """Begin an episode in a new environment.

        Args:
            seed: Draws the task if no index is given.
            episode_id: The client's name for the episode, which `state` returns.
            kwargs: `split`, by default the server's first one, and `index`, that of a task.

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

        Args:
            action: The agent's text.
            timeout_s: The most seconds that the turn may take; None means no limit.
            kwargs: Ignored; OpenEnv's interface allows more options.

        Raises:
            Overdue: The turn takes longer than `timeout_s` seconds.
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
        """Return the number of tasks of a split, or of its seeds if these draw the tasks."""
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
        sessions: The largest number of episodes at the same time.
        allow_hosts: Further host names of the server, such as that of a container or a proxy.
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
        sessions: The largest number of episodes at the same time, each in its own connection.
        allow_hosts: Further host names of the server, such as that of a container or a proxy.
        options: Options of the environment. `split` names the default split; every other split that
            can be opened is served, too.

    Raises:
        ValueError, TypeError: The environment cannot be made.
    """
    default_split = options.pop("split", SPLITS[0])
    splits = {default_split: open_split(env_id, {**options, "split": default_split})}
    for name in SPLITS:
        if name == default_split:
            continue
        with suppress(ValueError):  # a set of tasks may have none for this split
            split = open_split(env_id, {**options, "split": name})
            if not split.repeats_training:
                splits[name] = split
    limits = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=IDLE_TIMEOUT)
    application = create_fastapi_app(
        lambda: Served(splits),
        Say,
        Observed,
        concurrency_config=limits,
        env_name=env_id.replace("/", "-"),
    )
    return _GuardedApplication(application, Hosts(allow_hosts))


class _GuardedApplication:
    """An ASGI application behind the limits of our servers.

    They bound which hosts and pages may send requests, how large these are, and how slow.
    """

    def __init__(self, application: Any, hosts: Hosts) -> None:
        self._application = application
        self._hosts = hosts
        self._body_bytes = MemoryUse()

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
        chunks = iterate_body(receive)
        body = bytearray()
        # A ConnectionError means that the client disconnected: nobody waits for an answer.
        with self._body_bytes.share() as share, suppress(ConnectionError):
            try:
                check_host_and_origin(self._hosts, scope)
                async for chunk in chunks:
                    body += chunk
                    _count_body_bytes(len(chunk), share)
            except Refusal as refusal:
                share.close()
                await send_refusal(refusal, chunks, send)
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
        """Accept a websocket, and pass it to the application after its first message.

        The application makes an environment for each websocket that it sees, so that a client which
        connects and sends nothing must not reach it. It then receives `connect` and the first
        message as if they had just come. Its own `accept` is not sent again.
        """
        connect = await receive()
        try:
            check_host_and_origin(self._hosts, scope)
        except Refusal:
            # Clients see a websocket that is closed before it is accepted as status 403.
            await send({"type": "websocket.close", "code": _CLOSE_POLICY_VIOLATION})
            return
        await send({"type": "websocket.accept"})
        first_message = await _receive_message(receive, send, FIRST_MESSAGE_TIMEOUT)
        if first_message["type"] == "websocket.disconnect":
            return
        received_messages = deque([connect, first_message])

        async def receive_in_order() -> Mapping[str, Any]:
            if received_messages:
                return received_messages.popleft()
            return await _receive_message(receive, send, IDLE_TIMEOUT)

        async def send_unless_accept(message: Mapping[str, Any]) -> None:
            if message["type"] != "websocket.accept":
                await send(message)

        await self._application(scope, receive_in_order, send_unless_accept)


def _count_body_bytes(count: int, share: MemoryShare) -> None:
    """Count further bytes of a request's body.

    Args:
        count: The number of bytes.
        share: The bytes of this body so far.

    Raises:
        Refusal: The body, or all bodies together, are too large.
    """
    if share.held + count > MAX_BODY:
        raise Refusal(413, f"the body has more than {MAX_BODY} bytes; send less at once")
    share.add(count, MAX_BODIES, "requests")


async def _receive_message(receive: Receive, send: Send, timeout: float) -> Mapping[str, Any]:
    """Return the next message of a websocket, or close the websocket.

    Args:
        receive: Returns the next event of the websocket.
        send: Sends an event.
        timeout: Seconds to wait for a message.

    Returns:
        The message; a `websocket.disconnect` if none came in time, or if it was too large.
    """
    try:
        message = await asyncio.wait_for(receive(), timeout)
    except TimeoutError:
        code = _CLOSE_GOING_AWAY
        reason = f"nothing came for {timeout:g} s"
    else:
        size = len(message.get("text") or "") + len(message.get("bytes") or b"")
        if size <= MAX_BODY:
            return message
        code = _CLOSE_TOO_BIG
        reason = f"a message has more than {MAX_BODY} characters"
    await send({"type": "websocket.close", "code": code, "reason": reason})
    return {"type": "websocket.disconnect", "code": code, "reason": reason}


class ServerFailure(EnvFailure, ValueError):
    """No OpenEnv server answers at a URL, or its answer cannot be used.

    It is also a ValueError, since the URL may be wrong.
    """


class Remote(TextEnv):
    """An environment on any OpenEnv server, not only one of turngym.

    Args:
        url: The server, such as `http://127.0.0.1:8000`.
        split: The split of the server's tasks; if it has no tasks, it makes episodes from seeds.
        action: The field of an action for the agent's text; by default the only required text.
        observation: The field of an observation that the agent sees. If an observation has no such
            text, the agent sees all of it as JSON.
        timeout: Seconds for an answer, of at most `MAX_ANSWER` bytes.
        max_turns: Turn limit, in addition to the server's own.

    Raises:
        ServerFailure: The server does not answer, or not as OpenEnv prescribes.
        ValueError: `action` is needed, as an action requires no text or several.
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
            field_names = _field_names(action_schema)
            required_text_fields = _required_text_fields(action_schema)
            self.tasks = self._fetch_task_indices()
        except (HttpFailure, ShapeError) as error:
            raise ServerFailure(
                f"url is {url!r}, where no OpenEnv server answers: {error}"
            ) from None
        if not action and len(required_text_fields) != 1:
            raise ValueError(
                f"an action of {url} has the fields {', '.join(field_names)}; "
                "name the one for the text with action=…"
            )
        self.action = action or required_text_fields[0]
        self._first_observation: Mapping[str, Any] = {}

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Begin an episode on the server and return the text of its first observation."""
        seed = int(rng.integers(2**31))
        task_options: dict[str, Any] = {}
        if self.tasks is not None:
            index = choose_index(rng, options, self.tasks)
            task_options = {"split": self.split, "index": index}
        self._first_observation, text = self._ask(
            "reset", self._read_first_observation, seed=seed, **task_options
        )
        # A server may name the task; if not, its index or the seed identifies the episode.
        task_id = self._first_observation.get("task_id") or task_options.get("index", seed)
        self.task_id = str(task_id)
        return text

    def on_step(self, text: str) -> Reply:
        """Send the agent's text; raises EnvFailure if the server or its episode fails."""
        return self._ask("step", self._read_reply, {self.action: text})

    def _read_first_observation(self, result: Any) -> tuple[Mapping[str, Any], str]:
        """Return the first observation of an episode, and its text for the agent.

        Raises:
            ShapeError: The observation is no object, or has messages or tools that are no lists.
        """
        observation = _observation_of(result)
        for name in ("messages", "tools"):
            if not isinstance(observation.get(name) or [], list):
                raise ShapeError(f"{name} is {observation[name]!r:.60}; expected a list")
        return observation, self._shown_text(observation)

    def _read_reply(self, result: Any) -> Reply:
        """Turn the answer to an action into a `Reply`.

        Args:
            result: OpenEnv's `StepResult`, with `observation`, `reward` and `done`.

        Raises:
            EnvFailure: The episode failed on the server.
            ShapeError: The observation is no object.
        """
        observation = _observation_of(result)
        if observation.get("outcome") in (Outcome.INFRA_ERROR, Outcome.TOOL_ERROR):
            raise EnvFailure(f"{self.url} ended the episode with {observation.get('stop')}")
        stop = None
        if result.done:
            # Only a server of turngym sends one of our stop reasons; others may send anything.
            if observation.get("stop") in [*StopReason]:
                stop = StopReason(observation["stop"])
            elif observation.get("truncated"):
                stop = StopReason.MAX_TURNS
            else:
                stop = StopReason.GOAL
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
        """Return a copy with its own connection, in the same state.

        The server cannot copy a session, so the fork replays the episode.

        Raises:
            RuntimeError: The server answered differently than before.
        """
        # A connection cannot be copied, so it is taken out in the meantime. The fork opens its own.
        client = vars(self).pop("_client", None)
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
        """The connection to the server, which opens with its first request."""
        client = GenericEnvClient(
            self.url, message_timeout_s=self.timeout, max_message_size_mb=MAX_ANSWER / 2**20
        )
        return client.sync()

    def _ask(self, request: str, read_result: Callable[[Any], T], *args: Any, **kwargs: Any) -> T:
        """Send a request to the server, and return its answer as `read_result` reads it.

        Args:
            request: `reset` or `step`.
            read_result: Turns OpenEnv's `StepResult` into the value to return.
            args: Arguments of the request.
            kwargs: Named arguments of the request.

        Raises:
            EnvFailure: The server failed, or its answer cannot be read.
        """
        try:
            send = getattr(self._client, request)
            return read_result(send(*args, **kwargs))
        except EnvFailure:
            raise
        except Exception as error:
            # With a broken or hostile server, OpenEnv's client may raise errors of any type.
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
        """Return the indices of the split's tasks on the server; None if it does not list tasks.

        Listing is optional in OpenEnv: a server without it answers with an error status.

        Raises:
            HttpFailure: The server cannot be reached, or cannot count the tasks of the split.
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
        """Return what the agent sees: the field `shown`, or all as JSON if that is no text."""
        text = observation.get(self.shown)
        if isinstance(text, str):
            return text
        return json.dumps(observation, ensure_ascii=False)


def _field_names(action_schema: Node) -> list[str]:
    """Return the names of an action's fields, from the action's JSON schema."""
    if "properties" not in action_schema:
        return []
    return list(action_schema["properties"].object())


def _required_text_fields(action_schema: Node) -> list[str]:
    """Return the names of an action's required fields of type string, from its JSON schema."""
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
