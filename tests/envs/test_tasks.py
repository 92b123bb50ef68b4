from collections import Counter

import numpy as np
import pytest

from turngym.envs.keyed_random import KeyedRandom
from turngym.envs.splits import text_share
from turngym.envs.tasks import ListTasks, Task, check_choices, choose_index


def test_the_key_alone_decides_the_draws():
    a, b = KeyedRandom(3, 5, "train"), KeyedRandom(3, 5, "train")
    draws = [a.integer(0, 10**6) for _ in range(50)]
    assert draws == [b.integer(0, 10**6) for _ in range(50)]
    assert draws[:3] == [923325, 351424, 675742]
    assert len(set(draws)) == 50


def test_keys_that_read_alike_are_different_keys():
    keys = [(1, 23), (12, 3), ("1", 23), (1, 2, 3), (123,)]
    assert len({KeyedRandom(*key).integer(0, 2**60) for key in keys}) == len(keys)


def test_rolls_reach_both_ends_evenly():
    counts = Counter(KeyedRandom(i).integer(-2, 3) for i in range(6000))
    assert sorted(counts) == [-2, -1, 0, 1, 2, 3]
    # Chi-squared with 5 degrees of freedom: 20.5 is passed once in a thousand keys; these are fixed.
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 20.5


def test_successive_draws_are_independent():
    pairs = Counter()
    for i in range(6400):
        rng = KeyedRandom("pairs", i)
        pairs[rng.choice("abcd"), rng.integer(0, 3)] += 1
    assert len(pairs) == 16
    assert (
        sum((count - 400) ** 2 / 400 for count in pairs.values()) < 37.7
    )  # 15 degrees, once in a thousand


def test_nonzero_never_gives_zero():
    assert {KeyedRandom(i).nonzero(3) for i in range(200)} == {-3, -2, -1, 1, 2, 3}


def test_a_shuffled_order_holds_each_item_once_and_every_order_comes_alike():
    orders = Counter("".join(KeyedRandom("order", i).shuffled("abc")) for i in range(6000))
    assert len(orders) == 6 and all("".join(sorted(order)) == "abc" for order in orders)
    assert sum((count - 1000) ** 2 / 1000 for count in orders.values()) < 20.5
    assert KeyedRandom(1).shuffled([]) == []


def test_a_task_does_not_show_its_gold_or_solution():
    shown = repr(Task("t", "How much?", "4711", "print(4700+11)"))
    assert shown == "Task(id='t', prompt='How much?')"


def test_list_tasks_are_read_by_index_and_refuse_any_other():
    tasks = ListTasks([Task("a", "?", "1"), Task("b", "?", "2")], "two", "valid")
    assert (len(tasks), tasks.name, tasks.split, tasks[1].id) == (2, "two", "valid", "b")
    for i in (-1, 2):
        with pytest.raises(IndexError, match=f"task {i} of two: there are tasks 0 to 1"):
            tasks[i]
    with pytest.raises(ValueError, match="empty has no tasks"):
        ListTasks([], "empty")
    with pytest.raises(ValueError, match="split is 'tset'; the splits are train, valid, test"):
        ListTasks([Task("a", "?", "1")], split="tset")


def test_text_shares_are_uniform_and_fixed():
    shares = sorted(text_share(f"text {i}") for i in range(2000))
    assert all(abs(share - i / 2000) < 0.05 for i, share in enumerate(shares))
    assert text_share("What is 2 + 2?") == 0.9151918068116884


def test_a_task_has_all_its_right_answers_and_shows_none():
    task = Task("t", "How much?", "4711", aliases=("4 711",))
    assert task.golds == ("4711", "4 711") and repr(task) == "Task(id='t', prompt='How much?')"


def test_an_option_of_reset_chooses_a_task_and_leaves_the_generator_where_a_drawn_one_does():
    tasks = ListTasks([Task(str(i), "?", "1") for i in range(5)], "toys")
    one, two = np.random.default_rng(0), np.random.default_rng(0)
    drawn = [choose_index(one, {}, tasks) for _ in range(40)]
    assert set(drawn) == set(range(5)) and choose_index(two, {"task": 4}, tasks) == 4
    assert [choose_index(two, {}, tasks) for _ in range(39)] == drawn[1:]


@pytest.mark.parametrize("index", [-1, 5, 2.0, "2", None, True, np.int64(2)])
def test_an_option_of_reset_that_is_no_task_is_refused(index):
    tasks, rng = (
        ListTasks([Task(str(i), "?", "1") for i in range(5)], "toys"),
        np.random.default_rng(0),
    )
    with pytest.raises(ValueError) as caught:
        choose_index(rng, {"task": index}, tasks)
    assert (
        str(caught.value)
        == f"options['task'] is {index!r}; choose an int from 0 to 4, a task of toys"
    )
    with pytest.raises(ValueError, match="reset has no option 'tsak'; its one option is 'task'"):
        choose_index(rng, {"tsak": 3}, tasks)


def test_choices_are_one_or_several_and_the_wrong_ones_are_named():
    assert check_choices("size", 2, (1, 2)) == (2,) and check_choices(
        "size", [2, 1, 2], (1, 2)
    ) == (1, 2)
    for wrong in (3, (1, 3), (), "2", 1.5):
        with pytest.raises(ValueError) as caught:
            check_choices("size", wrong, (1, 2))
        assert str(caught.value) == f"size is {wrong!r}; choose one or several of 1, 2"
