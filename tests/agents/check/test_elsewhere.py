import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from turngym.agents.check import single
from turngym.agents.check.clauses import CLAUSES, check, run
from turngym.agents.check.episodes import Case

MODULE = """
import os, sys
from turngym.envs import Reply, StopReason, TextEnv

class Words(TextEnv):
    words = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]

    def __init__(self, how="sorted", sizes=(1, 2)):
        super().__init__()
        self.how, self.sizes, self.home = how, list(sizes), os.getpid()

    def on_reset(self, rng, options):
        print("hello")
        self.number = int(rng.integers(1000))
        order = {"sorted": sorted, "set": lambda words: list(set(words))}
        if self.how == "exit" and "PYTHONHASHSEED" in os.environ:
            os._exit(3)
        return f"{self.number} {order.get(self.how, sorted)(self.words)} {self.sizes} \\ud83d\\ude00"

    def on_step(self, text):
        return Reply("", float(text == str(self.number)), StopReason.ANSWERED)

    def gold(self):
        return [str(self.number)]
"""


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The id of an environment in a module of its own, made `how`."""
    (tmp_path / "words_of_a_test.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)

    def make(how="sorted"):
        made.append(f"test/Words-{how}-v0")
        gymnasium.register(made[-1], entry_point="words_of_a_test:Words", kwargs={"how": how})
        return made[-1]

    made = []
    yield make
    for env_id in made:
        del gymnasium.registry[env_id]


def process(env_id, **options):
    return run(next(clause for clause in CLAUSES if clause.name == "process"), Case(env_id, options))


def test_a_second_process_sees_the_same_episodes_whatever_it_prints(words):
    assert process(words(), sizes=[5]).note == "4 episodes"


def test_the_order_of_a_set_breaks_this_clause_and_no_other(words):
    problems = {result.name: result.problem for result in check(words("set")) if not result.ok}
    assert set(problems) == {"process"}
    assert "another episode in a second process (does it use hash() or the order of a set?): at reset" in str(problems)


@pytest.mark.parametrize(("ours", "theirs"), [(None, "1"), ("0", "1"), ("1", "2")])
def test_the_second_process_has_another_hash_seed_and_the_same_paths(ours, theirs, words, monkeypatch):
    def run(argv, *, env, **_):
        given.update(env)
        return subprocess.CompletedProcess(argv, 1, "", "at line 3\nOSError: no display\n")

    given = {}
    if ours is not None:
        monkeypatch.setenv("PYTHONHASHSEED", ours)
    monkeypatch.setattr(subprocess, "run", run)
    assert process(words()).problem == "a second process ended with exit code 1: OSError: no display"
    assert given["PYTHONHASHSEED"] == theirs
    assert given["PYTHONPATH"].split(os.pathsep) == [path or str(Path.cwd()) for path in sys.path]


def test_a_second_process_that_ends_is_seen(words):
    assert process(words("exit")).problem == "a second process ended with exit code 3: hello"


def test_a_second_process_that_does_not_answer_is_left(words, monkeypatch):
    monkeypatch.setattr(single, "SECONDS", 0.01)
    assert process(words()).problem == "a second process did not play 4 episodes within 0.01 s"


def test_what_has_no_name_in_another_process_is_said_not_to_be_checked(words, world, register):
    result = process(register(world))
    assert result.ok and "not checked" in result.note and "register it by name, as 'module:factory'" in result.note
    result = process(words(), sizes={1, 2})
    assert result.ok and "not checked: the options of test/Words-sorted-v0 have no JSON form" in result.note
