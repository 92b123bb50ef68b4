"""Packing, on trees written by hand: what a slot and a row hold is looked up in the trees one token at a time."""

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree, Turn, given
from turngym.envs import Outcome
from turngym.training.columns import OUTCOMES
from turngym.training.packing import Packed, pack


def said(parent: int, tokens: list[int], reward: float = 0.0, temperature: float = 1.0) -> Turn:
    """A turn that the policy drew; its statistics follow from its tokens."""
    ids = np.array(tokens, np.int32)
    stats = {"logp_roll": -ids.astype(np.float32) / 64, "entropy": ids.astype(np.float32) / 32}
    text = " ".join(map(str, tokens))
    drawn = np.ones(len(ids), np.bool_)
    return Turn(parent, "assistant", text, ids, drawn, **stats, reward=reward, temperature=temperature)


def told(parent: int, text: str, size: int, role: str = "user") -> Turn:
    return given(parent, role, text, np.arange(size, dtype=np.int32) + 90)


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
    named = {f"{tree.task_id} branch {leaf.branch}": (tree, leaf) for tree in forest() for leaf in tree.leaves}
    return [named[name] for name in packed.names]


def test_paths_lie_shortest_first_and_those_that_failed_are_left_out(packed):
    assert packed.names == ["three branch 0", "seven branch 1", "seven branch 0", "seven branch 3"]
    assert [len(tokens) for tokens in packed.tokens] == [3, 9, 10, 47]
    assert packed.batch.n_paths == 4


def test_tokens_of_a_path_are_those_of_the_tree_from_root_to_leaf(packed):
    for tokens, sampled, (tree, leaf) in zip(packed.tokens, packed.sampled, paths(packed)):
        assert tokens.tolist() == tree.tokens(leaf).tolist()
        assert tokens[sampled].tolist() == [t for node in tree.replies(leaf) for t in tree.turns[node].tokens]


def test_every_sampled_token_of_a_path_is_a_slot_with_its_own_statistics(packed):
    batch, slot = packed.batch, 0
    for path, (tree, leaf) in enumerate(paths(packed)):
        for turn, node in enumerate(tree.replies(leaf)):
            for token in tree.turns[node].tokens.tolist():
                row = int(batch.row[slot])
                assert (int(batch.path[slot]), int(batch.turn[slot]), int(packed.token[slot])) == (path, turn, token)
                assert (float(batch.logp_old[slot]), float(batch.entropy[slot])) == (-token / 64, token / 32)
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
    groups = {name: int(turns.group[turns.path == path][0]) for path, name in enumerate(packed.names)}
    assert groups == {"three branch 0": 1, "seven branch 0": 0, "seven branch 1": 0, "seven branch 3": 0}
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


def test_padding_is_on_the_right_and_no_padded_token_counts_as_drawn(packed):
    tokens, sampled = packed.padded(range(1, 4))
    assert tokens.shape == sampled.shape == (3, 47)
    for row, path in enumerate(range(1, 4)):
        size = len(packed.tokens[path])
        assert torch.equal(tokens[row, :size], packed.tokens[path])
        assert torch.equal(sampled[row, :size], packed.sampled[path])
        assert not tokens[row, size:].any() and not sampled[row, size:].any()


@pytest.mark.parametrize("size", [1, 9, 18, 20, 30, 100, 1000])
def test_micro_batches_cover_kept_paths_once_within_their_size(packed, size):
    for keep in ([True] * 4, [True, False, True, True], [False, True, True, False], [False] * 4):
        cuts = list(packed.micro_batches(size, torch.tensor(keep)))
        assert [path for paths in cuts for path in paths] == [path for path in range(4) if keep[path]]
        for cut in cuts:
            assert len(cut) == 1 or packed.padded(cut)[0].numel() <= size
    everything = list(packed.micro_batches(1000, torch.tensor([True] * 4)))
    assert everything == [range(4)]


def test_a_path_without_a_turn_of_the_policy_counts_and_has_no_slot():
    (tree, _) = forest()
    prompt = Tree((0, 0, 1), 1, "long", [told(-1, "long", 5)], [Leaf(0, 0, Outcome.TRUNCATED, "context", 0.0)])
    packed = pack([tree, prompt])
    assert packed.batch.n_paths == 4 and packed.names[0] == "long branch 0"
    assert 0 not in packed.batch.path.tolist() and 0 not in packed.batch.turns.path.tolist()


def test_trees_with_nothing_to_learn_from_are_refused_with_how_they_ended():
    lost = Tree((0, 0, 0), 0, "lost", [told(-1, "?", 1), said(0, [1])])
    lost.leaves.append(Leaf(1, 0, Outcome.TOOL_ERROR, "tool_error", float("nan")))
    full = Tree((0, 0, 1), 1, "full", [told(-1, "?", 1)], [Leaf(0, 0, Outcome.TRUNCATED, "context", 0.0)])
    with pytest.raises(
        ValueError, match="2 trees hold nothing to learn from; their paths ended by context, tool_error"
    ):
        pack([lost, full])
    with pytest.raises(ValueError, match="0 trees hold nothing"):
        pack([])
