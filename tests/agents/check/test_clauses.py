import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from turngym.agents.check import clauses as module
from turngym.agents.check.clauses import CLAUSES, Clause, Result, check, run
from turngym.agents.check.episodes import Broken, Subject
from turngym.envs import QuestionEnv, Reply, StopReason, TextEnv, registry

MATH = "turngym/Math-v0"


PROGRAM = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from turngym.agents.check.clauses import check
results = {env_id: [asdict(result) for result in check(env_id)] for env_id in sys.argv[1:]}
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
print(json.dumps({"results": results, "children": len(children), "torch": "torch" in sys.modules}))
"""


BRING_ALL = [entry for entry in registry.ENVS if not entry.needs]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What a process says that checks every registered environment, and what it leaves behind."""
    folder = tmp_path_factory.mktemp("checked")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *(entry.id for entry in BRING_ALL)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    mark = f"TMPDIR={folder}".encode()
    alive = [path for path in Path("/proc").glob("[0-9]*") if mark in _environment(path)]
    return {
        **json.loads(done.stdout),
        "stderr": done.stderr,
        "files": list(folder.iterdir()),
        "alive": alive,
    }


def _environment(process):
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
@pytest.mark.parametrize("entry", BRING_ALL, ids=lambda entry: entry.id)
def test_every_registered_environment_keeps_the_contract(entry, checked):
    results = checked["results"][entry.id]
    assert [result["name"] for result in results] == [clause.name for clause in CLAUSES]
    assert {result["name"]: result["problem"] for result in results if not result["ok"]} == {}
    unchecked = [result["name"] for result in results if "not checked" in result["note"]]
    acts = (
        "household" in entry.entry_point or "diagnostic" in entry.entry_point
    )  # there the gold is a way of acting
    assert unchecked == (["canary"] if acts else [])


@pytest.mark.slow
def test_a_process_that_checked_leaves_nothing_behind(checked):
    assert (checked["stderr"], checked["files"], checked["alive"], checked["torch"]) == (
        "",
        [],
        [],
        False,
    )
    # The server of Python sessions lives as long as the process; where all golds are plain numbers the grader has none.
    assert checked["children"] == 1


def test_clauses_have_names_and_sentences():
    assert len({clause.name for clause in CLAUSES}) == len(CLAUSES) == 14
    assert all(clause.about and "\n" not in clause.about for clause in CLAUSES)


@pytest.mark.parametrize(
    ("env_id", "options", "words"),
    [
        ("turngym/Mth-v0", None, "unknown environment 'turngym/Mth-v0'; did you mean"),
        (
            MATH,
            {"dificulty": 1},
            "turngym/Math-v0 takes no option 'dificulty'; did you mean 'difficulty'?",
        ),
        (MATH, {"difficulty": 9}, "difficulty is"),
    ],
)
def test_a_mistake_of_the_user_is_no_broken_clause(env_id, options, words):
    with pytest.raises(ValueError) as caught:
        check(env_id, options)
    assert words in str(caught.value)


def test_an_environment_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="turngym supports TextEnv environments only"):
        check("CartPole-v1")


def test_clauses_are_run_one_by_one_with_the_options_and_the_seed(monkeypatch):
    ran = []

    def hold(case):
        ran.append(case)
        return "2 tasks"

    def fail(case):
        raise Broken("it is 1; make it 2")

    def doubt(case):
        assert case is None, "Gymnasium's words"

    def crash(case):
        raise KeyError("gone")

    clauses = tuple(
        Clause(work.__name__, "A sentence.", work) for work in (hold, fail, doubt, crash)
    )
    monkeypatch.setattr(module, "CLAUSES", clauses)
    results = check(MATH, {"difficulty": 3}, seed=4)
    assert ran == []
    assert next(results) == Result("hold", "A sentence.", True, note="2 tasks")
    assert ran == [Subject(MATH, {"difficulty": 3}, 4)]
    assert next(results) == Result("fail", "A sentence.", False, "it is 1; make it 2")
    assert next(results).problem.startswith("Gymnasium's words")
    assert next(results) == Result("crash", "A sentence.", False, "it raises KeyError: 'gone'")


def test_an_interrupt_ends_the_check():
    def interrupted(case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Clause("a", "A.", interrupted), Subject(MATH, {}))


class Echo(TextEnv):
    def on_reset(self, rng, options):
        self.number = int(rng.integers(1000))
        return f"Say {self.number}."

    def on_step(self, text):
        return Reply(text[:100], float(text == str(self.number)), StopReason.ANSWERED)

    def gold(self):
        return [str(self.number)]


def test_the_check_closes_every_environment_and_leaves_no_thread_handler_or_file(
    tmp_path, monkeypatch
):
    opened, closed = [], []

    class Counted(Echo):
        def __init__(self):
            super().__init__()
            opened.append(id(self))

        def fork(self):
            twin = super().fork()
            opened.append(id(twin))
            kept.append(twin)  # so that no other gets its id
            return twin

        def close(self):
            closed.append(id(self))
            kept.append(self)

    kept = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(
        gymnasium.registry, "test/Counted-v0", gymnasium.envs.registration.EnvSpec("x", Counted)
    )
    gymnasium.registry["test/Counted-v0"].id = "test/Counted-v0"
    others = set(threading.enumerate())
    before = list(logging.getLogger().handlers), dict(os.environ), sys.stdout
    assert {
        result.name: result.problem for result in check("test/Counted-v0") if not result.ok
    } == {}
    assert (list(logging.getLogger().handlers), dict(os.environ), sys.stdout) == before
    for thread in set(threading.enumerate()) - others:
        thread.join(30)
    assert set(threading.enumerate()) <= others
    assert list(tmp_path.iterdir()) == []
    assert len(opened) > 50 and set(opened) == set(closed)


def test_a_grader_that_raises_is_named_by_the_first_clause_that_it_breaks(monkeypatch):
    def grade(answer, gold):
        raise ValueError("odd text")

    def make_failing():
        return QuestionEnv([("1+1?", "2"), ("2+2?", "4")], grade)

    spec = EnvSpec("test/Failing-v0", entry_point=make_failing)
    monkeypatch.setitem(gymnasium.registry, "test/Failing-v0", spec)
    result = run(CLAUSES[0], Subject("test/Failing-v0", {}, 0))
    assert not result.ok and "the grader grade raises ValueError: odd text" in result.problem
