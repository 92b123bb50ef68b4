"""Fisher's exact test against published figures and against counting every table; power against drawing."""

import random
from itertools import combinations

import pytest

from turngym.training.comparison.exact import fisher, power, seeds_for


def test_fisher_of_known_tables():
    assert fisher(3, 4, 1, 4) == pytest.approx(0.4857142857)  # the lady tasting tea, two-sided
    assert fisher(1, 12, 9, 12) == pytest.approx(0.0027594561852200836)  # R's fisher.test
    for seeds, p in ((3, 0.1), (4, 2 / 70), (5, 2 / 252), (8, 2 / 12870)):
        assert fisher(seeds, seeds, 0, seeds) == fisher(0, seeds, seeds, seeds) == pytest.approx(p)
    assert fisher(0, 8, 0, 8) == fisher(8, 8, 8, 8) == fisher(0, 0, 0, 0) == fisher(2, 2, 0, 0) == 1.0


def test_fisher_counts_which_seeds_could_have_been_the_solved_ones():
    seeds, others = 5, 4
    for won in range(seeds + 1):
        for other in range(others + 1):
            tables = [sum(i < seeds for i in solved) for solved in combinations(range(seeds + others), won + other)]
            rare = {k for k in set(tables) if tables.count(k) <= tables.count(won)}
            assert fisher(won, seeds, other, others) == pytest.approx(sum(k in rare for k in tables) / len(tables))


def test_power_is_how_often_a_difference_is_seen():
    rng = random.Random(0)
    drawn = [[sum(rng.random() < share for _ in range(6)) for share in (0.9, 0.2)] for _ in range(4000)]
    seen = sum(fisher(a, 6, b, 6) <= 0.05 for a, b in drawn) / len(drawn)
    assert power(6, 0.9, 0.2) == pytest.approx(seen, abs=0.03)
    assert power(3, 1.0, 0.0) == 0.0  # 3 of 3 against 0 of 3 is p = 0.1
    assert power(4, 1.0, 0.0) == 1.0 and power(8, 0.5, 0.5) < 0.05


def test_seeds_for_an_effect():
    assert seeds_for(1.0, 0.0) == 4
    assert power(seeds_for(0.9, 0.1), 0.9, 0.1) >= 0.8 > power(seeds_for(0.9, 0.1) - 1, 0.9, 0.1)
    with pytest.raises(ValueError, match=r"0\.5 against 0\.5 takes more than 64 seeds"):
        seeds_for(0.5, 0.5)
