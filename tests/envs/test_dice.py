from collections import Counter

from turngym.envs.dice import Dice


def test_the_key_alone_decides_the_draws():
    a, b = Dice(3, 5, "train"), Dice(3, 5, "train")
    draws = [a.roll(0, 10**6) for _ in range(50)]
    assert draws == [b.roll(0, 10**6) for _ in range(50)]
    assert draws[:3] == [923325, 351424, 675742]
    assert len(set(draws)) == 50


def test_keys_that_read_alike_are_different_keys():
    keys = [(1, 23), (12, 3), ("1", 23), (1, 2, 3), (123,)]
    assert len({Dice(*key).roll(0, 2**60) for key in keys}) == len(keys)


def test_rolls_reach_both_ends_evenly():
    counts = Counter(Dice(i).roll(-2, 3) for i in range(6000))
    assert sorted(counts) == [-2, -1, 0, 1, 2, 3]
    # Chi-squared with 5 degrees of freedom: 20.5 is passed once in a thousand keys; these are fixed.
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 20.5


def test_successive_draws_are_independent():
    pairs = Counter()
    for i in range(6400):
        dice = Dice("pairs", i)
        pairs[dice.pick("abcd"), dice.roll(0, 3)] += 1
    assert len(pairs) == 16
    assert sum((count - 400) ** 2 / 400 for count in pairs.values()) < 37.7  # 15 degrees, once in a thousand


def test_nonzero_never_gives_zero():
    assert {Dice(i).nonzero(3) for i in range(200)} == {-3, -2, -1, 1, 2, 3}


def test_a_shuffled_order_holds_each_item_once_and_every_order_comes_alike():
    orders = Counter("".join(Dice("order", i).shuffled("abc")) for i in range(6000))
    assert len(orders) == 6 and all("".join(sorted(order)) == "abc" for order in orders)
    assert sum((count - 1000) ** 2 / 1000 for count in orders.values()) < 20.5
    assert Dice(1).shuffled([]) == []
