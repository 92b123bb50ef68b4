import json
import shutil
from pathlib import Path

import pytest

from turngym.__main__ import main
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.results import difference, read_against
from turngym.agents.evaluation.scores import Episode
from turngym.envs import Outcome
from turngym.envs.registry import make

ENV = "turngym/Household-v0"


def episodes(shares, samples=4):
    """`samples` episodes a task, of which so many are won."""
    rows = [(task, float(at < won)) for task, won in enumerate(shares) for at in range(samples)]
    return [Episode(task, Outcome.DONE, "done", score, 3, False) for task, score in rows]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    out = tmp_path_factory.mktemp("earlier") / "expert"
    evaluate.run(evaluate.prepare(ENV, {"split": "test"}, "expert", episodes=4, out=out))
    return out


def test_the_difference_is_students_paired_t_over_tasks():
    """Student's own example (Biometrika 1908): hours of sleep gained; t = 4.0621, p = 0.00283, 0.70 to 2.46."""
    hours = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    gained, none = episodes([round(10 * hour) for hour in hours], 1000), episodes([0] * 10, 3)
    assert difference(gained, none) == "+1.6 points [+0.7, +2.5], p 0.003 (10 tasks)"
    assert difference(none, gained) == "-1.6 points [-2.5, -0.7], p 0.003 (10 tasks)"


def test_tasks_of_one_alone_and_failures_are_left_out():
    ours, theirs = episodes([4, 0, 2, 1]), episodes([2, 2, 1])
    lost = [
        Episode(task, Outcome.INFRA_ERROR, "infra_error", float("nan"), 1, False)
        for task in range(9)
    ]
    assert difference([*ours, *lost], [*lost, *theirs]) == difference(episodes([4, 0, 2]), theirs)
    assert (
        difference(episodes([4]), theirs) == "1 tasks have a score in both; at least 2 are needed"
    )


def test_an_evaluation_is_compared_with_an_earlier_one(earlier, tmp_path, capsys):
    command = ["eval", ENV, "--policy", "expert", "--episodes", "4", "--out", str(tmp_path / "e")]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--against", str(earlier)])
    assert "+0.0 points [+0.0, +0.0], p 1.000 (4 tasks)" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--against", str(earlier), "--resume"])
    assert "(4 tasks)" in capsys.readouterr().out


def test_what_cannot_be_compared_is_said_before_anything_is_played(earlier, tmp_path):
    ours, tasks = make(ENV, split="test"), range(10**12)
    assert len(read_against(earlier, ours, tasks)) == 4
    with pytest.raises(ValueError, match=r"holds no finished evaluation: it has no eval\.json"):
        read_against(tmp_path, ours, tasks)
    with pytest.raises(
        ValueError, match=r"is one of turngym/Household-v0, this one of turngym/Math-v0"
    ):
        read_against(earlier, make("turngym/Math-v0", split="test"), tasks)
    with pytest.raises(
        ValueError,
        match="has split 'test', this one 'valid'; compare evaluations of the same tasks",
    ):
        read_against(earlier, make(ENV, split="valid"), tasks)
    with pytest.raises(
        ValueError, match="shares 0 of 1 tasks with this one; at least 2 are needed"
    ):
        read_against(earlier, ours, range(-1, 0))
    damaged = Path(shutil.copytree(earlier, tmp_path / "damaged"))
    lines = (damaged / "trees.jsonl").read_text().splitlines(keepends=True)
    (damaged / "trees.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(
        ValueError, match=r"holds files of several evaluations: eval\.json is not the result of"
    ):
        read_against(damaged, ours, tasks)
    assert json.loads((earlier / "eval.json").read_text())["episodes"] == 4


def test_another_text_of_a_task_is_refused(tmp_path):
    """The same file name, with other problems in it."""
    path = tmp_path / "sums.jsonl"
    path.write_text(
        "".join(f'{{"problem": "What is {n} plus 1?", "answer": "{n + 1}"}}\n' for n in range(3))
    )
    options = {"split": "test", "tasks": str(path)}
    evaluate.run(
        evaluate.prepare("turngym/Math-v0", options, "expert", episodes=3, out=tmp_path / "out")
    )
    assert len(read_against(tmp_path / "out", make("turngym/Math-v0", **options), range(3))) == 3
    path.write_text(path.read_text().replace("What is 1 plus", "What is 0 plus"))
    with pytest.raises(
        ValueError, match=r"asked task 1 \(sums\.jsonl-2\) in another text; evaluate that one again"
    ):
        read_against(tmp_path / "out", make("turngym/Math-v0", **options), range(3))
