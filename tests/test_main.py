"""The command line, in this process as a person would call it; twice in a process of its own."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from turngym import __main__ as cli
from turngym.agents.cli import terminal
from turngym.agents.journal.trees import read_trees
from turngym.envs.math import MathTasks
from turngym.envs.registry import ENVS
from turngym.tools import ToolCall, ToolFailure
from turngym.tools.python import LevelRefused
from turngym.training.methods import METHODS
from turngym.training.runs.config import from_run, read_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

IDS = [entry.id for entry in ENVS]
SMALL = [
    "--prompts",
    "2",
    "--group",
    "2",
    "--max-tokens",
    "12",
    "--eval-tasks",
    "2",
    "--threads",
    "1",
]
Turngym = Callable[..., tuple[int, str, str]]


@pytest.fixture
def turngym(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Turngym:
    """Run a command line in an empty folder: exit status, standard output, standard error."""
    monkeypatch.setattr(terminal.console, "width", 160)
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main([str(arg) for arg in args])
        return left.value.code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 questions of the generator in a file."""
    path, rows = tmp_path_factory.mktemp("questions") / "questions.jsonl", []
    for tasks in (MathTasks("train", 1), MathTasks("valid", 1)):
        rows += [{"problem": tasks[i].prompt, "answer": tasks[i].gold} for i in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def process(*args: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "turngym", *args]
    settings = {**os.environ, "COLUMNS": "160", "TERM": "dumb"}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, cwd="/", env=settings
    )


# --- lists and help


def test_help_names_every_command():
    done = process("--help")
    assert done.returncode == 0, done.stderr
    for command in (
        "train",
        "compare",
        "eval",
        "play",
        "check",
        "replay",
        "audit",
        "verify",
        "warmup",
        "envs",
        "methods",
        "analyse",
        "claims",
        "doctor",
        "serve-search",
    ):
        assert f" {command} " in done.stdout
    assert done.stdout.startswith("usage: turngym ")


def test_envs_and_methods_list_all_there_are(turngym):
    status, out, _ = turngym("envs")
    assert status == 0 and all(entry.id in out and entry.summary in out for entry in ENVS)
    status, out, _ = turngym("methods")
    assert status == 0 and {line.split()[0] for line in out.splitlines()} >= set(METHODS)
    status, out, _ = turngym("methods", "entropy-bonus")
    assert status == 0 and "coef=0.001" in out


@pytest.mark.parametrize("command", ["train", "eval", "play"])
def test_every_option_has_a_line_of_help(turngym, command):
    status, out, _ = turngym(command, "--help")
    assert status == 0 and "--difficulty" in out and "--option" in out and "Environment id" in out


# --- mistakes


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["eval", "turngym/Math-v1"],
            "unknown environment 'turngym/Math-v1'; did you mean 'turngym/Math-v0'?",
        ),
        (
            ["eval", "CartPole-v1", "--policy", "expert"],
            "CartPole-v1 makes a CartPoleEnv; turngym supports TextEnv",
        ),
        (
            ["replay", "nothing.jsonl"],
            "nothing.jsonl does not exist; name a journal: the trees.jsonl of an",
        ),
        (
            ["train", "--resume", "--out", "nowhere"],
            "nowhere has no config.toml; give a run folder",
        ),
        (
            ["eval", "--policy", "http://127.0.0.1:8000/v1"],
            "8000/v1 is a URL, and a policy is a folder or a hub model",
        ),
        (
            ["play", "CartPole-v1"],
            "CartPole-v1 makes a CartPoleEnv; turngym supports TextEnv environments only",
        ),
        (["play", "--task", "-1"], "options['task'] is -1"),
        (["eval", "--difficulty", "6"], "difficulty is (6,)"),
        (["eval", "--temperature", "-1"], "temperature is -1.0; it must be finite and 0 or more"),
        (["eval", "--threads", "0"], "threads is 0; torch needs at least 1"),
        (["eval", "--policy", "nowhere/to/be"], "'nowhere/to/be' is not a folder"),
        (["eval", "--out", "/proc/x"], "cannot write to /proc/x"),
        (["train", "mat-python"], "there is no recipe 'mat-python'; did you mean 'math-python'?"),
        (
            ["train", "household"],
            "; `turngym warmup RECIPE` makes the one that a recipe starts from",
        ),
        (["warmup", "househol"], "there is no recipe 'househol'; did you mean 'household'?"),
        (
            ["warmup", "math-python"],
            "the recipe starts from the policy 'tiny', which needs no warm-up",
        ),
        (["train", "--lr", "0"], "lr is 0.0; it must be above 0"),
        (["train", "--option", "max_turns=0"], "max_turns is 0; an episode needs at least 1 turn"),
        (
            ["train", "--resume"],
            "--resume needs the run folder: turngym train --resume --out FOLDER",
        ),
        (["train", "--method", "grpo,pppo"], "no method is called 'pppo'"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error_and_status_2(turngym, args, message):
    status, out, err = turngym(*args)
    assert status == 2 and out == ""
    assert err.startswith("error: ") and message in err and err.count("\n") == 1


def test_a_failure_while_playing_is_one_line_too(turngym, monkeypatch):
    monkeypatch.setattr("turngym.agents.policy._load_model", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # a bug keeps its traceback
        cli.main(["eval", "--episodes", "1"])

    def no_memory(*args: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("turngym.agents.policy._load_model", no_memory)
    for args in (["eval", "--episodes", "1"], ["train", "--out", "run", *SMALL]):
        status, _, err = turngym(*args)
        assert (status, err) == (2, "error: the disk is gone\n")


def test_the_place_of_a_mistake_is_shown_on_request(monkeypatch):
    monkeypatch.setenv("TURNGYM_TRACEBACK", "1")
    with pytest.raises(ValueError, match="unknown environment"):
        cli.main(["eval", "turngym/Math-v1"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["trian"],
            "there is no command 'trian'; did you mean 'train'? commands are train, compare, ",
        ),
        ([], "name a command; commands are train, compare, "),
        (["--hlep"], "Unrecognized options: --hlep; "),
        (
            ["train", "--promts", "3"],
            "Unrecognized options: --promts, 3; Perhaps you meant: --prompts INT ",
        ),
        (
            ["eval", "--episodes", "many"],
            "Error parsing --episodes: invalid literal for int() with base 10: 'many'; ",
        ),
        (
            ["eval", "turngym/Math-v0", "more"],
            "Unrecognized options: more; For full helptext, run turngym eval --help",
        ),
        (
            ["replay"],
            "Missing from turngym replay: PATH The `trees.jsonl` of an evaluation, or a file in the folder",
        ),
        (["train", "--steps"], "Missing value for argument '--steps'. Expected 1 values.; "),
    ],
)
def test_what_is_no_command_line_is_refused_in_one_line(turngym, args, message):
    status, out, err = turngym(*args)
    assert (status, out) == (2, "") and err.startswith(f"error: {message}") and err.count("\n") == 1


def test_a_reader_that_leaves_or_a_full_disk_is_no_crash(turngym, monkeypatch):
    def fail(number):
        def refuse(*args, **kwargs):
            raise OSError(number, os.strerror(number))

        return refuse

    monkeypatch.setattr(terminal.console, "print", fail(errno.ENOSPC))
    assert turngym("envs") == (2, "", "error: a file, or the output: No space left on device\n")
    read, write = os.pipe()
    with os.fdopen(write, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(terminal.console, "print", fail(errno.EPIPE))
        assert turngym("envs") == (1, "", "")
        os.close(read)


@pytest.mark.parametrize(
    "args",
    [
        ["train", "--out", "run", *SMALL],
        ["eval", "--policy", "expert"],
        ["play"],
        ["check", IDS[1]],
    ],
)
def test_a_level_that_the_machine_cannot_give_is_refused_before_anything_begins(
    turngym, monkeypatch, tmp_path, args
):
    def refuse(level: str) -> None:
        raise LevelRefused(level, "it is another system")

    monkeypatch.setattr("turngym.envs.options.require", refuse)
    status, out, err = turngym(*args, "--option", "level=landlock")
    assert (status, out) == (2, "") and list(tmp_path.iterdir()) == []
    assert (
        err.startswith("error: ")
        and "'landlock': it is another system" in err
        and err.count("\n") == 1
    )
    assert "; on the command line: --option level=NAME" in err

    def fail(level: str) -> None:
        raise ToolFailure("the server is gone")

    monkeypatch.setattr("turngym.envs.options.require", fail)
    assert turngym(*args) == (2, "", "error: the server is gone\n")


# --- play


def test_a_person_plays_through_a_pipe_as_an_agent_of_make_does():
    env = gymnasium.make("turngym/MathPython-v0", difficulty=(1, 2)).unwrapped
    env.reset(options={"task": 3})
    call, answer = env.format.render(ToolCall("python", {"code": "print(6 * 7)"})), env.gold()[-1]
    done = process(
        "play", "--task", "3", "--seed", "0", "--difficulty", "1", "2", text=f"{call}\n{answer}\n"
    )
    assert done.returncode == 0, done.stderr
    before, ended = done.stdout.split("\n> ", 1)
    assert env.task.prompt.split("?")[0][:40] in before and '"name": "python"' in before
    assert "A line without a call is the final answer and ends the episode" in " ".join(
        before.split()
    )
    assert ". . " in ended and "│ 42 " in ended  # two more lines of a call were asked for
    assert "The episode is over: the reply was the final answer." in ended
    assert f"The right answer: {answer} " in ended and answer not in before
    assert ended.rstrip().endswith("reward 1, done (answered) after 2 turns")


@pytest.mark.parametrize("leave", [":q", EOFError, KeyboardInterrupt])
def test_a_person_can_leave(turngym, monkeypatch, leave):
    def answer(prompt: str = "") -> str:
        if isinstance(leave, str):
            return leave
        raise leave

    monkeypatch.setattr("builtins.input", answer)
    status, out, _ = turngym("play", "turngym/Math-v0", "--task", "1")
    assert status == 0 and out.splitlines()[-1].endswith("stopped before the end of the episode")


# --- eval


def test_the_expert_solves_everything(turngym):
    status, out, _ = turngym(
        "eval", "--policy", "expert", "--episodes", "6", "--samples", "2", "--difficulty", "1", "3"
    )
    rows = dict(line.strip().split("  ", 1) for line in out.splitlines() if "  " in line.strip())
    assert status == 0 and rows["success, avg@2"].strip().startswith("100.0 %")
    assert rows["episodes"].strip() == "12 (6 tasks, 0 failed and not scored)"
    assert rows["successes by a tool's result"].strip() == "100.0 %"
    assert rows["isolation of python"].strip() == "namespaces"


def test_tiny_is_evaluated_and_what_it_did_is_kept(turngym, tmp_path):
    status, out, _ = turngym(
        "eval",
        "--policy",
        "tiny",
        "--episodes",
        "8",
        "--max-tokens",
        "24",
        "--out",
        "e",
        "--threads",
        "1",
    )
    assert status == 0 and "success, avg@1" in out
    assert (
        out.rstrip().endswith("report: e/report.html")
        and (tmp_path / "e" / "report.html").is_file()
    )
    report = json.loads((tmp_path / "e" / "eval.json").read_text())
    assert (report["episodes"], report["tasks"], report["failed"]) == (8, 8, 0)
    scores = [
        leaf.score for tree in read_trees(tmp_path / "e" / "trees.jsonl") for leaf in tree.leaves
    ]
    assert report["reward"] == sum(scores) / 8
    assert report["levels"] == {"python": "namespaces"}


# --- train


@pytest.mark.slow
def test_tiny_is_trained_evaluated_and_resumed(turngym, questions, tmp_path):
    status, out, _ = turngym(
        "train", "--tasks", questions, "--steps", "2", "--out", "run", "--seed", "0", *SMALL
    )
    assert status == 0 and out.rstrip().endswith("run folder: run\nreport: run/report.html")
    rows = [line.split() for line in out.splitlines()]
    assert [row[:2] for row in rows[-4:-2]] == [["before", "0"], ["after", "2"]]
    config = from_run(tmp_path / "run")
    assert (config.environment.tasks, config.schedule.steps, config.lr) == (
        str(questions),
        2,
        read_recipe("math-python").lr,
    )

    short = ["--episodes", "4", "--max-tokens", "12", "--threads", "1"]
    status, out, _ = turngym("eval", "--policy", "run", "--tasks", questions, *short)
    assert status == 0 and "4 tasks, 0 failed" in out

    for args in (["--resume", "--out", "run"], ["--out=run", "--resume"]):
        status, _, err = turngym("train", *args)
        assert status == 2 and "steps is 2, and the run in run has taken 2" in err
    status, _, err = turngym("train", "--resume", "--out", "run", "--steps", "3", "--lr", "1e-4")
    assert status == 2 and "lr is 0.0001, but the run in run was made with 0.001" in err
    status, out, _ = turngym("train", "--resume", "--out=run", "--steps", "3")
    rows = [line.split() for line in out.splitlines()]
    assert status == 0 and [row[:2] for row in rows[-4:-2]] == [["before", "0"], ["after", "3"]]
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_warm_up_makes_what_a_recipe_starts_from(turngym, tmp_path):
    short = ["--episodes", "40", "--steps", "2", "--batch", "2", "--threads", "1"]
    status, out, _ = turngym("warmup", "household", *short)
    assert status == 0 and "policy: runs/warm/household" in " ".join(out.split())
    made = json.loads((tmp_path / "runs" / "warm" / "household" / "warmup.json").read_text())
    recipe = read_recipe("household")
    assert (
        made["env"] == recipe.env
        and made["options"]["size"] == "tiny"
        and made["options"]["difficulty"] == [1]
    )
    tiny = [
        "--steps",
        "1",
        "--prompts",
        "2",
        "--group",
        "2",
        "--eval-tasks",
        "2",
        "--eval-every",
        "1",
    ]
    status, out, _ = turngym("train", "household", *tiny, "--out", "run")
    assert status == 0 and out.rstrip().endswith("run folder: run\nreport: run/report.html")
    status, _, _ = turngym("warmup", recipe.env, "--out", "mine", "--option", "size=tiny", *short)
    assert status == 0 and (tmp_path / "mine" / "model.safetensors").exists()


def test_options_override_the_recipe(turngym, tmp_path):
    (tmp_path / "mine.toml").write_text('policy = "./nowhere"\nsteps = 7\n')
    status, _, err = turngym("train", "mine.toml")
    assert status == 2 and "'nowhere' is not a folder" in err
    status, _, err = turngym("train", "mine.toml", "--policy", "./elsewhere")
    assert status == 2 and "'elsewhere' is not a folder" in err


@pytest.fixture(scope="module")
def random_qwen(qwen_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 of 2 layers with the real tokenizer and template of Qwen2.5."""
    folder = tmp_path_factory.mktemp("models") / "qwen2"
    shutil.copytree(qwen_folder, folder)
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["tiny", "random_qwen"])
def test_real_problems_are_trained_on_and_evaluated_with_any_policy(
    turngym, shared_data, tmp_path, request, policy
):
    """The two commands on GSM8K, the same for both but for the name of the policy."""
    folder = policy if policy == "tiny" else request.getfixturevalue(policy)
    train, test = (
        shared_data / "math" / "gsm8k_train.jsonl.gz",
        shared_data / "math" / "gsm8k_test.jsonl",
    )
    args = [
        "--tasks",
        train,
        "--steps",
        "1",
        "--out",
        "run",
        "--seed",
        "0",
        "--policy",
        folder,
        *SMALL,
    ]
    status, out, _ = turngym("train", *args, "--method", "grpo,epo")
    assert status == 0 and "after" in out
    (line,) = [
        json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ][1:]
    assert line["refused"] == "" and line["drift"] < 1e-5 and line["grad_norm"] > 0

    args = [
        "--tasks",
        test,
        "--episodes",
        "3",
        "--max-tokens",
        "6",
        "--out",
        "eval",
        "--threads",
        "1",
    ]
    status, out, _ = turngym("eval", "turngym/MathPython-v0", *args, "--policy", folder)
    assert status == 0 and "3 tasks, 0 failed" in out
    problems = [json.loads(x)["problem"] for x in test.read_text().splitlines()]
    for tree in read_trees(tmp_path / "eval" / "trees.jsonl"):
        assert tree.turns[0].text == problems[tree.task]  # whole
        assert tree.leaves[0].stop in ("answered", "no_answer", "max_turns")


@pytest.mark.parametrize(
    ("begun", "way"),
    [(False, "use the same command again"), (True, "turngym train --resume --out")],
)
def test_an_interrupted_run_says_how_to_go_on(monkeypatch, capsys, tmp_path, begun, way):
    from turngym.training.cli import train as commands

    def interrupt(records: Iterator[object], *_: object) -> None:
        if begun:
            next(records)
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "watch", interrupt)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "--steps", "1", "--out", str(tmp_path / "run"), *SMALL])
    out = capsys.readouterr().out
    assert stopped.value.code == 130 and way in out
    assert out.endswith(f"report: {tmp_path / 'run' / 'report.html'}\n") == begun


def test_a_missing_training_extra_is_named(monkeypatch, capsys):
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'tokenizers'", name="tokenizers")

    monkeypatch.setattr("turngym.agents.cli.play.make_with_examples", missing)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["play"])
    assert stopped.value.code == 2
    assert (
        "tokenizers is not installed; policies need the training extra" in capsys.readouterr().err
    )
