"""The result of an evaluation: its version, what is refused, what other programs get of it, and tables by category."""

import json
import os
import shutil

import pyarrow.parquet
import pytest

from turngym import __main__ as cli
from turngym.agents.evaluation import exports
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.results import SCHEMA, read_result
from turngym.agents.journal.trees import append_sealed
from turngym.envs.registry import make
from turngym.tests.support.pages import names, tables

PYTHON = "turngym/MathPython-v0"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    out = tmp_path_factory.mktemp("played") / "e"
    evaluate.run(
        evaluate.prepare(PYTHON, {"split": "test"}, "expert", episodes=3, samples=2, out=out)
    )
    return out


@pytest.fixture
def copied(played, tmp_path):
    return shutil.copytree(played, tmp_path / "e")


@pytest.fixture
def refused(tmp_path, capsys):
    """Run a command that has to refuse in one line and change no file; return what it says."""

    def run(*args, status=2):
        before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
        with pytest.raises(SystemExit) as left:
            cli.main([str(arg) for arg in args])
        said = capsys.readouterr().err
        assert left.value.code == status and said.count("\n") == 1 and said.startswith("error: "), (
            said
        )
        assert {
            path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()
        } == before
        return said

    return run


def changed(folder, **values):
    result = json.loads((folder / "eval.json").read_text()) | values
    kept = {name: value for name, value in result.items() if value is not ...}
    (folder / "eval.json").write_text(json.dumps(kept))


def test_a_result_has_the_keys_of_its_schema_and_of_the_page(played):
    schema = json.loads(SCHEMA.read_text())
    assert set(schema["properties"]) == set(names(tables("docs/files.md")["eval.json: key"]))
    found = read_result(played, "it")
    assert set(schema["required"]) <= set(found) <= set(schema["properties"])
    assert (
        found["by_task"][0]["category"] in found["by_category"] and found["by_task"][0]["won"] == 2
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"eval": ...},
            r"eval.json is of format None, not 1; the command of that evaluation with --resume plays",
        ),
        ({"eval": 2}, "eval.json is of format 2, not 1"),
        ({"success": 0.5}, "eval.json is damaged: success is 0.5; add --resume"),
        ({"by_task": ...}, "eval.json is damaged: by_task is None"),
        (
            {"journal": "0" * 64},
            "holds files of several evaluations: eval.json is not the result of the trees.jsonl",
        ),
    ],
)
def test_an_older_a_damaged_and_a_mixed_result_are_refused(copied, refused, tmp_path, values, said):
    changed(copied, **values)
    assert said in refused("export", copied, "--to", "jsonl")
    command = ["eval", PYTHON, "--policy", "expert", "--episodes", "3", "--samples", "2"]
    assert said in refused(*command, "--out", tmp_path / "new", "--against", copied)


def test_an_older_result_is_written_again_and_nothing_is_played(copied, played, monkeypatch):
    changed(copied, eval=..., by_task=...)
    monkeypatch.setattr(
        evaluate, "play_all", lambda env, player, episodes, *rest: episodes and pytest.fail()
    )
    evaluate.run(
        evaluate.prepare(
            PYTHON, {"split": "test"}, "expert", episodes=3, samples=2, out=copied, resume=True
        )
    )
    for name in ("eval.json", "trees.jsonl"):
        assert (copied / name).read_bytes() == (played / name).read_bytes()


def test_files_of_another_evaluation_are_not_taken_for_ones_own(copied, played, refused, tmp_path):
    command = [
        "eval",
        PYTHON,
        "--policy",
        "expert",
        "--episodes",
        "3",
        "--samples",
        "2",
        "--out",
        copied,
        "--resume",
    ]
    for name, options in {
        "env": {"split": "test", "difficulty": 3},
        "tasks": {"split": "test"},
    }.items():
        prepared = evaluate.prepare(
            PYTHON, options, "expert", episodes=3, samples=2, seed=5, out=tmp_path / name
        )
        evaluate.run(prepared)
        shutil.copy(tmp_path / name / "trees.jsonl", copied)
        assert (
            "holds files of several evaluations: trees.jsonl is of" in refused(*command)
            or name == "tasks"
        )
    assert "holds files of several evaluations: eval.json is not the result of" in refused(*command)
    (copied / "eval.json").unlink()
    assert "holds files of several evaluations: settings.json asks for no episode" in refused(
        *command
    )


@pytest.mark.parametrize("name", exports.FORMATS)
def test_an_export_writes_nothing_over(copied, refused, name):
    made = exports.export(copied, name)
    assert f"{made} is there already; choose another file with --out" in refused(
        "export", copied, "--to", name
    )
    assert "--merged for a run; leave one of them out" in refused(
        "export", copied, "--to", name, "--merged"
    )


def test_conversations_and_parquet_hold_every_episode(copied):
    rows = [json.loads(line) for line in exports.export(copied, "jsonl").read_text().splitlines()]
    assert [row["sample"] for row in rows] == [0, 1] * 3 and {row["turns"] for row in rows} == {2}
    env = make(PYTHON, split="test")
    _, info = env.reset(options={"task": rows[0]["task"]})
    gold = env.gold()
    heard = env.step(gold[0])[-1]["messages"]
    said = [{"role": "assistant", "content": text} for text in gold]
    assert (
        rows[0]["messages"] == [*info["messages"], said[0], *heard, said[1]]
        and rows[0]["tools"] == info["tools"]
    )
    table = pyarrow.parquet.read_table(exports.export(copied, "parquet")).to_pylist()
    texts = [{**row, **{name: json.dumps(row[name]) for name in exports.NESTED}} for row in rows]
    assert table == texts
    assert table[0]["success"] and table[0]["calls"] == 1 and table[0]["score"] == 1.0


def test_bad_input_is_one_line(refused, tmp_path):
    ask = ["eval", "turngym/Math-v0", "--policy", "expert", "--out", tmp_path / "out"]
    assert "k is 5, and a task has 4 samples; take one from 1 to 4" in refused(
        *ask, "--samples", "4", "--k", "2", "5"
    )
    (tmp_path / "none.jsonl").write_text("\n")
    (tmp_path / "own.toml").write_text(
        f'env = "turngym/Math-v0"\ntasks = "{tmp_path / "none.jsonl"}"\n'
    )
    assert "none.jsonl has no rows" in refused(*ask[:1], "--suite", tmp_path / "own.toml", *ask[2:])
    assert "there is no suite 'gsm8'; did you mean 'gsm8k'" in refused(
        "eval", "--suite", "gsm8", *ask[2:]
    )
    assert "holds no finished evaluation: it has no eval.json" in refused(
        "export", tmp_path, "--to", "inspect"
    )


def test_an_evaluation_in_which_everything_failed_has_no_score(tmp_path, capsys, monkeypatch):
    from turngym.envs import EnvFailure
    from turngym.envs.math.grading.grader import MathGrader

    def gone(self, **asked):
        raise EnvFailure("the grader is gone")

    monkeypatch.setattr(MathGrader, "grade", gone)
    with pytest.raises(SystemExit) as left:
        cli.main(
            [
                "eval",
                "turngym/Math-v0",
                "--policy",
                "expert",
                "--episodes",
                "2",
                "--out",
                str(tmp_path / "e"),
            ]
        )
    said = capsys.readouterr().err
    assert (left.value.code, said.count("\n")) == (1, 1)
    assert "none of 2 episodes was rewarded" in said and "the first: the grader is gone" in said
    assert not (tmp_path / "e" / "eval.json").exists()


def test_tables_by_category_and_by_task_are_printed(copied, capsys):
    command = [
        "eval",
        PYTHON,
        "--policy",
        "expert",
        "--episodes",
        "3",
        "--samples",
        "2",
        "--out",
        str(copied),
    ]
    with pytest.raises(SystemExit, match="0"):
        cli.main([*command, "--resume"])
    said = capsys.readouterr().out
    for task in json.loads((copied / "eval.json").read_text())["by_task"]:
        assert f" {task['category']} " in said and f"{task['id']}" in said and "2 of 2" in said


@pytest.mark.parametrize(
    "line", [{"key": [1, 2, 3]}, {}, {"journal": 3, "env": "x", "options": {}, "trees": 0}]
)
def test_a_foreign_line_among_episodes_is_named(tmp_path, refused, line):
    out = tmp_path / "e"
    command = ["eval", PYTHON, "--policy", "expert", "--episodes", "2", "--out", out]
    evaluate.run(evaluate.prepare(PYTHON, {"split": "test"}, "expert", episodes=2, out=out))
    for name in ("eval.json", "trees.jsonl"):
        (out / name).unlink()
    append_sealed(out / "episodes.jsonl", line)
    assert "episodes.jsonl, line 1: not an episode of this version" in refused(*command, "--resume")


@pytest.mark.parametrize("name", ["settings.json", "eval.json", "trees.jsonl", "episodes.jsonl"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_an_evaluation_goes_on_with_its_own_files_alone(tmp_path, refused, copied, name, kind):
    (copied / name).unlink(missing_ok=True)
    (tmp_path / "elsewhere").write_text("PRECIOUS")
    (copied / name).symlink_to("../elsewhere") if kind == "link" else os.mkfifo(copied / name)
    said = refused(
        "eval",
        PYTHON,
        "--policy",
        "expert",
        "--episodes",
        "3",
        "--samples",
        "2",
        "--out",
        copied,
        "--resume",
    )
    assert f"{name} is " in said or f"{name} cannot be read" in said
