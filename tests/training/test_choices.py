"""What recipes, suites, tables of claims and run folders may choose; one's own runs go on without more words."""

import json

import pytest

from turngym import __main__ as cli
from turngym.agents.cli.evaluate import Eval, suite_of
from turngym.training.cli.train import recipe_of, warmup_of
from turngym.training.comparison import claims
from turngym.training.runs.config import TrainConfig, from_run, read_recipe, to_toml
from turngym.training.runs.run import prepare, resume_hint

SMALL = {"steps": 1, "prompts": 1, "group": 2, "eval_tasks": 1, "max_tokens": 8}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with tasks in it and beside it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rows = "".join(
        json.dumps({"problem": f"{n} + {n}?", "answer": str(2 * n)}) + "\n" for n in range(40)
    )
    for name in ("here/near.jsonl", "far.jsonl"):
        (tmp_path / name).write_text(rows)
    return tmp_path / "here"


def recipe(here, **values):
    (here / "mine.toml").write_text(
        "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    )
    return "mine.toml"


RESERVED = {
    "out": ("/tmp/elsewhere", "is a folder that would be written"),
    "log": ("wandb", "is a service that would get the metrics"),
    "resume": (True, "would go on with a run"),
    "tasks": ("../far.jsonl", "near the file that names it"),
    "shots": ("../far.jsonl", "near the file that names it"),
    "policy": ("/some/model", "is a model outside of the current folder"),
    "chat_template": ("t.jinja", "is a program in a file"),
}


@pytest.mark.parametrize("name", RESERVED)
def test_a_recipe_does_not_choose_where_to_write_what_to_send_and_what_lies_elsewhere(here, name):
    value, why = RESERVED[name]
    path = recipe(here, **{name: value})
    with pytest.raises(
        ValueError, match=rf"mine\.toml asks for .{name}=.*{why}.*a file cannot choose that"
    ):
        read_recipe(path)
    flags = (
        ["--resume", "--out", "x"]
        if name == "resume"
        else [f"--{name.replace('_', '-')}", str(value)]
    )
    if name != "resume":
        assert recipe_of(["train", path, *flags])


def test_a_recipe_may_name_what_lies_near_and_what_every_command_has(here):
    near = {"tasks": "near.jsonl", "policy": "runs/warm/mine", "log": "tensorboard", "shots": 2}
    assert read_recipe(recipe(here, **near)).environment.tasks == "near.jsonl"
    for policy in ("tiny", "smollm2-135m", "Qwen/Qwen3-0.6B", str(here / "model")):
        assert read_recipe(recipe(here, policy=policy)).policy == policy
    (here / "sub").mkdir()
    (here / "mine.toml").rename(here / "sub" / "mine.toml")
    (here / "sub" / "mine.toml").write_text(
        f"tasks = {json.dumps(str(here / 'sub' / 'x.jsonl'))}\n"
    )
    assert read_recipe("sub/mine.toml").environment.tasks


def test_a_warm_up_writes_no_folder_that_a_recipe_names_elsewhere(here):
    path = recipe(here, env="turngym/Household-v0", policy="/some/model")
    with pytest.raises(ValueError, match="policy=/some/model"):
        warmup_of(["warmup", path])
    assert warmup_of(
        ["warmup", recipe(here, env="turngym/Household-v0", policy="runs/x", out="/y")]
    ).out


@pytest.mark.parametrize(
    "value", ["trust-remote-code", "max-num-seqs=1 --trust-remote-code", "max-num-seqs=a:b"]
)
def test_an_option_of_a_server_is_a_number_under_a_known_name(here, value, monkeypatch):
    path = recipe(here, engine="vllm", server_option=[value])
    with pytest.raises(ValueError, match="server_option="):
        read_recipe(path)
    assert read_recipe(
        recipe(here, engine="vllm", server_option=["max-num-seqs=16", "enforce-eager"])
    )


@pytest.mark.parametrize(
    "line",
    [
        "tasks = '../far.jsonl'",
        "shots = '/etc/passwd'",
        "tasks = 'a/b'",
        "option = ['tools={\"own:f\"=1}']",
    ],
)
def test_a_suite_does_not_choose_either(here, line):
    (here / "own.toml").write_text(f"env = 'turngym/MathPython-v0'\n{line}\n")
    with pytest.raises(
        ValueError, match=r"own\.toml asks for (tasks|shots|tools)=.*leave it out, and give --"
    ):
        suite_of(["--suite", "own.toml"], Eval())


@pytest.mark.parametrize(
    "key", ["policy", "out", "log", "server", "base_url", "api_key_env", "resume", "against"]
)
def test_a_suite_has_no_word_for_what_is_the_commands(here, key):
    (here / "own.toml").write_text(f"{key} = 'x'\n")
    with pytest.raises(ValueError, match=f"sets {key}; a suite sets env, split"):
        suite_of(["--suite", "own.toml"], Eval())


@pytest.mark.parametrize(
    ("arm", "own", "words"),
    [
        ("a", {"log": "wandb"}, "asks for 'log=wandb'"),
        ("a", {"option": ["tools=own:f"]}, "asks for 'tools=own:f'"),
        ("a", {"out": "/tmp/x"}, "asks for 'out=/tmp/x'"),
        ("a", {"method": "own:f"}, "asks for 'method=own:f'"),
        ("../../a", {}, "an arm is called '../../a'"),
    ],
)
def test_a_table_of_claims_does_not_choose_either(here, arm, own, words):
    lines = [f"{key} = {json.dumps(value)}" for key, value in own.items()]
    text = "\n".join(["claim = []", "[base]", "steps = 2", f"[arms.{json.dumps(arm)}]", *lines])
    (here / "table.toml").write_text(text + "\n")
    with pytest.raises(ValueError) as caught:
        claims.plan("table.toml", 1, 0, "", False)
    assert words in str(caught.value)


def begun(here, **values):
    config = TrainConfig().changed(**SMALL, **values, out=str(here / "run"))
    (here / "run").mkdir()
    (here / "run" / "config.toml").write_text(to_toml(config, {}))
    return config


def test_ones_own_run_goes_on_with_its_folder_alone(here):
    """Its tasks, its examples and its policy may lie anywhere, and its folder has moved."""
    far = str(here.parent / "far.jsonl")
    begun(here, env="turngym/Math-v0", tasks=far)
    (here / "run").rename(here / "moved")
    config = recipe_of(["train", "--resume", "--out", "moved"])
    assert (config.environment.tasks, config.out) == (far, "moved")
    prepared = prepare(config.changed(resume=True))
    assert len(prepared.train.tasks) > 30 and resume_hint(here / "moved", config).endswith(
        "--out " + str(here / "moved")
    )
    prepared.close()


def test_a_run_that_sends_its_metrics_away_goes_on_when_the_command_says_so(here):
    begun(here, log="wandb")
    with pytest.raises(ValueError, match=r"asks for 'log=wandb'.*add --log wandb to the command"):
        recipe_of(["train", "--resume", "--out", "run"])
    assert recipe_of(["train", "--resume", "--out", "run", "--log", "wandb"]).log == "wandb"
    assert "--log wandb" in resume_hint(here / "run", from_run(here / "run", None))


@pytest.mark.parametrize(
    "tasks", ["/etc/shadow", "/dev/zero", "/dev/zero.jsonl", "a/b", "http://10.0.0.1/x"]
)
def test_a_run_does_not_read_what_is_no_task_file(here, tasks):
    (here / "run").mkdir()
    (here / "run" / "config.toml").write_text(to_toml(TrainConfig().changed(tasks=tasks), {}))
    if tasks == "/dev/zero.jsonl":  # which does not exist, as it is said when it is read
        return
    with pytest.raises(ValueError, match=f"asks for 'tasks={tasks}'"):
        recipe_of(["train", "--resume", "--out", "run"])


def test_what_suited_a_policy_is_a_word_and_a_flag(here):
    config = begun(here)
    (here / "run" / "config.toml").write_text(to_toml(config, {"fitted": {"format": "os:system"}}))
    with pytest.raises(ValueError, match="asks for 'format=os:system'"):
        prepare(recipe_of(["train", "--resume", "--out", "run"]).changed(resume=True))


def test_a_run_in_which_something_leads_out_does_not_go_on(here, capsys):
    begun(here)
    (here / "run" / "trees").symlink_to("..")
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--resume", "--out", "run", "--quiet"])
    assert (
        left.value.code == 2 and "trees is a link that leads out of run" in capsys.readouterr().err
    )
