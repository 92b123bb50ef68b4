"""Layouts of random trees, beside what each token of each path must see: the tokens of that path up to itself."""

import numpy as np
import pytest
import torch

from turngym.training import packing as module
from turngym.training.packing import Layout, layout_of

Path = list[tuple[int, int]]  # name and token id


def forest(seed: int, paths: int = 12) -> list[Path]:
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
    return layout_of(*([torch.tensor([pair[i] for pair in path]) for path in paths] for i in (1, 0)))


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
    paths = forest(seed)
    layout, sight = laid(paths), seen(laid(paths))
    assert len(layout.tokens) == len({name for path in paths for name, _ in path}) == sum(layout.sizes)
    name_at: dict[int, int] = {}
    for path, place in zip(paths, layout.places, strict=True):
        assert layout.tokens[place].tolist() == [token for _, token in path]
        assert layout.positions[place].tolist() == list(range(len(path)))
        for i, (row, (name, _)) in enumerate(zip(place.tolist(), path, strict=True)):
            assert name_at.setdefault(row, name) == name
            assert sight[row] == place[: i + 1].tolist()


def test_tokens_lie_in_the_order_in_which_paths_bring_them():
    layout = laid([[(1, 10), (2, 20), (3, 30)], [(1, 10), (4, 40)], [(9, 90)], [(1, 10), (2, 20), (0, 5)]])
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
    monkeypatch.setattr(module, "LONGEST", 8)
    paths = [[(i, i) for i in range(30)], [*((i, i) for i in range(10)), *((100 + i, i) for i in range(20))]]
    layout = laid(paths)
    assert layout.sizes == (10, 8, 8, 4, 8, 8, 4)
    assert layout.chains == ((0,), (0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 4), (0, 4, 5), (0, 4, 5, 6))
    assert [rows[-1] for rows in seen(layout)] == list(range(50))
    assert all(seen(layout)[row] == place[: i + 1].tolist() for place in layout.places for i, row in enumerate(place))
