"""When a run ends, how its learning rate falls, and the order of its tasks."""

import pytest

from turngym.training.loop.task_order import next_tasks
from turngym.training.runs.config import Schedule


def test_the_learning_rate_falls_with_steps_or_tokens_whichever_is_further():
    schedule = Schedule(steps=5, token_budget=100, lr_end=0.2)
    assert [schedule.lr_share(step, 0) for step in (0, 2, 4)] == pytest.approx([1.0, 0.6, 0.2])
    assert schedule.lr_share(1, 50) == pytest.approx(0.6)
    assert Schedule(steps=1, lr_end=0.2).lr_share(0, 10**9) == 1.0


def test_a_run_ends_with_its_steps_or_its_tokens():
    assert not Schedule(steps=3).over(2, 10**9) and Schedule(steps=3).over(3, 0)
    assert Schedule(steps=3, token_budget=10).over(1, 10) and not Schedule(
        steps=3, token_budget=10
    ).over(1, 9)


def test_every_pass_takes_each_task_once_in_an_order_of_its_own():
    first, cursor = next_tasks(0, 7, 0, 7, set())
    second, after = next_tasks(0, 7, cursor, 7, set())
    assert (
        sorted(first) == sorted(second) == list(range(7))
        and first != second
        and (cursor, after) == (7, 14)
    )
    assert next_tasks(0, 7, 0, 7, set()) == (first, 7) and next_tasks(1, 7, 0, 7, set())[0] != first


def test_tasks_that_a_step_has_used_are_passed_over():
    order, _ = next_tasks(0, 7, 0, 7, set())
    tasks, cursor = next_tasks(0, 7, 0, 3, {order[0], order[2]})
    assert tasks == [order[1], order[3], order[4]] and cursor == 5
    tasks, _ = next_tasks(0, 7, 5, 4, set())  # across the end of a pass
    assert len(set(tasks)) == 4


def test_a_pass_takes_the_tasks_that_a_control_leaves_in_its_order() -> None:
    ordered = {0: [5, 3, 1], 1: [1, 5, 3]}.__getitem__
    first, cursor = next_tasks(0, 3, 0, 2, set(), ordered)
    assert (first, next_tasks(0, 3, cursor, 2, set(), ordered)) == (
        [5, 3],
        ([1, 5], 5),
    )  # 1 ends the pass and begins
    assert next_tasks(0, 3, 0, 2, {5}, ordered) == ([3, 1], 3)
