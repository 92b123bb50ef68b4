import math
from statistics import mean, stdev

import pytest

from turngym.training.comparison.results import Mean, mean_of, t_quantile

TABLE = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 7: 2.3646, 10: 2.2281, 29: 2.0452, 120: 1.9799}


@pytest.mark.parametrize("freedom", TABLE)
def test_quantiles_are_those_of_printed_tables(freedom):
    """Two-sided 95 % points of Student's distribution, as in any textbook."""
    assert t_quantile(freedom) == pytest.approx(TABLE[freedom], abs=5e-5)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.99])
def test_one_and_two_degrees_of_freedom_have_closed_forms(confidence):
    assert t_quantile(1, confidence) == pytest.approx(math.tan(math.pi * confidence / 2), rel=1e-9)
    assert t_quantile(2, confidence) == pytest.approx(confidence * math.sqrt(2 / (1 - confidence**2)), rel=1e-9)


def test_many_degrees_of_freedom_come_to_the_normal_distribution():
    assert t_quantile(100_000) == pytest.approx(1.959964, abs=1e-4)


def test_a_mean_has_the_half_width_of_its_interval():
    values = [0.5, 0.75, 0.7]
    found = mean_of(values)
    assert found == Mean(mean(values), pytest.approx(4.30265273 * stdev(values) / math.sqrt(3)), 3)
    assert found.to_json() == {"value": found.value, "half": found.half, "n": 3}


def test_one_value_has_no_interval_and_none_has_no_mean():
    assert mean_of([0.25]) == Mean(0.25, None, 1)
    assert mean_of([]) is None
