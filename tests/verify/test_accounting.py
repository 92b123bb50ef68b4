import json

import numpy as np
import pytest

from turngym.agents.journal.trees import Origin, write_trees
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import StopReason
from turngym.tests.verify.accounting import Accounting
from turngym.training.metrics.telemetry import counts
from turngym.training.runs.config import TrainConfig, to_toml


@pytest.fixture
def run(tmp_path):
    """Two steps of one prompt and one branch, whose context is full at once."""
    (tmp_path / "config.toml").write_text(
        to_toml(TrainConfig().changed(steps=2, prompts=1, group=1), {})
    )
    (tmp_path / "trees").mkdir()
    lines = [{"step": 0}]
    for step in (1, 2):
        tree = Tree(
            (0, step - 1, 7),
            7,
            "t7",
            [Turn.unsampled(-1, "user", "q", np.arange(5, dtype=np.int32))],
        )
        tree.leaves = [Leaf.ended(0, 0, StopReason.CONTEXT, 0.0, {})]
        write_trees(
            tmp_path / "trees" / f"step-{step:06d}.jsonl", [tree], Origin("turngym/Math-v0", {})
        )
        lines.append({"step": step, **counts([tree])})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_every_row_counts_steps(run):
    rows = list(Accounting(run).rows())
    assert [(row.held, row.of, row.good) for row in rows] == [(3, 3, True), *[(2, 2, True)] * 4]
    assert rows[2].what == "steps with prompts x group paths: rewarded + failed by type"
    assert rows[2].note == "2 paths/truncated" and "10 tokens_given/prompt" in rows[3].note


def test_a_step_that_does_not_add_up_makes_its_row_fall_short(run):
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(
        text.replace('"paths/truncated": 1', '"paths/truncated": 2', 1)
    )
    rows = list(Accounting(run).rows())
    assert [(row.held, row.of) for row in rows if not row.good] == [(1, 2)]
    assert rows[2].note == "step 1: paths/truncated is 2 in metrics.jsonl and 1 in the journal"


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=f"{tmp_path} has no config.toml; give a run folder"
    ):
        list(Accounting(tmp_path).rows())


def test_a_run_without_a_step_does_not_hold(run):
    (run / "metrics.jsonl").write_text('{"step": 0}\n')
    for path in (run / "trees").iterdir():
        path.unlink()
    assert [row.good for row in Accounting(run).rows()] == [True, False, False, False, False]
