"""Questions, tools and a grader in a file of one's own, named `file.py:make`: every command takes them."""

import importlib
import json
import sys
from pathlib import Path

import gymnasium
import pytest

from turngym import __main__ as cli
from turngym.agents.cli import terminal
from turngym.envs.registry import make, module_id
from turngym.envs.reserved_choices import reserved_choices
from turngym.tests.support.chat_server import ChatServer
from turngym.tests.support.packages import working_in
from turngym.training.comparison.plan import plan

OWN = '''
from turngym.envs import QuestionEnv

WARM = {"Oslo": "-3", "Rome": "14", "Lima": "19"}


def lookup(city: str) -> str:
    """Return the temperature of a city."""
    return WARM.get(city, "unknown")


def warmer(first: int, second: int) -> str:
    """Return whether the first temperature is above the second."""
    return str(first > second)


def grade(answer, gold):
    return answer == gold


def forgot(answer, gold):
    answer == gold


def parse(answer, gold):
    return float(f"{answer} degrees") == float(gold)


def make(max_turns=3, grader=grade):
    rows = [{"question": f"How warm is {city}?", "answer": warm} for city, warm in WARM.items()]
    return QuestionEnv(rows, grader, tools=[lookup, warmer], max_turns=max_turns)


def make_forgetful():
    return make(grader=forgot)


def make_forgetful_of_one_turn():
    return QuestionEnv([(f"How warm is {city}?", warm) for city, warm in WARM.items()], forgot)


def make_raising():
    return make(grader=parse)


def make_of_a_format(format="hermes"):
    rows = [(f"How warm is {city}?", warm) for city, warm in WARM.items()]
    return QuestionEnv(rows, grade, tools=[lookup], format=format)


def make_many():
    return QuestionEnv([(f"What is {i} + {i}?", 2 * i) for i in range(42)], grade)


def make_open(**options):
    return make(**options)
'''
SHORT = [
    "--prompts",
    "3",
    "--group",
    "2",
    "--eval-tasks",
    "3",
    "--max-tokens",
    "12",
    "--threads",
    "1",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with the file; what is imported and registered there is forgotten again."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(terminal.console, "width", 400)
    before = dict(gymnasium.registry)
    with working_in(tmp_path):
        Path("weather.py").write_text(OWN)
        importlib.invalidate_caches()
        yield tmp_path
    sys.modules.pop("weather", None)
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


def test_it_is_evaluated_whole_and_replayed(turngym):
    status, out, _ = turngym("eval", "weather.py:make", "--policy", "expert", "--out", "e")
    assert status == 0 and "3 (3 tasks, 0 failed" in out and "100.0 %" in out
    assert out.splitlines()[0] == "evaluating expert on weather:make"
    assert "weather.py:make has no splits: the evaluation has all of its 3 tasks" in out
    assert json.loads(Path("e/trees.jsonl").read_text().splitlines()[0])["env"] == "weather:make"
    for spelled in ("weather.py:make", "weather:make"):
        status, out, _ = turngym("replay", "e/trees.jsonl", "--env", spelled)
        assert (
            status == 0 and "3 episodes of e/trees.jsonl were replayed without a difference" in out
        )
    status, _, err = turngym("replay", "e/trees.jsonl")
    assert status == 2 and "add --env weather:make to the command" in err


def test_any_number_of_tasks_is_evaluated(turngym):
    for args in ((), ("--split", "all")):
        _, out, _ = turngym("eval", "weather.py:make_many", "--policy", "expert", *args)
        assert "42 (42 tasks, 0 failed" in out
    _, out, _ = turngym("eval", "weather.py:make_many", "--policy", "expert", "--split", "test")
    assert "4 (4 tasks, 0 failed" in out and "test has 4 of its 42 tasks, every 10th, from 9" in out


def test_a_factory_with_open_options_is_sent_no_split(turngym):
    status, out, _ = turngym(
        "eval", "weather.py:make_open", "--policy", "expert", "--option", "max_turns=2"
    )
    assert status == 0 and "3 (3 tasks, 0 failed" in out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "make_forgetful",
            "the grader forgot returns None (does it lack a `return`?); return True, False or a number",
        ),
        ("make_raising", "the grader parse raises ValueError: could not convert string to float"),
    ],
)
def test_a_grader_that_fails_is_named_and_earns_no_zero(name, words, turngym):
    status, _, err = turngym("eval", f"weather.py:{name}", "--policy", "expert")
    assert status == 1 and words in err and "none of 3 episodes was rewarded" in err


@pytest.mark.slow
def test_a_grader_that_fails_in_training_is_named_with_how_to_go_on(turngym):
    env = ["--env", "weather.py:make_forgetful_of_one_turn"]
    length = ["--steps", "1", "--prompts", "3", "--group", "2"]
    status, _, err = turngym("train", *env, *length, "--threads", "1", "--out", "trained")
    assert status == 1 and err.count("error: ") == 1
    assert "none of 3 episodes was rewarded" in err
    assert "the first: the grader forgot returns None (does it lack a `return`?)" in err
    assert "mend it, then continue with: turngym train --resume --out trained" in err
    mended = OWN.replace(
        "def forgot(answer, gold):\n", "def forgot(answer, gold):\n    return 0.5\n"
    )
    Path("weather.py").write_text(mended)
    sys.modules.pop("weather")
    status, _, err = turngym("train", "--resume", "--out", "trained", *env)
    assert status == 0, err
    _, out, _ = turngym("eval", "--policy", "trained", "--episodes", "1")
    there = "turngym eval weather:make_forgetful_of_one_turn --policy trained"
    assert out.startswith("evaluating trained on turngym/MathPython-v0; it was trained on weather")
    assert out.splitlines()[0].endswith(f"where it is evaluated by: {there}")
    _, out, _ = turngym("eval", env[1], "--policy", "trained", "--episodes", "1")
    assert out.splitlines()[0] == f"evaluating trained on {there.split()[2]}"


def calling_in_text(asked):
    """Look a temperature up in the format of Python, and answer what came back."""
    last = asked["messages"][-1]["content"]
    city = last.removeprefix("How warm is ").removesuffix("?")
    return {"content": f"[lookup(city={city!r})]" if city != last else last}


@pytest.mark.parametrize("name", ["make_of_a_format", "make_of_many_options"])
def test_its_tools_are_called_in_text_by_a_model_behind_a_url(name, turngym):
    many = "\n\ndef make_of_many_options(**options):\n    return make_of_a_format(**options)\n"
    Path("weather.py").write_text(OWN + many)
    server = ChatServer(calling_in_text)
    with server.run() as url:
        endpoint = ["--model", "m", "--base-url", url, "--tool-calls", "text"]
        status, out, err = turngym("eval", f"weather.py:{name}", *endpoint)
    assert status == 0 and "3 (3 tasks, 0 failed" in out and "100.0 %" in out, err
    assert "[name(argument=value)]" in server.asked[0]["messages"][0]["content"]
    assert not any("tools" in asked for asked in server.asked)


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        (
            "make",
            ["--tool-calls", "text"],
            "weather.py:make has calls in the format hermes, which is not for text tool calls; name another one in its "
            "code: QuestionEnv(…, format='pythonic')",
        ),
        (
            "make_open",
            ["--tool-calls", "text"],
            "name another one in its code: QuestionEnv(…, format='pythonic')",
        ),
        (
            "make_of_a_format",
            ["--tool-calls", "text", "--option", "format=hermes"],
            "format is hermes, which is not for text tool calls; take pythonic",
        ),
    ],
)
def test_a_format_that_does_not_suit_the_server_names_one_that_does(name, args, words, turngym):
    endpoint = ["--model", "m", "--base-url", "http://127.0.0.1:9"]
    status, _, err = turngym("eval", f"weather.py:{name}", *endpoint, *args)
    assert status == 2 and words in err and err.count("\n") == 1


def test_a_player_is_told_only_of_options_that_there_are(turngym, monkeypatch):
    monkeypatch.setattr(terminal.console, "input", lambda *args, **options: ":q")
    assert "--option format" not in turngym("play", "weather.py:make")[1]
    assert (
        "`--option format=pythonic` is easier" in turngym("play", "weather.py:make_of_a_format")[1]
    )
    assert "`--option format=tags` is easier" in turngym("play", "turngym/MathPython-v0")[1]


def test_it_is_played(turngym, monkeypatch):
    replies = iter(
        ['<tool_call>{"name": "lookup", "arguments": {"city": "Oslo"}}</tool_call>', "-3"]
    )
    monkeypatch.setattr(terminal.console, "input", lambda *args, **options: next(replies))
    monkeypatch.setattr("builtins.input", lambda *args: next(replies))
    status, out, _ = turngym("play", "weather.py:make", "--task", "0")
    assert status == 0 and "-3" in out


@pytest.mark.slow
def test_it_keeps_the_contract(turngym):
    status, out, _ = turngym("check", "weather.py:make")
    assert status == 0 and "weather.py:make keeps the contract" in out
    assert (
        "without an option `split`, all are played by eval, and train is validated on its training tasks"
        in out
    )


@pytest.mark.slow
def test_it_is_trained_resumed_and_audited(turngym):
    train = ["train", "--env", "weather.py:make", *SHORT, "--eval-every", "1", "--out", "run"]
    status, out, _ = turngym(*train, "--steps", "1")
    assert status == 0
    assert (
        "weather.py:make has 3 tasks and no splits, so the validation is on the training tasks"
        in out
    )
    status, _, err = turngym("train", "--resume", "--out", "run", "--steps", "2")
    assert (
        status == 2
        and "a file cannot choose that. If you trust its code, add --env weather:make" in err
    )
    status, _, _ = turngym(
        "train", "--resume", "--out", "run", "--steps", "2", "--env", "weather.py:make"
    )
    assert status == 0
    assert turngym("audit", "run")[0] == 0
    assert turngym("replay", "run/trees/step-000002.jsonl", "--env", "weather.py:make")[0] == 0
    assert turngym("eval", "weather.py:make", "--policy", "run", "--max-tokens", "12")[0] == 0


def test_a_comparison_on_it_takes_as_many_prompts_and_says_what_validates(folder):
    changes = {"env": "weather:make", "threads": 1}
    with pytest.raises(
        ValueError, match="the task set has 3 tasks; use fewer prompts: --prompts 3"
    ):
        plan(["grpo"], "math-python", 1, changes)
    lines = plan(["grpo", "rloo"], "math-python", 1, {**changes, "prompts": 3}).lines
    said = "weather:make has 3 tasks and no splits, so the validation is on the training tasks"
    assert [line for line in lines if said in line] == [
        f"{said}: with 10 or more, some are held out"
    ]


@pytest.mark.slow
def test_methods_are_compared_on_it(turngym):
    Path("short.toml").write_text(
        "group = 2\nmax_tokens = 8\nsteps = 1\neval_tasks = 3\nthreads = 1\n"
    )
    compare = [
        "compare",
        "grpo",
        "rloo",
        "--on",
        "short.toml",
        "--env",
        "weather.py:make",
        "--prompts",
        "3",
        "--seeds",
        "1",
        "--out",
        "c",
    ]
    status, out, _ = turngym(*compare)
    assert status == 0 and out.count("the validation is on the training tasks") == 1
    assert turngym(*compare, "--resume")[0] == 0


def test_a_file_of_a_run_cannot_choose_its_code(folder, turngym):
    Path("weather.py").write_text("open('ran', 'w')\n")
    Path("config.toml").write_text('[train]\nenv = "weather.py:make"\n')
    Path("suite.toml").write_text('env = "weather.py:make"\n')
    for args in (
        ["train", "--resume", "--out", "."],
        ["eval", "--suite", "suite.toml", "--policy", "expert"],
    ):
        status, _, err = turngym(*args)
        assert status == 2 and "weather:make" in err
    assert not Path("ran").exists()


def test_a_file_is_named_from_the_folder_that_it_is_in(folder):
    assert (
        module_id("weather.py:make") == module_id(str(folder / "weather.py:make")) == "weather:make"
    )
    assert module_id("envs/weather.py:make") == "envs.weather:make"
    assert [module_id(name) for name in ("turngym/Math-v0", "weather:make", "weather.py")] == [
        "turngym/Math-v0",
        "weather:make",
        "weather.py",
    ]
    assert (
        reserved_choices({}, "weather.py:make")
        == reserved_choices({}, "weather:make")
        == ["env=weather:make"]
    )
    for name in ("../weather.py:make", "/nowhere/weather.py:make"):
        with pytest.raises(
            ValueError, match="the file is not below the current folder; run this in its folder"
        ):
            module_id(name)
    assert len(make("weather.py:make").tasks) == 3


def test_a_run_on_a_table_is_replayed_without_naming_it_again(turngym):
    Path("t.csv").write_text("question,answer\n1+1?,2\n2+2?,4\n")
    assert (
        turngym("eval", "turngym/Math-v0", "--policy", "expert", "--tasks", "t.csv", "--out", "e")[
            0
        ]
        == 0
    )
    status, out, _ = turngym("replay", "e/trees.jsonl")
    assert status == 0 and "2 episodes" in out
