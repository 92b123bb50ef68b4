"""An environment in a file of one's own: every command takes it by name, and tells a broken one in one line."""

import importlib
import json
import sys
from pathlib import Path

import gymnasium
import pytest

from turngym import __main__ as cli
from turngym.agents.cli import terminal

GUESS = """
import gymnasium
from turngym.envs import Reply, StopReason, TextEnv

class Guess(TextEnv):
    def on_reset(self, rng, options):
        self.secret = str(rng.integers(1, 8))
        return "Guess a number from 1 to 7."

    def on_step(self, text):
        if text == self.secret:
            return Reply("right", 1.0, StopReason.GOAL)
        return Reply("higher" if text < self.secret else "lower")

    def gold(self):
        return [self.secret]

def make_guess(max_turns=3):
    return Guess(max_turns)

thing = 3
gymnasium.register("mine/Guess-v0", "own_guess:make_guess")
"""
LINES = GUESS.count("\n")
BROKEN = {
    "there is no module": (
        "own_gues:Guess",
        "",
        "there is no module own_gues, nor a file of it in ",
        "own_guess'?",
    ),
    "there is no name": ("own_guess:Gues", "", "own_guess.py) has no Gues; did you mean 'Guess'?"),
    "there is no id": (
        "own_guess:mine/Gess-v0",
        "",
        "registers no environment 'mine/Gess-v0'; did you mean 'mine/G",
    ),
    "it is no environment": (
        "own_guess:thing",
        "",
        "own_guess:thing is a int; name a class that derives from TextEnv",
    ),
    "the import fails": (
        "own_guess:Guess",
        "1 / 0",
        "raises ZeroDivisionError: division by zero (",
        f"line {LINES + 1})",
    ),
    "a package is missing": (
        "own_guess:Guess",
        "import numpyy",
        "ModuleNotFoundError: No module named 'numpyy' (",
    ),
    "another class": (
        "own_guess:Other",
        "class Other:\n    pass",
        "own_guess:Other is the class Other; name a class",
    ),
    "another thing is made": (
        "own_guess:f",
        "def f():\n    return 1",
        "own_guess:f makes a int; turngym supports",
    ),
    "options are missing": (
        "own_guess:f",
        "def f(size):\n    return Guess(size)",
        "own_guess:f cannot be made with {}: f() missing 1 required positional argument: 'size'; give it a default",
    ),
    "the base class is not called": (
        "own_guess:Own",
        "class Own(Guess):\n    def __init__(self):\n        self.max_turns_ = 3",
        "Own.__init__ has to call super().__init__(max_turns)",
    ),
    "making it fails": (
        "own_guess:f",
        "def f():\n    return {}['x']",
        "KeyError: 'x' (",
        f"own_guess.py, line {LINES + 2})",
    ),
    "on_reset is missing": (
        "own_guess:Own",
        "class Own(TextEnv):\n    def on_step(self, text):\n        return Reply('')",
        "Own must define on_reset(rng, options) -> str",
    ),
    "on_reset gives another type": (
        "own_guess:Own",
        "class Own(Guess):\n    def on_reset(self, rng, options):\n        return 7",
        "Own.on_reset gives 7 as the observation; it must be a str",
    ),
    "on_reset fails": (
        "own_guess:Own",
        "class Own(Guess):\n    def on_reset(self, rng, options):\n        return self.nothing",
        "AttributeError: 'Own' object has no attribute 'nothing' (",
        f"own_guess.py, line {LINES + 3})",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder; what is imported and registered there is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(terminal.console, "width", 400)
    before = dict(gymnasium.registry)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("own_guess", None)
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.fixture
def turngym(folder, capsys):
    def turngym(*args):
        with pytest.raises(SystemExit) as left:
            cli.main(list(args))
        out, err = capsys.readouterr()
        return left.value.code, out, err

    return turngym


@pytest.mark.parametrize(
    "command", ["play", "check", "eval --policy expert --out o", "warmup --out o", "train --out o"]
)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_one_line_and_leaves_nothing_behind(name, command, turngym, folder):
    spec, more, *words = BROKEN[name]
    Path("own_guess.py").write_text(GUESS + more + "\n")
    verb, *rest = command.split()
    status, _, err = turngym(verb, *(["--env", spec] if verb == "train" else [spec]), *rest)
    assert status == 2 and err.startswith("error: ") and err.count("\n") == 1
    assert [part for part in words if part not in err] == []
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "own_guess.py"
    ]


def test_a_step_that_fails_is_told_where_it_is_played(turngym, monkeypatch):
    Path("own_guess.py").write_text(
        GUESS + "class Own(Guess):\n    def on_step(self, text):\n        return 'no'\n"
    )
    monkeypatch.setattr("builtins.input", lambda *args: "3")
    monkeypatch.setattr(terminal.console, "input", lambda *args, **options: "3")
    status, _, err = turngym("play", "own_guess:Own")
    assert (
        status == 2
        and "Own.on_step gives 'no'; it must return a Reply" in err
        and err.count("\n") == 1
    )


def test_a_recipe_and_a_run_folder_cannot_choose_whose_code_runs(turngym):
    Path("own_guess.py").write_text("open('ran', 'w')\n")
    for spec in ("own_guess:Guess", "own_guess:mine/Guess-v0", "os:system"):
        Path("mine.toml").write_text(f'env = "{spec}"\n')
        Path("config.toml").write_text(f'[train]\nenv = "{spec}"\n')
        for args in (
            ["train", "mine.toml"],
            ["train", "--resume", "--out", "."],
            ["warmup", "mine.toml"],
        ):
            status, _, err = turngym(*args)
            assert (
                status == 2
                and f"a file cannot choose that. If you trust its code, add --env {spec} to" in err
            )
    assert not Path("ran").exists()


def test_how_tasks_were_chosen_is_said(turngym):
    more = "class Listed(Guess):\n    tasks = range(20)\n"
    Path("own_guess.py").write_text(GUESS + more)
    _, out, _ = turngym("eval", "own_guess:Listed", "--policy", "expert", "--episodes", "9")
    assert (
        "own_guess:Listed has no splits: the evaluation has all of its 20 tasks, also those that training has"
        in out
    )
    assert "9 (9 tasks, 0 failed" in out
    _, out, _ = turngym("eval", "own_guess:Listed", "--policy", "expert", "--split", "test")
    assert (
        "own_guess:Listed takes no option 'split': test has 2 of its 20 tasks, every 10th, from 9"
        in out
    )
    assert "2 (2 tasks, 0 failed" in out
    _, out, _ = turngym("eval", "own_guess:Guess", "--policy", "expert", "--episodes", "9")
    assert (
        "own_guess:Guess has no tasks: test begins episodes by seed" in out
        and "9 (9 tasks, 0 failed" in out
    )


@pytest.mark.parametrize(
    "spec", ["own_guess:Guess", "own_guess:make_guess", "own_guess:mine/Guess-v0"]
)
def test_it_is_checked_evaluated_and_replayed_by_its_name(spec, turngym):
    Path("own_guess.py").write_text(GUESS)
    status, out, _ = turngym("eval", spec, "--policy", "expert", "--episodes", "5", "--out", "o")
    assert status == 0 and "100.0 %" in out
    assert json.loads(Path("o/trees.jsonl").read_text().splitlines()[0])["env"] == spec
    # A journal cannot choose whose code runs, not even that of a module which is imported already.
    status, _, err = turngym("replay", "o/trees.jsonl")
    assert (
        status == 2 and f"a file cannot choose that. If you trust its code, add --env {spec}" in err
    )
    status, out, _ = turngym("replay", "o/trees.jsonl", "--env", spec)
    assert status == 0 and "5 episodes of o/trees.jsonl were replayed without a difference" in out
