import struct

import pytest

from turngym.training.comparison.picture import draw, entropies, successes
from turngym.training.comparison.results import Entropy, History, MethodResult, Spent, Validation


def history(curve, entropy):
    valid = tuple(Validation(Spent(tokens=tokens), success, 10) for tokens, success in curve)
    return History(valid, valid[-1].spent, {turn: Entropy(values) for turn, values in entropy.items()})


ONE = history([(0, 0.2), (100, 0.4), (200, 0.8)], {0: {1: 0.5, 2: 0.25}, 1: {2: 0.125}})
OTHER = history([(0, 0.4), (150, 0.5)], {0: {1: 0.75, 2: 0.25, 3: 0.5}})


def test_success_is_linear_between_validations_and_a_run_keeps_its_last():
    assert successes([ONE, OTHER]) == [
        (0.0, 0.2, pytest.approx(0.3), 0.4),
        (100.0, 0.4, pytest.approx((0.4 + 0.4 + 0.1 * 2 / 3) / 2), pytest.approx(0.4 + 0.1 * 2 / 3)),
        (150.0, 0.5, pytest.approx(0.55), pytest.approx(0.6)),
        (200.0, 0.5, pytest.approx(0.65), 0.8),
    ]
    assert successes([]) == []


def test_entropy_of_a_step_is_of_the_seeds_that_came_so_far():
    assert entropies([ONE, OTHER], 0) == [(1.0, 0.5, 0.625, 0.75), (2.0, 0.25, 0.25, 0.25), (3.0, 0.5, 0.5, 0.5)]
    assert entropies([ONE, OTHER], 1) == [(2.0, 0.125, 0.125, 0.125)]


@pytest.mark.parametrize("count", [1, 4])
def test_a_picture_has_a_row_for_every_three_methods(tmp_path, count):
    histories = {0: ONE, 1: OTHER}
    found = {f"m{number}": MethodResult(histories, {}, None, {}, 0) for number in range(count)}
    draw({**found, "none": MethodResult({}, {0: "not begun"}, None, {}, 0)}, tmp_path / "x.png")
    data = (tmp_path / "x.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (width, height) == (1430, int((4.2 + 2.6 * -(-(count + 1) // 3)) * 130))
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
