import json

import numpy as np
import pytest

from turngym.agents.incidents import Incident
from turngym.agents.journal import Origin, read_trees
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.run_folder import Logbook


@pytest.fixture
def book(tmp_path) -> Logbook:
    """The logbook of four steps."""
    book = Logbook(tmp_path)
    for step in range(4):
        book.add_metrics(json.dumps({"step": step, "reward": step / 4}))
        if step:
            book.add_trees(step, [Tree((0, step, 5), 5, "five")], Origin("turngym/Math-v0", {}))
            book.add_incident(step, Incident("retry", "again", (0, step, 5, 1)))
    return book


def lines(book: Logbook) -> list[int]:
    return [json.loads(line)["step"] for line in book.metrics.read_text().splitlines()]


def test_a_run_writes_metrics_journals_and_incidents(book):
    assert lines(book) == [0, 1, 2, 3]
    assert [tree.key for tree in read_trees(book.trees / "step-000002.jsonl")] == [(0, 2, 5)]
    found = [json.loads(line) for line in book.incidents.read_text().splitlines()]
    assert found[0] == {"step": 1, "kind": "retry", "what": "again", "key": [0, 1, 5, 1]}
    assert [line["step"] for line in found] == [1, 2, 3]


@pytest.mark.parametrize("step", [-1, 0, 2, 3, 4])
def test_what_was_written_after_a_step_is_dropped_but_for_incidents(book, step):
    (book.trees / "step-000001.jsonl.tmp").touch()
    (book.trees / "step-000003.jsonl.gz").touch()  # somebody's own
    assert book.drop_after(step) == (step < 4)
    (book.trees / "step-000003.jsonl.gz").unlink()
    assert lines(book) == [0, 1, 2, 3][: step + 1]
    assert sorted(path.name for path in book.trees.iterdir()) == [
        f"step-{n:06d}.jsonl" for n in range(1, min(step, 3) + 1)
    ]
    assert book.incidents.read_text().count("\n") == 3
    assert book.drop_after(step) == (step < 4)  # once more changes nothing


def test_before_anything_is_written_there_is_nothing_to_drop(tmp_path):
    book = Logbook(tmp_path)
    assert book.drop_after(-1) and not book.drop_after(0)
    assert [*tmp_path.iterdir()] == []


def test_metrics_are_read_as_they_were_written(book, tmp_path):
    assert book.lines() == [{"step": step, "reward": step / 4} for step in range(4)]
    assert Logbook(tmp_path / "other").lines() == []


@pytest.mark.parametrize(
    "torn", ['{"step": 3, "rew', '{"step": 3}', "\0\0\0", '{"step": 3, "rew\n', "[3]\n", '{"step": 4}\n']
)
def test_a_last_line_that_is_not_whole_counts_as_missing(book, torn):
    text = book.metrics.read_text().splitlines(keepends=True)
    book.metrics.write_text("".join(text[:3]) + torn)
    assert not book.drop_after(3)
    assert lines(book) == [0, 1, 2]


@pytest.mark.parametrize("line", ["", "{}\n", '{"step": 2}\n', "half\n", '{"step": true}\n'])
def test_a_missing_line_of_an_earlier_step_is_an_error_with_the_way_out(book, line):
    text = book.metrics.read_text().splitlines(keepends=True)
    book.metrics.write_text(text[0] + line + "".join(text[2:]))
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2: not that of step 1; remove the checkpoints of later"):
        book.drop_after(3)
    book.metrics.unlink()
    with pytest.raises(ValueError, match="line 1: not that of step 0"):
        book.drop_after(3)


def test_paths_are_read_from_the_journals_of_their_steps(book):
    root = Turn.unsampled(-1, "user", "?", np.zeros(1, np.int32))
    leaves = [Leaf(0, branch, Outcome.DONE, "answered", branch / 4) for branch in range(4)]
    trees = [Tree((0, 3, task), task, "t", [root], list(leaves)) for task in (5, 6)]
    book.add_trees(4, trees, Origin("turngym/Math-v0", {}))
    found = book.read_paths([(0, 3, 6, 1), (0, 1, 9, 0), (0, 3, 6, 3)])  # the second is of no journal's tree
    assert [(tree.key, [leaf.branch for leaf in tree.leaves]) for tree in found] == [((0, 3, 6), [1, 3])]
    assert book.read_paths([]) == []
    with pytest.raises(FileNotFoundError, match="step-000009"):
        book.read_paths([(0, 8, 6, 1)])
