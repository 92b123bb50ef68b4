from dataclasses import replace

import pytest

from turngym.tests.verify.grader.predicates import Seen, check_known, holds

PAID = Seen(
    score=1.0, turns=1, calls=2, most_calls=4, next_ok=True, cut=True, error=True, refused=True
)


@pytest.mark.parametrize(
    ("predicate", "change"),
    [
        ("reward=1", {"score": 0.0}),
        ("reward=1 when a box is required", {"score": None}),
        ("reward=any", {"raised": "ValueError: x"}),
        ("stable", {"score": 0.0}),
        ("rejected_gold", {"refused": False}),
        ("deadline", {"seconds": 5.01}),
        ("no_crash", {"raised": "RecursionError"}),
        ("next_ok", {"next_ok": False}),
        ("no_exec", {"executed": ["exec"]}),
        ("fs_clean", {"files": ["new"]}),
        ("calls_run=2", {"calls": 1}),
        ("calls_run<=2", {"calls": 3}),
        ("calls_run<=max_calls", {"calls": 5}),
        ("cut_after_first_call", {"cut": False}),
        ("turns=1", {"turns": None}),
        ("no_control_ids_from_text", {"control": 1}),
        ("error_observed", {"error": False}),
        ("limits_unchanged", {"limits": False}),
    ],
)
def test_a_predicate_holds_only_where_all_processes_saw_it(predicate, change):
    check_known("a", predicate)
    assert holds(predicate, [PAID, PAID, PAID])
    assert not holds(predicate, [PAID, replace(PAID, **change), PAID])
    assert not holds(predicate, [])


def test_what_is_the_same_and_was_raised_is_not_stable():
    assert not holds("stable", [Seen(raised="x")] * 3)
    assert not holds("stable", [PAID, replace(PAID, calls=1)])


@pytest.mark.parametrize(
    "predicate", ["reward=some", "blocked", "no_crash now", "calls_run=", "calls_run<2", ""]
)
def test_an_unknown_predicate_is_named(predicate):
    with pytest.raises(
        ValueError, match=rf"row-7: unknown predicate '{predicate}'; known are reward, stable, "
    ):
        check_known("row-7", predicate)
    assert not holds(predicate, [PAID])
