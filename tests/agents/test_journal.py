import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.agents import journal
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome

COLUMNS = ("tokens", "sampled", "logp_roll", "entropy")
INFO = st.dictionaries(
    st.text(max_size=4), st.none() | st.booleans() | st.text(max_size=4) | st.lists(st.integers(0, 9))
)
REWARD = st.floats(width=64, allow_infinity=False)
BITS = st.integers(0, 2**32 - 1).map(lambda bits: np.array(bits, np.uint32).view(np.float32)).filter(np.isfinite)


@st.composite
def turns(draw, parent):
    n = draw(st.integers(0, 4))
    column = lambda values: draw(st.lists(values, min_size=n, max_size=n))  # noqa: E731
    return Turn(
        parent=parent,
        role=draw(st.sampled_from(["system", "user", "assistant", "tool"])),
        text=draw(st.text() | st.sampled_from(["two\nlines\r\u2028\x85", "a\ud800b", "🍎\0"])),
        tokens=np.array(column(st.integers(0, 2**31 - 1)), np.int32),
        sampled=np.array(column(st.booleans()), np.bool_),
        logp_roll=np.array(column(BITS), np.float32),
        entropy=np.array(column(BITS), np.float32),
        temperature=draw(st.floats(0, 2)),
        version=draw(st.integers(0, 10**6)),
        ended=draw(st.sampled_from(["", "end", "closer", "length", "context"])),
        reward=draw(REWARD),
        info=draw(INFO),
    )


@st.composite
def trees(draw):
    tree = Tree(tuple(draw(st.lists(st.integers(0, 2**63), max_size=3))), draw(st.integers(0, 10**9)), draw(st.text()))
    for i in range(draw(st.integers(1, 4))):
        tree.add(draw(turns(draw(st.integers(-1, i - 1)))))
    for branch in range(draw(st.integers(0, 3))):
        node = draw(st.integers(0, len(tree.turns) - 1))
        tree.leaves.append(Leaf(node, branch, draw(st.sampled_from(Outcome)), "stop", draw(REWARD), draw(INFO)))
    return tree


def bits(value):
    """A float to its last bit; every NaN is alike."""
    return "nan" if math.isnan(value) else float(value).hex()


def facts(tree):
    """All of a tree in a form that can be compared."""
    turns = [
        {name: (value.dtype.str, value.tobytes()) if name in COLUMNS else value for name, value in vars(turn).items()}
        | {"reward": bits(turn.reward), "temperature": bits(turn.temperature)}
        for turn in tree.turns
    ]
    leaves = [{**vars(leaf), "score": bits(leaf.score)} for leaf in tree.leaves]
    return tree.key, tree.task, tree.task_id, turns, leaves


@given(st.lists(trees(), max_size=3))
@settings(max_examples=40, deadline=None)
def test_a_journal_gives_back_its_trees_to_the_last_bit(tmp_path_factory, written):
    path = tmp_path_factory.getbasetemp() / "journal.jsonl"
    journal.write_trees(path, written)
    assert [facts(tree) for tree in journal.read_trees(path)] == [facts(tree) for tree in written]
    assert path.read_bytes().count(b"\n") == len(written)


def example():
    column = np.array([-0.1, -1e-30], np.float32)
    turn = Turn(-1, "assistant", "café 🍎", np.array([5, 6], np.int32), np.array([True, False]), column, -column)
    leaf = Leaf(0, 0, Outcome.INFRA_ERROR, "infra_error", math.nan, {"error": "down"})
    return Tree((0, 1, 2), 2, "t2", [turn], [leaf])


def test_lines_are_plain_json_in_which_text_can_be_read(tmp_path):
    path = tmp_path / "step.jsonl"
    journal.write_trees(path, [example()])
    assert "café 🍎" in path.read_text("utf-8")
    row = json.loads(path.read_text("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert row["leaves"][0]["score"] is None and row["leaves"][0]["outcome"] == "infra_error"
    assert row["turns"][0]["sampled"] == [1, 0]
    assert np.float32(row["turns"][0]["logp_roll"][1]) == np.float32(-1e-30)


def test_a_file_is_whole_or_absent(tmp_path):
    path = tmp_path / "step.jsonl"

    def broken():
        yield example()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        journal.write_trees(path, broken())
    assert not path.exists()
    journal.write_trees(path, [example()])
    before = path.read_bytes()
    with pytest.raises(OSError, match="no space left"):
        journal.write_trees(path, broken())
    assert path.read_bytes() == before
    journal.write_trees(path, [])
    assert [*journal.read_trees(path)] == [] and [file.name for file in tmp_path.iterdir()] == ["step.jsonl"]


@pytest.mark.parametrize("column", ["logp_roll", "entropy"])
def test_a_statistic_that_is_no_number_is_refused(tmp_path, column):
    tree = example()
    getattr(tree.turns[0], column)[0] = np.nan
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.write_trees(tmp_path / "step.jsonl", [tree])


def spoil(change):
    row = journal.to_json(example())
    change(row)
    return json.dumps(row).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'"\xff"',
        spoil(lambda row: row.pop("key")),
        spoil(lambda row: row.update(turns=[3])),
        spoil(lambda row: row["turns"][0].pop("entropy")),
        spoil(lambda row: row["turns"][0].update(tokens=[1])),
        spoil(lambda row: row["turns"][0].update(tokens=[2**40, 1])),
        spoil(lambda row: row["turns"][0].update(tokens=["a", "b"])),
        spoil(lambda row: row["turns"][0].update(mood="new")),
        spoil(lambda row: row["leaves"][0].update(outcome="won")),
    ],
)
def test_a_line_that_is_no_tree_is_named(tmp_path, line):
    path = tmp_path / "step.jsonl"
    journal.write_trees(path, [example()])
    path.write_bytes(path.read_bytes() + line + b"\n")
    found = journal.read_trees(path)
    assert next(found).task_id == "t2"
    with pytest.raises(ValueError) as caught:
        next(found)
    assert str(caught.value).startswith(f"{path}, line 2: not a tree of this version (")
