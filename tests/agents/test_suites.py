"""Suites by name: what each sets, what the command line replaces, and what a file of a suite cannot choose."""

import json
import tomllib

import pytest

from turngym import __main__ as cli
from turngym.agents.cli.evaluate import SUITES, Eval, suite_of
from turngym.agents.cli.settings import SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.journal.trees import read_trees
from turngym.envs.math.make import data_sets as math_sets
from turngym.envs.qa.make import data_sets as question_sets
from turngym.envs.registry import ENVS
from turngym.envs.suites.bfcl import CONVERSATIONS, SINGLE

NAMED = tomllib.loads(SUITES.read_text())


def command(*args):
    return cli._command(["eval", *args])


@pytest.mark.parametrize("name", NAMED)
def test_a_named_suite_is_an_environment_with_tasks_that_there_are(name):
    found = suite_of(["eval", "--suite", name], Eval())
    assert found.suite == name and found.source == NAMED[name]["source"]
    assert found.env in {entry.id for entry in ENVS}
    sets = {"turngym/Math-v0": math_sets(), "turngym/Search-v0": question_sets()}.get(found.env)
    assert (found.options.tasks in sets) if sets else found.options.tasks is None
    if "bfcl" in name:
        assert (
            found.kwargs()["category"] in (*CONVERSATIONS, *SINGLE)
            and found.kwargs()["split"] == "all"
        )


def test_options_replace_what_a_suite_sets_also_by_what_is_a_default_elsewhere():
    found = command("--suite", "aime24")
    assert (found.env, found.options.tasks, found.episodes, found.samples) == (
        "turngym/Math-v0",
        "aime24",
        30,
        32,
    )
    assert (found.sampling.temperature, found.top_p) == (0.6, 0.95)
    found = command("--suite=aime24", "--samples", "64", "--temperature", "1.0", "--top-p", "1.0")
    assert (found.samples, found.sampling.temperature, found.top_p, found.episodes) == (
        64,
        1.0,
        1.0,
        30,
    )


def test_the_options_of_a_suite_stay_below_those_of_the_command():
    found = command("--suite", "bfcl-multiple", "--option", "split=test", "system=false").kwargs()
    assert found == {"category": "multiple", "split": "test", "system": False}
    assert command("turngym/MathPython-v0", "--suite", "gsm8k").env == "turngym/MathPython-v0"


def test_without_a_suite_nothing_changes():
    assert command() == command("--policy", "") and command().suite == ""


def test_a_suite_of_a_file_is_played(tmp_path, capsys):
    rows = [{"problem": f"What is {n} plus 1?", "answer": str(n + 1)} for n in range(3)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = tmp_path / "own.toml"
    own.write_text(
        f'env = "turngym/Math-v0"\ntasks = "{tmp_path / "sums.jsonl"}"\nsamples = 2\nsource = "ours"\n'
    )
    with pytest.raises(SystemExit, match="0"):
        cli.main(
            ["eval", "--suite", str(own), "--policy", "expert", "--out", str(tmp_path / "out")]
        )
    said = capsys.readouterr().out
    assert f"suite {own}: ours" in said.replace("\n", "")
    found = json.loads((tmp_path / "out" / "eval.json").read_text())
    assert (
        found["tasks"],
        found["samples"],
        found["maj"]["value"],
        found["pass_hat"]["2"]["value"],
    ) == (
        3,
        2,
        1.0,
        1.0,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('base_url = "http://x"', r"sets base_url; a suite sets env, split, tasks,"),
        ('out = "x"\npolicy = "tiny"', "sets out, policy; a suite sets"),
        (
            'option = ["level=rlimits-only"]',
            "asks for rlimits-only; leave it out, and give --option level=rlimits-only yourself",
        ),
        (
            'tasks = "some/set"',
            "asks for tasks=some/set; leave it out, and give --tasks some/set yourself",
        ),
        ('env = "other.module:Env"', r"asks for env=other\.module:Env; leave it out"),
        ('samples = "many"', "samples is 'many'; it must be of type int"),
        ("samples = ", "is not TOML"),
    ],
)
def test_what_a_file_cannot_say_is_refused_with_its_name(tmp_path, text, said):
    own = tmp_path / "own.toml"
    own.write_text(text)
    with pytest.raises(ValueError, match=said) as refused:
        command("--suite", str(own))
    assert str(own) in str(refused.value)


def test_an_unknown_suite_is_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(ValueError, match=r"there is no suite 'aime23'; did you mean 'aime2[45]'"):
        command("--suite", "aime23")
    with pytest.raises(FileNotFoundError):
        command("--suite", str(tmp_path / "none.toml"))


def test_a_small_mass_of_tokens_draws_the_likeliest(tmp_path):
    """At temperature 1 the smallest nucleus holds the token that greedy drawing takes."""
    told = []
    for name, temperature, top_p in (("nucleus", 1.0, 1e-9), ("greedy", 0.0, 1.0)):
        drawn = SamplingOptions(temperature=temperature)
        options = {"episodes": 4, "sampling": drawn, "top_p": top_p, "out": tmp_path / name}
        evaluate.run(
            evaluate.prepare("turngym/MathPython-v0", {"split": "test"}, "tiny", **options)
        )
        told.append(
            [
                [turn.text for turn in tree.turns]
                for tree in read_trees(tmp_path / name / "trees.jsonl")
            ]
        )
    assert told[0] == told[1]
