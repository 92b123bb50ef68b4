"""Fisher's exact test against published figures and against counting every table; power against drawing."""

import math
import random
from itertools import combinations

import pytest

from turngym.agents.evaluation.statistics import (
    Estimate,
    fewest,
    fisher,
    holm,
    mean_of,
    paired_power,
    power,
    t_quantile,
    t_test,
)


def test_fisher_of_known_tables():
    assert fisher(3, 4, 1, 4) == pytest.approx(0.4857142857)  # the lady tasting tea, two-sided
    assert fisher(1, 12, 9, 12) == pytest.approx(0.0027594561852200836)  # R's fisher.test
    for seeds, p in ((3, 0.1), (4, 2 / 70), (5, 2 / 252), (8, 2 / 12870)):
        assert fisher(seeds, seeds, 0, seeds) == fisher(0, seeds, seeds, seeds) == pytest.approx(p)
    assert (
        fisher(0, 8, 0, 8) == fisher(8, 8, 8, 8) == fisher(0, 0, 0, 0) == fisher(2, 2, 0, 0) == 1.0
    )


def test_fisher_counts_which_seeds_could_have_been_the_solved_ones():
    seeds, others = 5, 4
    for won in range(seeds + 1):
        for other in range(others + 1):
            tables = [
                sum(i < seeds for i in solved)
                for solved in combinations(range(seeds + others), won + other)
            ]
            rare = {k for k in set(tables) if tables.count(k) <= tables.count(won)}
            assert fisher(won, seeds, other, others) == pytest.approx(
                sum(k in rare for k in tables) / len(tables)
            )


def test_power_is_how_often_a_difference_is_seen():
    rng = random.Random(0)
    drawn = [
        [sum(rng.random() < share for _ in range(6)) for share in (0.9, 0.2)] for _ in range(4000)
    ]
    seen = sum(fisher(a, 6, b, 6) <= 0.05 for a, b in drawn) / len(drawn)
    assert power(6, 0.9, 0.2) == pytest.approx(seen, abs=0.03)
    assert power(3, 1.0, 0.0) == 0.0  # 3 of 3 against 0 of 3 is p = 0.1
    assert power(4, 1.0, 0.0) == 1.0 and power(8, 0.5, 0.5) < 0.05


def seeds_for(share, other):
    return fewest(lambda seeds: power(seeds, share, other), f"{share} against {other}")


@pytest.mark.slow
def test_seeds_for_an_effect():
    assert seeds_for(1.0, 0.0) == 4
    assert power(seeds_for(0.9, 0.1), 0.9, 0.1) >= 0.8 > power(seeds_for(0.9, 0.1) - 1, 0.9, 0.1)
    with pytest.raises(ValueError, match=r"0\.5 against 0\.5 takes more than 64 seeds"):
        seeds_for(0.5, 0.5)


@pytest.mark.parametrize(
    ("sd", "tests", "seeds"), [(1, 1, 4), (2, 1, 6), (4, 1, 16), (6, 1, 34), (6, 6, 52)]
)
def test_seeds_for_a_difference_of_three_points_are_those_of_tables_of_power(sd, tests, seeds):
    """Two-sided paired t-test, power 80 %."""
    assert fewest(lambda n: paired_power(n, 3, sd, 0.05 / tests), "it") == pytest.approx(
        seeds, abs=1
    )


@pytest.mark.slow
def test_power_of_a_paired_test_is_how_often_a_difference_is_seen():
    rng = random.Random(1)
    for n, effect, sd in ((3, 3.0, 1.5), (8, 1.0, 1.0)):
        drawn = [mean_of(rng.gauss(effect, sd) for _ in range(n)) for _ in range(4000)]
        seen = sum((t_test(mean) or 0) <= 0.05 for mean in drawn) / len(drawn)
        assert paired_power(n, effect, sd) == pytest.approx(seen, abs=0.025)
    assert paired_power(5, 1e-9, 1.0) == pytest.approx(0.05, abs=1e-4)


def test_p_of_a_mean_is_that_of_students_distribution():
    assert t_test(Estimate(1.0, 1.0, 5)) == pytest.approx(
        0.05
    )  # as far from 0 as its interval reaches
    assert t_test(mean_of([1.0, 3.0])) == pytest.approx(
        1 - 2 / 3.141592653589793 * math.atan(2.0)
    )  # Cauchy
    assert t_test(Estimate(2.0, t_quantile(7, 0.95), 8)) == pytest.approx(
        0.0856, abs=2e-4
    )  # printed: t = 2, 7 degrees
    assert t_test(Estimate(0.0, 0.0, 3)) == 1.0 and t_test(Estimate(0.5, 0.0, 3)) == 0.0
    assert t_test(None) is None and t_test(Estimate(0.5, None, 1)) is None


def test_holm_multiplies_each_p_by_the_number_of_those_that_are_left():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "e": None}) == {
        "a": pytest.approx(0.03),
        "b": pytest.approx(0.06),
        "c": pytest.approx(0.06),
        "d": pytest.approx(0.02),
        "e": None,
    }
    assert holm({"a": 0.7, "b": 0.9}) == {"a": 1.0, "b": 1.0} and holm({}) == {}
