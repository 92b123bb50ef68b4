import errno
import json
import math
import os
import re
import zlib
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym import __version__
from turngym.agents.journal import trees as journal
from turngym.agents.journal.trees import Origin, origin_of, read_origin, read_trees, write_trees
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome, TextEnv
from turngym.envs.registry import make

ORIGIN = Origin("test/Talk-v0", {"names": ["a", None], "share": 0.1})
COLUMNS = ("tokens", "sampled", "logp_roll", "entropy")
INFO = st.dictionaries(
    st.text(max_size=4),
    st.none() | st.booleans() | st.text(max_size=4) | st.lists(st.integers(0, 9)),
)
REWARD = st.floats(width=64, allow_infinity=False)
BITS = (
    st.integers(0, 2**32 - 1)
    .map(lambda bits: np.array(bits, np.uint32).view(np.float32))
    .filter(np.isfinite)
)


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
    tree = Tree(
        tuple(draw(st.lists(st.integers(0, 2**63), max_size=3))),
        draw(st.integers(0, 10**9)),
        draw(st.text()),
    )
    for i in range(draw(st.integers(1, 4))):
        tree.add(draw(turns(draw(st.integers(-1, i - 1)))))
    for branch in range(draw(st.integers(0, 3))):
        node = draw(st.integers(0, len(tree.turns) - 1))
        tree.leaves.append(
            Leaf(node, branch, draw(st.sampled_from(Outcome)), "stop", draw(REWARD), draw(INFO))
        )
    return tree


def bits(value):
    """A float to its last bit; every NaN is alike."""
    return "nan" if math.isnan(value) else float(value).hex()


def facts(tree):
    """All of a tree in a form that can be compared."""
    turns = [
        {
            name: (value.dtype.str, value.tobytes()) if name in COLUMNS else value
            for name, value in vars(turn).items()
        }
        | {"reward": bits(turn.reward), "temperature": bits(turn.temperature)}
        for turn in tree.turns
    ]
    leaves = [{**vars(leaf), "score": bits(leaf.score)} for leaf in tree.leaves]
    return tree.key, tree.task, tree.task_id, turns, leaves


@given(st.lists(trees(), max_size=3, unique_by=lambda tree: tree.key))
@settings(max_examples=20, deadline=None)
def test_a_journal_gives_back_its_trees_to_the_last_bit(tmp_path_factory, written):
    path = tmp_path_factory.getbasetemp() / "journal.jsonl"
    write_trees(path, written, ORIGIN)
    assert [facts(tree) for tree in read_trees(path)] == [facts(tree) for tree in written]
    assert path.read_bytes().count(b"\n") == 1 + len(written)
    assert read_origin(path) == ORIGIN


def example():
    column = np.array([-0.1, -1e-30], np.float32)
    turn = Turn(
        -1,
        "assistant",
        "café 🍎",
        np.array([5, 6], np.int32),
        np.array([True, False]),
        column,
        -column,
    )
    leaf = Leaf(0, 0, Outcome.INFRA_ERROR, "infra_error", math.nan, {"error": "down"})
    return Tree((0, 1, 2), 2, "t2", [turn], [leaf])


def test_lines_are_plain_json_in_which_text_can_be_read(tmp_path):
    path = tmp_path / "step.jsonl"
    write_trees(path, [example()], ORIGIN)
    assert "café 🍎" in path.read_text("utf-8")
    header, row = (
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        for line in path.read_text("utf-8").splitlines()
    )
    assert (header["journal"], header["turngym"], header["env"]) == (3, __version__, "test/Talk-v0")
    assert (header["options"], header["trees"]) == ({"names": ["a", None], "share": 0.1}, 1)
    assert row["leaves"][0]["score"] is None and row["leaves"][0]["outcome"] == "infra_error"
    assert row["turns"][0]["sampled"] == [1, 0]
    assert np.float32(row["turns"][0]["logp_roll"][1]) == np.float32(-1e-30)


def test_a_file_is_whole_or_absent(tmp_path):
    path = tmp_path / "step.jsonl"

    def broken():
        yield example()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_trees(path, broken(), ORIGIN)
    assert not path.exists()
    write_trees(path, [example()], ORIGIN)
    before = path.read_bytes()
    with pytest.raises(OSError, match="no space left"):
        write_trees(path, broken(), ORIGIN)
    assert path.read_bytes() == before
    write_trees(path, [], ORIGIN)
    assert [*read_trees(path)] == [] and [file.name for file in tmp_path.iterdir()] == [
        "step.jsonl"
    ]


@pytest.mark.parametrize("column", ["logp_roll", "entropy"])
def test_a_statistic_that_is_no_number_is_refused(tmp_path, column):
    tree = example()
    getattr(tree.turns[0], column)[0] = np.nan
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_trees(tmp_path / "step.jsonl", [tree], ORIGIN)


# --- damage


def sealed(data):
    """A line of a journal, with the checksum written by hand."""
    text = json.dumps(data)[:-1] if isinstance(data, dict) else data
    return f'{text}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def spoil(change):
    row = journal.to_json(example())
    change(row)
    return sealed(row)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{\n",
        b"[]\n",
        json.dumps(journal.to_json(example())).encode() + b"\n",  # without a checksum
        sealed("[3"),
        sealed('{"key": NaN'),
        spoil(lambda row: row.pop("key")),
        spoil(lambda row: row.update(mood="new")),
        spoil(lambda row: row.update(turns=[3])),
        spoil(lambda row: row["turns"][0].pop("entropy")),
        spoil(lambda row: row["turns"][0].update(tokens=[1])),
        spoil(lambda row: row["turns"][0].update(tokens=[2**40, 1])),
        spoil(lambda row: row["turns"][0].update(tokens=["a", "b"])),
        spoil(lambda row: row["turns"][0].update(tokens=[1.5, 2])),
        spoil(lambda row: row["turns"][0].update(sampled=[2, 0])),
        spoil(lambda row: row["turns"][0].update(entropy=[None, 0.0])),
        spoil(lambda row: row["turns"][0].update(logp_roll=[-0.1, 0.0])),  # no float32 is -0.1
        spoil(lambda row: row["turns"][0].update(mood="new")),
        spoil(lambda row: row["turns"][0]["info"].update(share=math.nan)),
        spoil(lambda row: row["turns"][0].update(parent=0)),
        spoil(lambda row: row["leaves"][0].update(outcome="won")),
        spoil(lambda row: row["leaves"][0].update(node=1)),
        spoil(lambda row: row["leaves"][0].update(node=-1)),
    ],
)
def test_a_line_that_is_no_tree_is_named(tmp_path, line):
    path = tmp_path / "step.jsonl"
    write_trees(path, [example()], ORIGIN)
    path.write_bytes(path.read_bytes() + line)
    found = read_trees(path)
    assert next(found).task_id == "t2"
    with pytest.raises(ValueError) as caught:
        next(found)
    assert str(caught.value).startswith(f"{path}, line 3: not a tree of this version (")


@pytest.fixture
def three(tmp_path):
    """A journal of three trees."""
    path, forest = tmp_path / "step.jsonl", [example(), example(), example()]
    for number, tree in enumerate(forest):
        tree.key = (0, 1, number)
    write_trees(path, forest, ORIGIN)
    return path


def read(path):
    """The trees that can be read before an error, and the error; both readers agree on the header."""
    found = []
    try:
        read_origin(path)
        for tree in read_trees(path):
            found.append(facts(tree))
    except ValueError as error:
        return found, str(error)
    return found, None


def test_a_journal_cut_anywhere_gives_whole_trees_and_then_names_the_line(three):
    whole, _ = read(three)
    written = three.read_bytes()
    ends = [0, *(i + 1 for i, byte in enumerate(written) if byte == 10)]
    for size in sorted(
        {*range(0, len(written), 29), *ends, *(end - 1 for end in ends[1:])} - {len(written)}
    ):
        three.write_bytes(written[:size])
        found, error = read(three)
        lines = sum(end <= size for end in ends[1:])
        assert found == whole[: max(lines - 1, 0)]
        assert error.startswith(
            f"{three}, line {lines if size in ends and lines else lines + 1}: "
        ), (size, error)


def test_every_flipped_bit_is_found_in_its_line(three):
    whole, _ = read(three)
    written = three.read_bytes()
    rng = np.random.default_rng(0)
    places = rng.choice(8 * len(written), 200, replace=False)
    for place in sorted(
        {*places.tolist(), *(8 * i + bit for i in (0, written.index(10)) for bit in range(8))}
    ):
        damaged = bytearray(written)
        damaged[place // 8] ^= 1 << place % 8
        three.write_bytes(damaged)
        found, error = read(three)
        line = 1 + written[: place // 8].count(10)
        assert found == whole[: max(line - 2, 0)], place
        assert error.startswith(f"{three}, line {line}: "), (place, error)


def test_lines_that_are_lost_added_or_doubled_are_noticed(three):
    header, *lines = three.read_bytes().splitlines(keepends=True)
    three.write_bytes(b"".join([header, *lines[:2]]))
    assert read(three)[1] == f"{three}, line 3: 2 trees were read, but 3 were written"
    three.write_bytes(b"".join([header, *lines[:2], lines[0]]))
    assert read(three)[1] == f"{three}, line 4: the tree (0, 1, 0) occurs twice"
    three.write_bytes(b"".join([header, *lines, spoil(lambda row: row.update(key=[7]))]))
    assert read(three)[1] == f"{three}, line 5: 4 trees were read, but 3 were written"


def test_two_trees_of_one_key_are_not_written(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"two trees have the key \(0, 1, 2\); a journal holds the tree of a key once",
    ):
        write_trees(tmp_path / "step.jsonl", [example(), example()], ORIGIN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"", "the file is empty"),
        (b"\n", "its checksum does not fit"),
        (spoil(lambda row: None), "it is of format None"),
        (sealed({"journal": 0, "env": "x", "options": {}, "trees": 0}), "it is of format 0"),
        (sealed({"journal": 3, "env": "x", "options": {}}), "'trees'"),
        (sealed({"journal": 3, "env": "x", "mood": {}, "trees": 0}), "mood"),
        (sealed({"journal": 3, "env": "x", "options": {}, "trees": "many"}), "trees is no number"),
        (json.dumps(journal.to_json(example())).encode() + b"\n", "its checksum does not fit"),
    ],
)
def test_a_file_without_a_header_of_this_version_is_refused(tmp_path, start, what):
    path = tmp_path / "step.jsonl"
    path.write_bytes(start)
    for reader in (read_origin, lambda path: next(read_trees(path))):
        with pytest.raises(ValueError) as caught:
            reader(path)
        assert str(caught.value).startswith(
            f"{path}, line 1: not the header of a journal of format 3 ("
        )
        assert what in str(caught.value)


# --- what made it


class Talk(TextEnv):
    def __init__(self, **options):
        super().__init__()


@pytest.fixture
def talk():
    gymnasium.register(
        "test/Talk-v0", entry_point=lambda tasks=None, names=(): Talk(), kwargs={"names": ("x",)}
    )
    yield "test/Talk-v0"
    del gymnasium.registry["test/Talk-v0"]


def test_the_origin_of_an_environment_makes_it_again(talk):
    env = make(talk, tasks=Path("questions") / "one.jsonl")
    for one in (
        env,
        env.fork(),
        gymnasium.make(talk, tasks=Path("questions") / "one.jsonl").unwrapped,
    ):
        found = origin_of(one)
        assert found == Origin(talk, {"names": ["x"], "tasks": "questions/one.jsonl"}, __version__)
    again = make(found.env, **found.options)
    assert origin_of(again) == found


def test_an_environment_that_a_journal_could_not_name_is_refused(talk):
    with pytest.raises(
        ValueError, match="Talk was made without an id, so its journal could not say what made it"
    ):
        origin_of(Talk())
    for value in (float("nan"), {1, 2}):
        with pytest.raises(
            ValueError, match=r"option names of test/Talk-v0 is .*; a journal can hold JSON"
        ):
            origin_of(make(talk, names=value))


def test_what_an_environment_says_must_be_data(tmp_path):
    tree = example()
    tree.turns[0].info["count"] = np.int64(3)
    with pytest.raises(
        ValueError, match=r"tree \(0, 1, 2\) cannot be written .*int64.*must be JSON data"
    ):
        write_trees(tmp_path / "step.jsonl", [tree], ORIGIN)
    assert list(tmp_path.iterdir()) == []


def test_a_journal_is_on_the_disk_with_its_name_before_writing_returns(tmp_path, monkeypatch):
    order, path = [], tmp_path / "step.jsonl"
    fsync, rename = os.fsync, os.rename

    def synced(handle):
        order.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def renamed(*names, **folders):
        order.append("rename")
        return rename(*names, **folders)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    write_trees(path, [example()], ORIGIN)
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}/\.step\.jsonl\.[0-9a-f]{{16}}\.tmp", order.pop(0)
    )
    assert order == ["rename", str(tmp_path)]


def test_a_file_is_written_whole_or_stays_what_it_was(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    journal.write_file(path, "one é")
    assert path.read_text("utf-8") == "one é"

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        journal.write_file(path, "two")
    assert path.read_text("utf-8") == "one é" and [*tmp_path.iterdir()] == [path]


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events, fsync, rename = [], os.fsync, os.rename
    name = lambda handle: os.readlink(f"/proc/self/fd/{handle}")  # noqa: E731, PTH115
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(name(handle)) or fsync(handle))
    monkeypatch.setattr(
        os, "rename", lambda *names, **of: events.append("named") or rename(*names, **of)
    )
    journal.write_file(tmp_path / "a", "text")
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/\.a\.[0-9a-f]{{16}}\.tmp", events.pop(0))
    assert events == ["named", str(tmp_path)]
    events.clear()
    journal.append_line(tmp_path / "b", "line")
    journal.append_line(tmp_path / "b", "line")
    assert events == [f"{tmp_path}/b", str(tmp_path), f"{tmp_path}/b"]  # the name once, each line


@pytest.mark.parametrize("torn", [b"", b'{"step": 3, "rew', b"\0" * 5000, b"x" * 4096, b"x" * 4095])
@pytest.mark.parametrize("before", [b"", b"one\n", b"one\n" + b"y" * 9000 + b"\n"])
def test_a_line_takes_the_place_of_one_that_was_not_finished(tmp_path, before, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before + torn)
    journal.append_line(path, "next é")
    journal.append_line(path, "last")
    assert path.read_bytes() == before + "next é\nlast\n".encode()


def test_a_line_that_could_not_be_written_whole_is_gone_with_the_next(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    journal.append_line(path, "one")

    def fail(handle: int) -> None:
        with path.open("r+b") as file:
            file.truncate(6)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            journal.append_line(path, "two")
    assert path.read_bytes() == b"one\ntw"
    journal.append_line(path, "two")
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    "key", [["0", 1, 2], [[0], 1, 2], [0.0, 1, 2], [True, 1, 2], "012", [None, 1, 2]]
)
def test_a_key_of_a_tree_is_of_whole_numbers(key):
    with pytest.raises(ValueError, match="both are whole numbers"):
        journal.from_json({**journal.to_json(example()), "key": key})


@pytest.mark.parametrize(
    "read", [lambda path: list(read_trees(path)), journal.read_origin, journal.read_count]
)
def test_a_journal_is_no_link_and_no_line_of_it_is_without_end(tmp_path, read, monkeypatch):
    write_trees(tmp_path / "real.jsonl", [example()], ORIGIN)
    (tmp_path / "step.jsonl").symlink_to("real.jsonl")
    with pytest.raises(ValueError, match=r"step\.jsonl is a link"):
        read(tmp_path / "step.jsonl")
    read(tmp_path / "real.jsonl")


def test_a_line_that_is_too_long_is_named(tmp_path, monkeypatch):
    write_trees(tmp_path / "step.jsonl", [example()], ORIGIN)
    journal.append_sealed(tmp_path / "grown.jsonl", {"text": "x" * 5000})
    monkeypatch.setattr(journal, "LONGEST_LINE", 200)
    for read, name in ((read_trees, "step.jsonl"), (journal.read_sealed, "grown.jsonl")):
        with pytest.raises(ValueError, match=rf"{name}, line 1: it has more than"):
            list(read(tmp_path / name))
