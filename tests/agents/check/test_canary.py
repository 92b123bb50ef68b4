import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from turngym.agents.check import canary
from turngym.agents.check.canary import Detector
from turngym.agents.check.episodes import Subject
from turngym.envs import Reply, TextEnv
from turngym.tools import PythonTool


def told(env, reply, **info):
    return Reply(reply.text, reply.reward, reply.stop, info={**reply.info, **info})


# --- one leak each


def test_a_gold_in_the_info_is_seen_and_breaks_nothing_else(world, broken):
    class Explaining(world):
        def on_step(self, text):
            return told(self, super().on_step(text), expected=self.secret)

    problems = broken(Explaining)
    assert set(problems) == {"canary"}
    assert "seed 0: the gold is seen in what step gives, the journal" in problems["canary"]
    assert "'expected': 'GOLD'" in problems["canary"]


@pytest.mark.parametrize("form", ["{}", "{:,}", "{:_}", "x{}y", "{}.0"])
def test_a_gold_in_the_prompt_is_seen_in_any_spelling(form, world, problem):
    class Telling(world):
        def on_reset(self, rng, options):
            return f"{super().on_reset(rng, options)} It is not {form.format(int(self.secret))}."

    assert "what reset gives" in problem("canary", Telling)


def test_a_gold_in_an_error_is_seen(world, problem):
    class Complaining(world):
        def step(self, action):
            if not isinstance(action, str):
                raise TypeError(f"{action!r} is not {self.secret}")
            return super().step(action)

    class Choosy(world):
        def on_reset(self, rng, options):
            text = super().on_reset(rng, options)
            if options:
                raise ValueError("there are no options") from KeyError(self.secret)
            return text

    assert "an exception (TypeError) instead of a step with None" in problem("canary", Complaining)
    assert "an exception (ValueError) instead of a reset with" in problem("canary", Choosy)


def log_it(gold):
    logging.getLogger("world.deep").debug("the gold is %s", gold)


def log_aside(gold):
    logging.getLogger("world").info("no more", extra={"gold": gold})


def print_it(gold):
    sys.stdout.write(f"{gold}\n")


def shout_it(gold):
    sys.stderr.write(f"{gold}\n")


def warn_of_it(gold):
    warnings.warn(f"not {gold}", stacklevel=1)


@pytest.mark.parametrize(
    ("say", "where"),
    [
        (log_it, "the log world.deep"),
        (log_aside, "the log world"),
        (print_it, "what is printed"),
        (shout_it, "what is printed"),
        (warn_of_it, "a warning"),
    ],
)
def test_a_gold_that_is_said_aside_is_seen(say, where, world, problem):
    class Talking(world):
        def on_step(self, text):
            say(self.secret)
            return super().on_step(text)

    logging.disable(logging.ERROR)
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    try:
        assert f"the gold is seen in {where}" in problem("canary", Talking)
        assert (
            logging.root.manager.disable == logging.ERROR and (root.level, root.handlers) == before
        )
    finally:
        logging.disable(logging.NOTSET)


def test_a_gold_in_the_repr_or_the_snapshot_is_seen(world, problem):
    class Shown(world):
        def __repr__(self):
            return f"Shown({getattr(self, 'secret', None)})"

    class Noting(world):
        def snapshot(self):
            return {**super().snapshot(), "gold": self.secret}

    class Named(world):
        def on_reset(self, rng, options):
            text = super().on_reset(rng, options)
            self.task_id = self.secret if options else "number"
            return text

    assert "the repr" in problem("canary", Shown)
    assert "the snapshot" in problem("canary", Noting)
    assert "the gold is seen in the journal" in problem("canary", Named)


def test_a_gold_that_tools_are_called_with_or_give_is_seen(quiz, memory, problem):
    class Telltale(quiz):
        def on_step(self, text):
            self.toolbox.tools["memory"].call({"gold": self.task.gold})
            return super().on_step(text)

    class Knowing(memory):
        name = "knowing"

        def __init__(self, words=(), env=None):
            super().__init__(words)
            self.env = env

        def call(self, arguments):
            return type(super().call(arguments))("ok", f"known: {self.env.task.gold}")

        def fork(self):
            return Knowing(self.words, self.env)

    class Leaking(quiz):
        def __init__(self):
            super().__init__([knowing := Knowing()])
            knowing.env = self

    class Later(Telltale):
        """It tells only in the fork in which a task is played."""

        def on_reset(self, rng, options):
            self.chosen = bool(options)
            return super().on_reset(rng, options)

        def on_step(self, text):
            return super().on_step(text) if self.chosen else quiz.on_step(self, text)

    assert "the arguments of memory" in problem("canary", Telltale)
    assert "the gold is seen in the arguments of memory;" in problem("canary", Later)
    assert "the result of knowing" in problem("canary", Leaking)


def test_a_gold_that_is_not_put_in_place_is_seen(world, problem):
    class Lying(world):
        def plant(self, canary):
            return True

    assert "Lying.plant returns True, but gold() is" in problem("canary", Lying)


def test_a_gold_that_is_no_text_is_said_not_to_be_checked(world, register):
    class Way(world):
        plant = TextEnv.plant

        def on_step(self, text):
            return told(self, super().on_step(text), expected=self.secret)

    assert canary.check_canary(Subject(register(Way), {})).startswith("not checked: ")
    assert canary.check_canary(Subject(register(world), {})) == "4 episodes"


def test_every_episode_has_a_canary_of_its_own(world, register):
    planted = []

    class Keeping(world):
        def plant(self, canary):
            planted.append(canary)
            return super().plant(canary)

    case = Subject(register(Keeping), {})
    canary.check_canary(case)
    assert len(set(planted)) == 4 and all(len(text) == 15 and text.isdigit() for text in planted)
    canary.check_canary(case)
    assert planted[:4] == planted[4:]


def test_a_watch_looks_at_text_and_at_what_is_in_things():
    watch = Detector("123456789")
    watch.look("nothing", "12345678", ["1234", "56789"], {"a": 12345678})
    assert watch.seen == {}
    watch.look("text", f"{'a' * 100}123456789{'b' * 200}")
    watch.look("things", {"a": ["b", (123456789, None)]})
    watch.look("text", "123456789 again")
    assert (
        list(watch.seen) == ["text", "things"]
        and watch.seen["text"] == "a" * 60 + "GOLD" + "b" * 71
    )


def test_a_log_whose_arguments_do_not_fit_is_searched_all_the_same():
    watch = Detector("123456789")
    canary._Log(watch).handle(
        logging.LogRecord("world", logging.INFO, "file", 1, "%d and %d", ("123456789",), None)
    )
    assert list(watch.seen) == ["the log world"]


# --- the Python tool


def with_python(quiz, leak, level="namespaces"):
    """A quiz with a Python tool; `leak(env)` runs before every call of a tool."""

    class Armed(quiz):
        def __init__(self):
            super().__init__([PythonTool(timeout=30.0, level=level)])

        def on_step(self, text):
            leak(self)
            return super().on_step(text)

    return Armed


def test_a_program_in_the_tool_finds_no_gold_where_there_is_none(quiz, problem):
    assert problem("canary", with_python(quiz, lambda env: None)) == ""


def test_a_gold_in_the_session_is_found_by_a_program(quiz, problem):
    def leak(env):
        python = env.toolbox.tools["python"]
        getattr(python, "tool", python).call({"code": f"hidden = ['{env.task.gold}']"})

    found = problem("canary", with_python(quiz, leak))
    assert "the tool's own process" in found and "'objects'" in found


def test_a_gold_in_a_temporary_file_is_found_by_a_program(quiz, problem):
    files = []

    def leak(env):
        handle, name = tempfile.mkstemp(dir="/tmp")
        files.append(name)
        os.write(handle, f"gold: {env.task.gold}".encode())
        os.close(handle)

    try:
        assert "'temporary files'" in problem("canary", with_python(quiz, leak, "rlimits-only"))
    finally:
        for name in files:
            Path(name).unlink()


def test_a_program_that_cannot_run_is_no_proof(quiz, problem):
    class Deaf(PythonTool):
        def call(self, arguments):
            return type(super().call({"code": "1"}))("error", "not today")

        def fork(self):
            return Deaf()

    class Armed(quiz):
        def __init__(self):
            super().__init__([Deaf()])

    found = problem("canary", Armed)
    assert "the program that searches its own process did not get to its end: 'not today'" in found
