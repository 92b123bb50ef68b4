"""What the demo shows while two runs learn."""

from turngym.training.comparison.demo import WIDTH, curve, described
from turngym.training.comparison.measure import Measured


def step(success, tool, entropy):
    return Measured(64, tool, None, None, success, None, [entropy, 0.5])


def test_a_curve_goes_from_the_lowest_bar_to_the_highest():
    assert curve([0.0, 0.5, 1.0], 1.0) == "▁▅█"
    assert curve([2.0, -1.0], 1.0) == "█▁"  # held at both ends
    assert len(curve([0.5] * 100, 1.0)) == WIDTH


def test_numbers_are_means_of_the_last_steps_and_stand_in_front():
    steps = [step(0.0, 0.0, 0.7)] + [step(0.5, 0.25, 0.35)] * 5
    assert described(steps).startswith("success 50% p(tool) 25% entropy 0.35  ▁")
    assert described([step(0.5, None, 0.1)]).startswith("success 50% p(tool) 0% entropy 0.10")
