"""As openenv.md has it: OpenEnv's own client on our server, our environment on OpenEnv servers, ours and another."""

import base64
import json
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import pytest

pytestmark = pytest.mark.filterwarnings("default")  # what these packages warn of is theirs
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "%s"}}\n</tool_call>'


@pytest.fixture
def math(serve):
    from turngym.envs.adapters.openenv import app

    return serve(app("turngym/MathPython-v0", difficulty=1))


def gold(env, index):
    env.reset(options={"task": index})
    return env.gold()


@pytest.fixture
def local():
    from turngym.envs.registry import make

    env = make("turngym/MathPython-v0", difficulty=1)
    yield env
    env.close()


def test_the_client_of_the_package_plays_an_episode(math, local):
    from openenv import GenericEnvClient

    with GenericEnvClient(base_url=math).sync() as client:
        begun = client.reset(split="train", index=5)
        observation, info = local.reset(options={"task": 5})
        assert (
            begun.observation["text"] == observation
            and begun.observation["messages"] == info["messages"]
        )
        seen = client.step({"text": CALL % "x = 41; print(x)"})
        assert seen.observation["text"] == "41" and not seen.done
        seen = client.step({"text": local.gold()[-1]})
        assert seen.done and seen.reward == 1.0
        assert seen.observation["terminated"] and seen.observation["stop"] == "answered"
        assert client.state()["step_count"] == 2


def test_sessions_do_not_share_an_episode(math, local):
    from openenv import GenericEnvClient

    def play(index):
        with GenericEnvClient(base_url=math).sync() as client:
            client.reset(split="train", index=index)
            client.step({"text": CALL % f"x = {index}"})
            return client.step({"text": CALL % "print(x)"}).observation["text"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(play, range(8))) == [str(i) for i in range(8)]


def test_tasks_can_be_listed(math):
    name = httpx.get(f"{math}/list_environments").json()[0]
    assert [one["name"] for one in httpx.get(f"{math}/{name}/splits").json()] == [
        "train",
        "valid",
        "test",
    ]
    count = httpx.post(f"{math}/{name}/num_tasks", json={"split": "test"}).json()["num_tasks"]
    assert count > 100
    assert (
        httpx.post(f"{math}/{name}/task", json={"split": "test", "index": count}).status_code == 400
    )
    listed = httpx.post(
        f"{math}/{name}/task_range", json={"split": "test", "start": 2, "stop": 4}
    ).json()["tasks"]
    assert [one["index"] for one in listed] == [2, 3]


def test_an_environment_here_is_the_one_there(math, local):
    from turngym.envs.adapters.openenv import Remote

    there = Remote(math)
    assert len(there.tasks) == len(local.tasks)
    for index in (0, 7):
        (seen, info), (own, own_info) = (
            env.reset(options={"task": index}) for env in (there, local)
        )
        assert (seen, info["messages"], info["task_id"]) == (
            own,
            own_info["messages"],
            own_info["task_id"],
        )
        for action in (CALL % "print(3)", *local.gold()[-1:]):
            got, own_got = there.step(action), local.step(action)
            assert got[:4] == own_got[:4] and got[4]["messages"] == own_got[4]["messages"]
        assert got[4]["stop"] == own_got[4]["stop"] == "answered"
    there.close()


def test_a_fork_plays_on_in_a_session_of_its_own(math):
    from turngym.envs.adapters.openenv import Remote

    env = Remote(math)
    env.reset(options={"task": 1})
    env.step(CALL % "x = 1")
    twin = env.fork()
    assert env.step(CALL % "x += 1; print(x)")[0] == "2"
    assert twin.step(CALL % "x += 2; print(x)")[0] == "3"
    env.close(), twin.close()


def test_a_server_of_others_is_an_environment(serve):
    """A world without tasks, whose action and observation have other names."""
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

    from turngym.envs.adapters.openenv import Remote

    class Guess(Action):
        number: str

    class Hint(Observation):
        hint: str

    class World(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None, **kwargs):
            self.goal = str(seed % 2)
            return Hint(hint="0 or 1?")

        def step(self, action, timeout_s=None, **kwargs):
            right = action.number == self.goal
            return Hint(hint="yes" if right else "no", done=True, reward=float(right))

        @property
        def state(self):
            return State()

    env = Remote(serve(create_fastapi_app(World, Guess, Hint, 4)), observation="hint")
    rewards = set()
    for seed in range(8):
        assert env.reset(seed=seed)[0] == "0 or 1?"
        text, reward, terminated, truncated, info = env.step("1")
        assert text in ("yes", "no") and terminated and not truncated and info["stop"] == "goal"
        rewards.add(reward)
    assert rewards == {0.0, 1.0}
    env.close()


def test_what_fails_is_a_failure_and_no_reward(math):
    from turngym.envs.adapters.openenv import Remote

    env = Remote(math)
    env.reset(options={"task": 0})
    env._client.close()
    *_, info = env.step("hello")  # a new session, which knows no episode
    assert info["outcome"] == "infra_error" and "did not answer step" in info["error"]


def test_mistakes_are_named(math, serve):
    from turngym.envs.adapters.openenv import Remote

    with pytest.raises(ValueError, match="where no OpenEnv server answers"):
        Remote("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="options\\['task'\\] is -1"):
        Remote(math).reset(options={"task": -1})


# --- who may ask, how much, and how slowly


def raw(url, sent, end=None):
    """All that comes back for some bytes on one connection."""
    where, came = urlsplit(url), b""
    with (
        socket.create_connection((where.hostname, where.port), 60) as connection,
        suppress(OSError),
    ):
        connection.sendall(sent)
        while not (end and end in came) and (data := connection.recv(2**16)):
            came += data
    return came


def upgrade(host, origin=None):
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["GET /ws HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
    lines += [] if origin is None else [f"Origin: {origin}"]
    return "\r\n".join([*lines, "", ""]).encode()


def socket_to(url):
    """A socket that says nothing."""
    where = urlsplit(url)
    connection = socket.create_connection((where.hostname, where.port), 60)
    connection.sendall(upgrade(where.netloc))
    assert connection.recv(12) == b"HTTP/1.1 101"
    return connection


REQUEST = (
    "POST /reset HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\nContent-Type: application/json\r\n"
)
REQUEST += "Content-Length: 2\r\n\r\n{{}}"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "evil@localhost"]
)
def test_another_host_is_refused_by_requests_and_sockets(math, host):
    came = raw(math, REQUEST.format(host, "").encode())
    assert came.startswith(b"HTTP/1.1 421 ") and b"--allow-host" in came
    assert raw(math, upgrade(host), b"\r\n\r\n").startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "file://"]
)
def test_a_page_of_another_site_is_refused_by_requests_and_sockets(math, origin):
    own = urlsplit(math).netloc
    came = raw(math, REQUEST.format(own, f"Origin: {origin}\r\n").encode())
    assert came.startswith(b"HTTP/1.1 403 ") and b"access-control" not in came.lower()
    assert raw(math, upgrade(own, origin), b"\r\n\r\n").startswith(b"HTTP/1.1 403 ")


def test_its_own_pages_and_names_that_are_allowed_are_answered(math, serve):
    from turngym.envs.adapters.openenv import app

    own = urlsplit(math).netloc
    assert raw(math, REQUEST.format(own, f"Origin: http://{own}\r\n").encode()).startswith(
        b"HTTP/1.1 200 "
    )
    assert raw(math, upgrade(own, f"http://{own}"), b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    boxed = serve(app("turngym/Math-v0", difficulty=1, allow_hosts=["box.example"]))
    assert raw(boxed, REQUEST.format("box.example:8000", "").encode()).startswith(b"HTTP/1.1 200 ")
    assert raw(boxed, upgrade("box.example"), b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("length", ["Content-Length: 900000000", "Transfer-Encoding: chunked"])
def test_a_body_without_end_is_refused(math, length):
    head = f"POST /step HTTP/1.1\r\nHost: {urlsplit(math).netloc}\r\n{length}\r\n\r\n".encode()
    chunk = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    assert raw(math, head + chunk * 150).startswith(b"HTTP/1.1 413 ")


def test_a_message_that_is_too_large_ends_its_socket_and_harms_nobody(math):
    from openenv import GenericEnvClient

    with GenericEnvClient(base_url=math).sync() as client:
        client.reset(split="train", index=5)
        with pytest.raises(Exception, match="1009"):
            client.step({"text": "x" * 3_000_000})
    with GenericEnvClient(base_url=math).sync() as client:
        assert client.reset(split="train", index=5).observation["text"]


def test_sockets_that_say_nothing_take_no_place(serve):
    from openenv import GenericEnvClient

    from turngym.envs.adapters.openenv import app

    url = serve(app("turngym/Math-v0", sessions=2, difficulty=1))
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket_to(url))
        for _ in range(2):
            client = stack.enter_context(GenericEnvClient(base_url=url).sync())
            assert client.reset(split="train", index=5).observation["text"]


def test_a_socket_that_says_nothing_is_left(serve, monkeypatch):
    from turngym.envs.adapters import openenv

    monkeypatch.setattr(openenv, "FIRST_MESSAGE_TIMEOUT", 0.1)
    url = serve(openenv.app("turngym/Math-v0", difficulty=1))
    with socket_to(url) as connection:
        came = b""
        while data := connection.recv(100):
            came += data
        assert b"nothing came for 0.1 s" in came


def test_a_session_without_messages_ends_and_gives_its_place_to_others(serve, monkeypatch):
    from openenv import GenericEnvClient

    from turngym.envs.adapters import openenv

    monkeypatch.setattr(openenv, "IDLE_TIMEOUT", 0.1)
    url = serve(openenv.app("turngym/Math-v0", sessions=1, difficulty=1))
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset(split="train", index=5)
        for _ in range(100):
            with suppress(Exception), GenericEnvClient(base_url=url).sync() as other:
                assert other.reset(split="train", index=5).observation["text"]
                return
    raise AssertionError("the place was never given back")


def test_our_own_server_leaves_who_is_slow_to_ask(monkeypatch):
    from turngym.envs.adapters import openenv
    from turngym.tools.http import server, server_limits

    monkeypatch.setattr(server_limits, "CLIENT_TIMEOUT", 0.1)
    made = []

    def remembered(*args, **settings):
        made.append(server.make_server_with_timeouts(*args, **settings))
        return made[0]

    monkeypatch.setattr(openenv, "make_server_with_timeouts", remembered)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    thread = threading.Thread(
        target=lambda: openenv.serve("turngym/Math-v0", port=port, difficulty=1), daemon=True
    )
    thread.start()
    url = f"http://127.0.0.1:{port}"
    while not (made and made[0].started):
        thread.join(0.05)
        assert thread.is_alive()
    assert httpx.get(f"{url}/health").status_code == 200
    for sent in (
        b"",
        b"GET / HTT",
        b"POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    ):
        assert raw(url, sent) == b""  # and it ends
    with socket_to(url):  # no request any more: its patience is another
        assert raw(url, REQUEST.format("localhost", "").encode()).startswith(b"HTTP/1.1 200 ")
    made[0].should_exit = True
    thread.join()


# --- the environment beside a server that is broken or hostile

SCHEMA = {"action": {"required": ["text"], "properties": {"text": {"type": "string"}}}}
ANSWERS = {
    "a list": b"[1]",
    "a number": b"5",
    "an action that is none": b'{"action": 5}',
    "no properties": b'{"action": {"required": ["text"], "properties": {}}}',
    "required is a text": b'{"action": {"required": "text"}}',
    "deep": b"[" * 100_000,
    "deep inside": b'{"action": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no JSON": b"<html>",
    "no UTF-8": b"\xff\xfe",
    "NaN": b'{"action": NaN}',
    "huge": None,
}


@pytest.fixture
def hostile():
    class Handler(BaseHTTPRequestHandler):
        sent = b""

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for _ in range(600 if self.sent is None else 0):
                    self.wfile.write(b" " * 2**20)
                self.wfile.write(self.sent or b"{}")

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Handler, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_cannot_be_used_is_a_failure_in_one_line(hostile, name):
    from turngym.envs.adapters.openenv import Remote
    from turngym.envs.outcomes import EnvFailure

    handler, url = hostile
    handler.sent = ANSWERS[name]
    with pytest.raises(EnvFailure, match="where no OpenEnv server answers: ") as failed:
        Remote(url, timeout=20)
    assert (
        isinstance(failed.value, ValueError)
        and "\n" not in str(failed.value)
        and len(str(failed.value)) < 500
    )
    assert name != "huge" or "larger than 8388608 bytes" in str(failed.value)


SAID = {
    "an observation that is none": {"observation": [1], "reward": 0, "done": False},
    "a reward that is none": {"observation": {"text": "x"}, "reward": "much", "done": False},
    "a role that is none": {
        "observation": {"text": "x", "messages": [5]},
        "reward": 0,
        "done": False,
    },
    "messages that are none": {
        "observation": {"text": "x", "messages": {"a": 1}},
        "reward": 0,
        "done": False,
    },
}


@pytest.mark.parametrize("said", [*SAID, "deep", "huge", "no JSON"])
def test_what_comes_through_a_socket_and_cannot_be_used_is_a_failure(said, serve):
    """An application that lies in its second answer."""
    from turngym.envs.adapters.openenv import Remote

    texts = {"deep": "[" * 100_000, "huge": json.dumps("x" * 9 * 2**20), "no JSON": "{"}
    text = texts.get(said) or json.dumps({"type": "observation", "data": SAID[said]})

    async def application(scope, receive, send):
        if scope["type"] == "http":
            found = scope["path"] == "/schema"
            body = json.dumps(SCHEMA).encode() if found else b""
            await send(
                {"type": "http.response.start", "status": 200 if found else 404, "headers": []}
            )
            return await send({"type": "http.response.body", "body": body})
        if scope["type"] != "websocket":
            return None
        await receive()
        await send({"type": "websocket.accept"})
        good = {
            "type": "observation",
            "data": {"observation": {"text": "hello"}, "reward": None, "done": False},
        }
        for answer in (json.dumps(good), text):
            if (await receive())["type"] == "websocket.disconnect":
                return None
            await send({"type": "websocket.send", "text": answer})

    env = Remote(serve(application), timeout=20)
    assert env.reset(seed=1)[0] == "hello"
    *_, info = env.step("x")
    assert (
        info["outcome"] == "infra_error"
        and "did not answer step: " in info["error"]
        and "\n" not in info["error"]
    )
    env.close()
