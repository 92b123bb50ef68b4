import subprocess
import sys

import pytest

from turngym.envs.math.grading.grader import Grade
from turngym.envs.outcomes import Reply
from turngym.envs.question.env import QuestionEnv
from turngym.tests.verify.grader.predicates import Seen
from turngym.tests.verify.grader.worker import Server
from turngym.tools import PythonTool


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def see(server, text, gold="7", env="math"):
    return Seen(**server.handle({"env": env, "text": text, "gold": gold}))


def call(code="1"):
    return f'<tool_call>{{"name": "python", "arguments": {{"code": "{code}"}}}}</tool_call>'


class Graded:
    """A grader that does as it is told."""

    def __init__(self, do):
        self.do = do

    def grade(self, *, completion, gold):
        if "wanted" in completion:
            self.do()
        return Grade(1.0, "7", "string")

    def check_gold(self, gold):
        pass


def test_what_the_grader_does_is_seen(server, tmp_path):
    def fail():
        raise RecursionError("deep")

    def write():
        (tmp_path / "new").write_text("x")

    server.grader = Graded(fail)
    assert see(server, "wanted").raised == "RecursionError: deep"
    server.grader = Graded(write)
    assert see(server, "wanted").files == (str(tmp_path / "new"),)
    assert not see(server, "wanted").next_ok  # it pays whatever comes


def test_what_runs_while_an_answer_is_graded_is_heard(server):
    code = compile("1", "<string>", "eval")
    own = compile("1", __file__, "eval")
    events = [
        ("exec", (code,)),
        ("compile", ("1", "<string>")),
        ("os.system", (b"id",)),
        ("subprocess.Popen", ("/bin/id", ["id"], None, None)),
    ]
    server.hear(*events[0])
    assert server.ran is None
    server.ran = []
    for event in (
        *events,
        ("exec", (own,)),
        ("subprocess.Popen", (sys.executable, [], None, None)),
        ("open", ("x",)),
    ):
        server.hear(*event)
    assert [one.split()[0] for one in server.ran] == [
        "exec",
        "compile",
        "os.system",
        "subprocess.Popen",
    ]


def test_calls_turns_and_the_cut_are_counted(server):
    answered = see(server, r"\boxed{7}", env="math_tool")
    assert (answered.score, answered.calls, answered.turns, answered.cut) == (1.0, 0, 1, False)
    twice = see(server, call() + call() + r"\boxed{7}", env="math_tool")
    assert (twice.score, twice.calls, twice.most_calls, twice.turns) == (0.0, 1, 4, None)
    assert twice.cut and twice.limits and not twice.error and twice.control == 0
    fenced = see(
        server, "```python\nprint(6)\n```\n```output\n42\n```\n\\boxed{7}", env="math_tool"
    )
    assert (fenced.score, fenced.calls, fenced.cut) == (0.0, 1, True)
    unknown = see(server, '<tool_call>{"name": "id", "arguments": {}}</tool_call>', env="math_tool")
    assert unknown.calls == 0 and unknown.error and not unknown.cut


def test_a_tool_that_lets_its_limits_be_set_is_found(server, monkeypatch):
    plain = PythonTool.call

    def lax(self, arguments):
        self.timeout = 99.0
        return plain(self, arguments)

    monkeypatch.setattr(
        PythonTool,
        "call",
        lambda self, arguments: (lax if "9" in arguments["code"] else plain)(self, arguments),
    )
    assert see(server, call(), env="math_tool").limits
    assert not see(server, call("9"), env="math_tool").limits


def test_its_own_processes_are_told_and_ended(server):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in [pid for pid, *_ in server.handle({"processes": True})]
        child.communicate(b"\n")
    assert server.handle({"rest": True}) is None
    assert server.handle({"ready": False}) is True


def test_what_stands_behind_the_first_call_must_not_count(server, monkeypatch):
    monkeypatch.setattr(QuestionEnv, "on_step", lambda self, text: Reply(text))
    assert not see(server, call() + call(), env="math_tool").cut
    assert see(server, call(), env="math_tool").cut
