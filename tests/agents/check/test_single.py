import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from turngym.agents.check import clauses
from turngym.agents.check.clauses import CLAUSES, check, run
from turngym.agents.check.episodes import Broken, Subject
from turngym.envs import Reply, TextEnv


def breaks(problems, *clauses):
    """Whether these clauses are broken and no other, each with a sentence."""
    return set(problems) == set(clauses) and all(problems.values())


# --- Gymnasium


def test_a_warning_of_gymnasiums_check_is_seen(world, broken):
    class Warned(world):
        def seed(self, seed):
            """Gymnasium warns of this method."""

    problems = broken(Warned)
    assert breaks(problems, "gymnasium")
    assert (
        "check_env gives 1 warnings" in problems["gymnasium"]
        and "`seed` function" in problems["gymnasium"]
    )


def test_a_warning_of_the_environments_own_is_seen(world, problem):
    class Deprecated(world):
        def on_reset(self, rng, options):
            import warnings

            warnings.warn("on_reset is old", DeprecationWarning, stacklevel=1)
            return super().on_reset(rng, options)

    assert "on_reset is old" in problem("gymnasium", Deprecated)
    assert problem("seeds", Deprecated) == ""


def test_what_gymnasium_refuses_is_said_in_its_words(world, problem):
    class Unseeded(world):
        def reset(self, *, seed=None, options=None):
            if seed is not None:
                self.np_random = np.random.default_rng(7)
            return super().reset(options=options)

    assert "random number generators are not different" in problem("gymnasium", Unseeded)


def test_a_silenced_gymnasium_is_heard_all_the_same(world, problem, monkeypatch):
    class Warned(world):
        def seed(self, seed):
            """Gymnasium warns of this method."""

    monkeypatch.setattr(gymnasium.logger, "min_level", gymnasium.logger.ERROR)
    assert problem("gymnasium", Warned)
    assert gymnasium.logger.min_level == gymnasium.logger.ERROR


# --- gold


def test_a_gold_that_earns_less_than_one_is_seen(world, broken):
    class HalfPaid(world):
        def on_step(self, text):
            reply = super().on_step(text)
            return Reply(reply.text, reply.reward / 2, reply.stop, info=reply.info)

    problems = broken(HalfPaid)
    assert (
        breaks(problems, "gold")
        and "earns 0.5 and ends with 'answered'; it must earn 1" in problems["gold"]
    )


def test_a_gold_that_earns_more_than_one_is_seen(world, problem):
    class Generous(world):
        def on_step(self, text):
            reply = super().on_step(text)
            return Reply(reply.text, reply.reward + 0.25, reply.stop, info=reply.info)

    assert "earns 1.75" in problem("gold", Generous)


def test_a_gold_is_also_played_turn_by_turn(world, problem):
    class Absent(world):
        """Its expert has only a plan for the beginning."""

        def gold(self):
            return super().gold() if self.turn == 0 else ["answer 0"]

    assert "the first of gold() at every turn earns 0.0" in problem("gold", Absent)


def test_a_plan_that_ends_too_soon_is_seen(world, problem):
    class Unfinished(world):
        def gold(self):
            return super().gold()[-1 if self.turn else 0 :][:1]

    assert "does not end the episode; gold() must hold an action for every turn left" in problem(
        "gold", Unfinished
    )


def test_a_gold_that_changes_when_it_is_asked_for_is_seen(world, problem):
    class Wavering(world):
        asked = 0

        def gold(self):
            self.asked += 1
            return super().gold() if self.asked % 2 else ["think", *super().gold()]

    assert "it must leave the episode as it is" in problem("gold", Wavering)


def test_an_environment_without_an_expert_is_told_how_to_have_one(world, broken):
    class Lost(world):
        gold = TextEnv.gold

    problems = broken(Lost)
    assert breaks(problems, "gold", "canary")
    assert problems["gold"] == "it raises TypeError: Lost has no expert: define gold() -> list[str]"


# --- randomness


def test_seeds_that_are_ignored_are_seen(world, broken):
    class Unseeded(world):
        def on_reset(self, rng, options):
            return super().on_reset(np.random.default_rng(0), options)

        def on_step(self, text):
            return super().on_step(text) if text.startswith("answer") else Reply("hm")

    problems = broken(Unseeded)
    assert (
        breaks(problems, "seeds") and "16 seeds give one and the same episode" in problems["seeds"]
    )


def test_one_task_has_nothing_to_draw(world, problem):
    class Single(world):
        tasks = range(1)

        def on_reset(self, rng, options):
            return super().on_reset(rng, {"task": 0})

        def on_step(self, text):
            return super().on_step(text) if text.startswith("answer") else Reply("hm")

    assert problem("seeds", Single) == ""


def test_what_an_episode_leaves_for_the_next_is_seen(world, problem):
    class Remembering(world):
        finished = 0

        def on_reset(self, rng, options):
            return f"{super().on_reset(rng, options)} You gave {self.finished} answers."

        def on_step(self, text):
            self.finished += text.startswith("answer")
            return super().on_step(text)

    assert "begin afresh in on_reset" in problem("seeds", Remembering)


def test_what_is_otherwise_the_second_time_is_seen(world, problem):
    class Bored(world):
        def __init__(self):
            super().__init__()
            self.asked = set()

        def on_reset(self, rng, options):
            text = super().on_reset(rng, options)
            again = self.number in self.asked
            self.asked.add(self.number)
            return f"Again? {text}" if again else text

    assert "seed 0 is another episode when it is played again" in problem("seeds", Bored)


def test_what_differs_between_environments_is_seen(world, problem):
    class Born(world):
        def __init__(self):
            super().__init__()
            self.birth = time.perf_counter_ns()

        def on_reset(self, rng, options):
            return f"{super().on_reset(rng, options)} I was born at {self.birth}."

    assert "seed 0 is another episode in a fresh environment" in problem("seeds", Born)


def test_other_sources_of_chance_are_seen(world, problem):
    class Clock(world):
        def on_step(self, text):
            reply = super().on_step(text)
            return Reply(
                reply.text, reply.reward, reply.stop, info={"seconds": time.perf_counter()}
            )

    for name in ("seeds", "threads", "fork", "snapshot", "journal", "vector"):
        assert "seconds" in problem(name, Clock)


@pytest.mark.parametrize(
    "draw", [random.random, np.random.rand, lambda: random.seed(0), lambda: np.random.seed(0)]
)
def test_shared_generators_are_watched(draw, world, problem):
    class Rolling(world):
        def on_step(self, text):
            draw()
            return super().on_step(text)

    assert "use self.np_random" in problem("generators", Rolling)


def test_a_generator_that_everyone_shares_is_left_as_it_was(world, broken):
    class Rolling(world):
        def on_reset(self, rng, options):
            number = int(rng.integers(10))
            random.random()
            np.random.rand()
            return super().on_reset(rng, {"task": number, **options})

    random.seed(5)
    np.random.seed(5)
    problems = broken(Rolling)
    assert (
        breaks(problems, "generators")
        and "random and numpy.random; use self.np_random" in problems["generators"]
    )


def test_the_clause_on_generators_puts_them_back(world, register):
    class Rolling(world):
        def on_reset(self, rng, options):
            random.seed(1)
            np.random.seed(1)
            return super().on_reset(rng, options)

    case = Subject(register(Rolling), {})
    assert case.scenarios  # written now, as it plays
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), repr(np.random.get_state())
    with pytest.raises(Broken):
        clauses.check_generators(case)
    assert (random.getstate(), repr(np.random.get_state())) == before


# --- threads


def test_an_environment_of_the_main_thread_is_seen(world, broken):
    class Signalling(world):
        def on_step(self, text):
            if threading.current_thread() is not threading.main_thread():
                raise ValueError("signal only works in main thread")
            return super().on_step(text)

    problems = broken(Signalling)
    assert breaks(problems, "threads")
    assert problems["threads"] == "it raises ValueError: signal only works in main thread"


def test_state_that_environments_share_is_seen(world, problem):
    class OneForAll(world):
        total = [0]  # noqa: RUF012

        def on_reset(self, rng, options):
            self.total[0] = 0
            return super().on_reset(rng, options)

        def on_step(self, text):
            self.total[0] += 1
            reply = super().on_step(text)
            return Reply(f"{self.total[0]} {reply.text}", reply.reward, reply.stop, info=reply.info)

    assert "do they share state?" in problem("threads", OneForAll)


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
    return run(
        next(clause for clause in CLAUSES if clause.name == "process"), Subject(env_id, options)
    )


def test_a_second_process_sees_the_same_episodes_whatever_it_prints(words):
    assert process(words(), sizes=[5]).note == "4 episodes"


def test_the_order_of_a_set_breaks_this_clause_and_no_other(words):
    problems = {result.name: result.problem for result in check(words("set")) if not result.ok}
    assert set(problems) == {"process"}
    assert (
        "another episode in a second process (does it use hash() or the order of a set?): at reset"
        in str(problems)
    )


@pytest.mark.parametrize(("ours", "theirs"), [(None, "1"), ("0", "1"), ("1", "2")])
def test_the_second_process_has_another_hash_seed_and_the_same_paths(
    ours, theirs, words, monkeypatch
):
    def run(argv, *, env, **_):
        given.update(env)
        return subprocess.CompletedProcess(argv, 1, "", "at line 3\nOSError: no display\n")

    given = {}
    if ours is not None:
        monkeypatch.setenv("PYTHONHASHSEED", ours)
    monkeypatch.setattr(subprocess, "run", run)
    assert (
        process(words()).problem == "a second process ended with exit code 1: OSError: no display"
    )
    assert given["PYTHONHASHSEED"] == theirs
    assert given["PYTHONPATH"].split(os.pathsep) == [path or str(Path.cwd()) for path in sys.path]


def test_a_second_process_that_ends_is_seen(words):
    assert process(words("exit")).problem == "a second process ended with exit code 3: hello"


def test_a_second_process_that_does_not_answer_is_left(words, monkeypatch):
    monkeypatch.setattr(clauses, "SECONDS", 0.01)
    assert process(words()).problem == "a second process did not play its episodes within 0.01 s"


def test_what_has_no_name_in_another_process_is_said_not_to_be_checked(words, world, register):
    result = process(register(world))
    assert (
        result.ok
        and "not checked" in result.note
        and "register it by name, as 'module:factory'" in result.note
    )
    result = process(words(), sizes={1, 2})
    assert (
        result.ok
        and "not checked: the options of test/Words-sorted-v0 have no JSON form" in result.note
    )
