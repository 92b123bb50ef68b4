"""Subsets of tasks: how many are kept, and that those of one cluster are of one kind."""

from turngym.training.control.control import Epoch
from turngym.training.methods.contrib.data_subset import data_subset

SUMS = [f"What is {i} plus {i + 1}?" for i in range(12)]
BIRDS = [f"Name a bird that lives near river number {i} in winter" for i in range(12)]
TASKS = Epoch(
    tuple(reversed(range(24))),
    [text for pair in zip(SUMS, BIRDS, strict=True) for text in pair].__getitem__,
)


def order(**parameters):
    chosen = data_subset(**parameters).order
    return chosen(TASKS, {})


def test_a_random_subset_keeps_its_order_and_another_draw_is_another_one():
    kept = order(count=8)
    assert len(kept) == 8 and kept == sorted(kept, reverse=True) == order(count=8) != order(
        count=8, draw=1
    )


def test_k_means_keeps_tasks_of_one_kind_and_with_more_kinds_those_of_others():
    kept = order(by="k-means", clusters=2, count=24)
    assert sorted(kept) in ([*range(0, 24, 2)], [*range(1, 24, 2)]) and kept == sorted(
        kept, reverse=True
    )
    assert len(order(by="k-means", clusters=2, kinds=2, count=24)) == 24
    assert len(order(by="k-means", clusters=2, count=5)) == 5
