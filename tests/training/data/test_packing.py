"""Packing, on trees written by hand: what a slot and a row hold is looked up in the trees one token at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import CLASSES, PHASES, Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.data import layout as layout_module
from turngym.training.data.batch import OUTCOMES
from turngym.training.data.layout import Layout, layout_of
from turngym.training.data.packing import Packed, pack


def said(parent: int, tokens: list[int], reward: float = 0.0, temperature: float = 1.0) -> Turn:
    """A turn that the policy drew; its statistics follow from its tokens."""
    ids = np.array(tokens, np.int32)
    stats = {"logp_roll": -ids.astype(np.float32) / 64, "entropy": ids.astype(np.float32) / 32}
    text = " ".join(map(str, tokens))
    drawn = np.ones(len(ids), np.bool_)
    return Turn(
        parent, "assistant", text, ids, drawn, **stats, reward=reward, temperature=temperature
    )


def told(parent: int, text: str, size: int, role: str = "user") -> Turn:
    return Turn.unsampled(parent, role, text, np.arange(size, dtype=np.int32) + 90)


def forest() -> list[Tree]:
    """Two groups: a tree that branches at its prompt and again after a turn, and a plain one of another task."""
    first = Tree((0, 0, 7), 7, "seven")
    for turn in (
        told(-1, "prompt", 3),  # 0
        said(0, [1, 2, 3], 0.25),  # 1: shared by branches 0 and 1
        told(1, "answer", 2, "tool"),  # 2
        said(2, [4, 5], 0.5),  # 3
        said(2, [6], 0.75, temperature=0.7),  # 4
        said(0, [8, 9]),  # 5: its environment was lost
        said(0, [10, 11, 12, 13]),  # 6
        told(6, "answer", 40, "tool"),  # 7: does not fit in the context
    ):
        first.add(turn)
    first.leaves += [
        Leaf(3, 0, Outcome.DONE, "answered", 0.75),
        Leaf(4, 1, Outcome.DONE, "answered", 1.0),
        Leaf(5, 2, Outcome.INFRA_ERROR, "infra_error", float("nan")),
        Leaf(7, 3, Outcome.TRUNCATED, "context", 0.0),
    ]
    second = Tree((0, 0, 3), 3, "three")
    for turn in (told(-1, "prompt", 2), said(0, [20])):
        second.add(turn)
    second.leaves.append(Leaf(1, 0, Outcome.DONE, "no_answer", 0.0))
    return [first, second]


@pytest.fixture
def packed() -> Packed:
    return pack(forest())


def paths(packed: Packed) -> list[tuple[Tree, Leaf]]:
    """The tree and leaf of each packed path, by name."""
    named = {
        f"{tree.task_id} branch {leaf.branch}": (tree, leaf)
        for tree in forest()
        for leaf in tree.leaves
    }
    return [named[name] for name in packed.names]


def test_paths_lie_tree_by_tree_in_the_order_of_their_branches_and_those_that_failed_are_left_out(
    packed,
):
    assert packed.names == ["seven branch 0", "seven branch 1", "seven branch 3", "three branch 0"]
    assert packed.keys == [(0, 0, 7, 0), (0, 0, 7, 1), (0, 0, 7, 3), (0, 0, 3, 0)]
    assert [len(tokens) for tokens in packed.tokens] == [10, 9, 47, 3]
    assert packed.batch.n_paths == 4


def test_a_probe_is_left_out():
    trees = forest()
    trees[0].leaves[1] = replace(trees[0].leaves[1], trained=False)
    packed = pack(trees)
    assert packed.names == ["seven branch 0", "seven branch 3", "three branch 0"]
    assert packed.batch.share.unique().tolist() == [1.0]


def test_tokens_of_a_path_are_those_of_the_tree_from_root_to_leaf(packed):
    for tokens, sampled, (tree, leaf) in zip(packed.tokens, packed.sampled, paths(packed)):
        assert tokens.tolist() == tree.tokens(leaf).tolist()
        assert tokens[sampled].tolist() == [
            t for node in tree.replies(leaf) for t in tree.turns[node].tokens
        ]


def test_every_sampled_token_of_a_path_is_a_slot_with_its_own_statistics(packed):
    batch, slot = packed.batch, 0
    for path, (tree, leaf) in enumerate(paths(packed)):
        for turn, node in enumerate(tree.replies(leaf)):
            for token in tree.turns[node].tokens.tolist():
                row = int(batch.row[slot])
                assert (int(batch.path[slot]), int(batch.turn[slot]), int(packed.token[slot])) == (
                    path,
                    turn,
                    token,
                )
                assert (float(batch.logp_old[slot]), float(batch.entropy[slot])) == (
                    -token / 64,
                    token / 32,
                )
                assert packed.temperature[slot] == np.float32(tree.turns[node].temperature)
                assert batch.turns.reward[row] == tree.turns[node].reward
                assert batch.turns.score[row] == leaf.score and batch.turns.task[row] == tree.task
                assert OUTCOMES[batch.turns.outcome[row]] is leaf.outcome
                slot += 1
    assert slot == batch.n_slots == len(packed.token)
    assert torch.equal(batch.logp_roll, batch.logp_old)


def test_a_token_on_two_paths_is_one_token_shared_in_halves(packed):
    batch = packed.batch
    by_token = {}
    for slot, token in enumerate(packed.token.tolist()):
        by_token.setdefault(token, []).append(slot)
    for token, slots in by_token.items():  # the forest draws no id twice
        assert len(slots) == (2 if token in (1, 2, 3) else 1)
        assert len({int(batch.token[slot]) for slot in slots}) == 1
        assert {float(batch.share[slot]) for slot in slots} == {1 / len(slots)}
    assert batch.token.unique().numel() == len(by_token)
    rows = {int(batch.row[slot]) for slot in by_token[1]}
    assert len(rows) == 2 and len({int(batch.turns.node[row]) for row in rows}) == 1


def test_groups_are_trees_and_anchors_what_was_seen_within_one(packed):
    turns = packed.batch.turns
    groups = {
        name: int(turns.group[turns.path == path][0]) for path, name in enumerate(packed.names)
    }
    assert groups == {
        "three branch 0": 1,
        "seven branch 0": 0,
        "seven branch 1": 0,
        "seven branch 3": 0,
    }
    seen = {}
    for row, anchor in enumerate(turns.anchor.tolist()):
        tree, leaf = paths(packed)[int(turns.path[row])]
        node = tree.replies(leaf)[int(turns.turn[row])]
        seen.setdefault(anchor, set()).add((tree.task, tree.turns[tree.turns[node].parent].text))
    assert sorted(seen.values(), key=str) == [{(3, "prompt")}, {(7, "answer")}, {(7, "prompt")}]


def test_what_turns_hold_that_were_not_drawn_is_never_read():
    noisy = forest()
    rng = np.random.default_rng(0)
    for tree in noisy:
        for turn in tree.turns:
            if turn.role != "assistant":
                turn.logp_roll[:], turn.entropy[:] = rng.normal(size=(2, len(turn.tokens)))
    one, other = pack(forest()), pack(noisy)
    for column in ("logp_old", "entropy", "logp_roll", "path", "row", "token", "share"):
        assert torch.equal(getattr(one.batch, column), getattr(other.batch, column))


def before(packed: Packed, path: int, place: int) -> tuple[int, ...]:
    """The tree of a path and its tokens' texts up to `place`: what paths have in common that share that token."""
    return (int(packed.names[path].startswith("three")), *packed.tokens[path][: place + 1].tolist())


def test_a_name_is_equal_exactly_where_paths_share_the_token_and_all_before_it(packed):
    stories: dict[int, set[tuple[int, ...]]] = {}
    for path, shared in enumerate(packed.shared):
        assert len(shared) == len(packed.tokens[path]) and len(shared.unique()) == len(shared)
        for place, name in enumerate(shared.tolist()):
            stories.setdefault(name, set()).add(before(packed, path, place))
    assert all(
        len(told) == 1 for told in stories.values()
    )  # here no two tokens that are not shared look alike
    assert len(stories) == len(set().union(*stories.values())) == 3 + 3 + 2 + 2 + 1 + 4 + 40 + 2 + 1


def test_slots_share_a_token_where_their_paths_do(packed):
    at = torch.cat([shared[sampled] for shared, sampled in zip(packed.shared, packed.sampled)])
    assert torch.equal(at[:, None] == at, packed.batch.token[:, None] == packed.batch.token)


def copied() -> Tree:
    """A tree in which a turn begins with the first two tokens of another, and a third with three of the second's."""
    tree = Tree((0, 0, 0), 0, "copied")
    tree.add(told(-1, "prompt", 3))
    tree.add(said(0, [1, 2, 3, 4]))
    tree.add(replace(said(0, [1, 2, 5, 6]), twin=1, copied=2))
    tree.add(replace(said(0, [1, 2, 5, 7]), twin=2, copied=3))
    tree.leaves += [
        Leaf(node, node - 1, Outcome.DONE, "answered", float(node)) for node in (1, 2, 3)
    ]
    return tree


def test_copied_tokens_are_those_of_the_turn_that_they_were_drawn_in():
    packed = pack([copied()])
    one, two, three = (shared[3:].tolist() for shared in packed.shared)
    assert one[:2] == two[:2] == three[:2] and two[2] == three[2]
    assert len({*one, *two, *three}) == 4 + 2 + 1
    assert len(packed.layout(range(3)).tokens) == 3 + 7
    shares = [1 / 3, 1 / 3, 1, 1, 1 / 3, 1 / 3, 0.5, 1, 1 / 3, 1 / 3, 0.5, 1]
    torch.testing.assert_close(packed.batch.share, torch.tensor(shares))
    assert len(packed.batch.turns.node.unique()) == 3


def test_phases_part_a_turn_at_its_thought():
    tree = copied()
    tree.turns[1] = replace(tree.turns[1], thought=3, info={"answer": "4"})
    tree.turns[2] = replace(tree.turns[2], thought=1)
    phases = [PHASES[phase] for phase in pack([tree]).batch.phase.tolist()]
    assert phases == ["think"] * 3 + ["answer", "think"] + ["call"] * 7


def test_a_finished_block_is_arguments_and_format_and_all_else_is_words():
    tree = copied()
    tree.turns[1] = replace(tree.turns[1], thought=1, values=(2, 3))
    kinds = [CLASSES[kind] for kind in pack([tree]).batch.kind.tolist()]
    assert kinds == ["words", "format", "arguments", "format"] + ["words"] * 8


@pytest.mark.parametrize("size", [1, 9, 12, 14, 20, 60, 1000])
def test_micro_batches_cover_kept_paths_once_within_their_size_in_different_tokens(packed, size):
    for keep in ([True] * 4, [True, False, True, True], [False, True, True, False], [False] * 4):
        cuts = list(packed.micro_batches(size, torch.tensor(keep)))
        assert [path for paths in cuts for path in paths] == [
            path for path in range(4) if keep[path]
        ]
        for cut in cuts:
            different = len({name for path in cut for name in packed.shared[path].tolist()})
            assert len(packed.layout(cut).tokens) == different
            assert len(cut) == 1 or different <= size


def test_what_paths_share_is_counted_once(packed):
    everything = torch.tensor([True] * 4)
    assert list(packed.micro_batches(1000, everything)) == [range(4)]
    # 10 tokens, 1 more, 44 more, 3 more
    assert list(packed.micro_batches(11, everything)) == [range(2), range(2, 3), range(3, 4)]
    assert list(packed.micro_batches(10, everything)) == [
        range(1),
        range(1, 2),
        range(2, 3),
        range(3, 4),
    ]
    assert list(packed.micro_batches(55, everything)) == [range(3), range(3, 4)]


def test_a_path_without_a_turn_of_the_policy_counts_and_has_no_slot():
    (tree, _) = forest()
    prompt = Tree(
        (0, 0, 1), 1, "long", [told(-1, "long", 5)], [Leaf(0, 0, Outcome.TRUNCATED, "context", 0.0)]
    )
    packed = pack([tree, prompt])
    assert packed.batch.n_paths == 4 and packed.names[3] == "long branch 0"
    assert 3 not in packed.batch.path.tolist() and 3 not in packed.batch.turns.path.tolist()
    assert len(packed.layout(range(3, 4)).tokens) == 5


def test_trees_with_nothing_to_learn_from_are_refused_with_how_they_ended():
    lost = Tree((0, 0, 0), 0, "lost", [told(-1, "?", 1), said(0, [1])])
    lost.leaves.append(Leaf(1, 0, Outcome.TOOL_ERROR, "tool_error", float("nan")))
    full = Tree(
        (0, 0, 1), 1, "full", [told(-1, "?", 1)], [Leaf(0, 0, Outcome.TRUNCATED, "context", 0.0)]
    )
    with pytest.raises(
        ValueError,
        match="2 trees hold nothing to learn from; their paths ended by context, tool_error",
    ):
        pack([lost, full])
    with pytest.raises(ValueError, match="0 trees hold nothing"):
        pack([])


Path = list[tuple[int, int]]  # name and token id


def leaving_paths(seed: int, paths: int = 12) -> list[Path]:
    """Paths that leave each other anywhere, now and then at once, never, or right behind the last one's end."""
    rng, grown, count = np.random.default_rng(seed), list[Path](), 0
    for _ in range(paths):
        kept = grown[rng.integers(len(grown))] if grown and rng.random() < 0.8 else []
        if kept and rng.random() < 0.8:
            kept = kept[: rng.integers(1, len(kept) + 1)]
        size = int(rng.integers(0 if kept else 1, 9))
        grown.append([*kept, *((count + i, int(rng.integers(50))) for i in range(size))])
        count += size
    # Numbers say which tokens are the same and nothing else.
    label = rng.permutation(count) * 7919
    return [[(int(label[name]), token) for name, token in path] for path in grown]


def laid(paths: list[Path]) -> Layout:
    return layout_of(
        *([torch.tensor([pair[i] for pair in path]) for path in paths] for i in (1, 0))
    )


def seen(layout: Layout) -> list[list[int]]:
    """Of each row of the layout the rows it sees, by segments and chains alone."""
    ends = np.cumsum(layout.sizes)
    rows = [list(range(end - size, end)) for end, size in zip(ends.tolist(), layout.sizes)]
    found = []
    for chain, own in zip(layout.chains, rows):
        before = [row for segment in chain[:-1] for row in rows[segment]]
        found += [before + own[: i + 1] for i in range(len(own))]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_every_token_lies_there_once_and_sees_its_path_up_to_itself(seed):
    paths = leaving_paths(seed)
    layout, sight = laid(paths), seen(laid(paths))
    assert (
        len(layout.tokens) == len({name for path in paths for name, _ in path}) == sum(layout.sizes)
    )
    name_at: dict[int, int] = {}
    for path, place in zip(paths, layout.places, strict=True):
        assert layout.tokens[place].tolist() == [token for _, token in path]
        assert layout.positions[place].tolist() == list(range(len(path)))
        for i, (row, (name, _)) in enumerate(zip(place.tolist(), path, strict=True)):
            assert name_at.setdefault(row, name) == name
            assert sight[row] == place[: i + 1].tolist()


def test_tokens_lie_in_the_order_in_which_paths_bring_them():
    layout = laid(
        [[(1, 10), (2, 20), (3, 30)], [(1, 10), (4, 40)], [(9, 90)], [(1, 10), (2, 20), (0, 5)]]
    )
    assert layout.tokens.tolist() == [10, 20, 30, 40, 90, 5]
    assert layout.positions.tolist() == [0, 1, 2, 1, 0, 2]
    assert layout.sizes == (1, 1, 1, 1, 1, 1)
    assert layout.chains == ((0,), (0, 1), (0, 1, 2), (0, 3), (4,), (0, 1, 5))


def test_only_where_a_path_leaves_another_is_a_segment_cut():
    long = [(i, i) for i in range(30)]
    assert laid([long]).sizes == (30,)
    assert laid([long, long, long[:12]]).sizes == (30,)  # nothing of its own, or only a part
    assert laid([long[:20], long]).sizes == (30,)  # goes on right behind the other
    assert laid([long, [*long[:12], (99, 1)]]).sizes == (12, 18, 1)
    assert laid([long, [(99, 1)]]).chains == ((0,), (1,))


def test_a_long_segment_that_sees_others_is_cut(monkeypatch):
    monkeypatch.setattr(layout_module, "LONGEST", 8)
    paths = [
        [(i, i) for i in range(30)],
        [*((i, i) for i in range(10)), *((100 + i, i) for i in range(20))],
    ]
    layout = laid(paths)
    assert layout.sizes == (10, 8, 8, 4, 8, 8, 4)
    assert layout.chains == ((0,), (0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 4), (0, 4, 5), (0, 4, 5, 6))
    assert [rows[-1] for rows in seen(layout)] == list(range(50))
    assert all(
        seen(layout)[row] == place[: i + 1].tolist()
        for place in layout.places
        for i, row in enumerate(place)
    )
