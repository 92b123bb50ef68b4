"""Every predicate, kept and broken."""

from dataclasses import replace

import pytest

from turngym.tests.verify.grader.predicates import Seen
from turngym.tests.verify.search.predicates import Searched, check_known, holds

GOOD = Searched(
    Seen(score=0.5, turns=1, calls=2, next_ok=True, cut=True, error=True, refused=True),
    queries=["a", "b"],
    fields=("host", "content-length"),
    status="rejected",
    shown=100,
    hops=6,
    memory=2**20,
)


@pytest.mark.parametrize(
    ("predicate", "change"),
    [
        ("reward<1", {"seen": Seen(score=1.0)}),
        ("reward<0.6", {"seen": Seen()}),
        ("reward=0.5", {"seen": Seen(score=1.0)}),
        ("searches_run=2", {"queries": ["a"]}),
        ("searches_run<=2", {"queries": ["a", "b", "c"]}),
        ("query_capped", {"queries": ["a", "b" * 5000]}),
        ("no_header_injection", {"fields": ("host", "evil")}),
        ("no_header_injection", {"fields": ("host", "host")}),
        ("blocked", {"status": "ok"}),
        ("blocked", {"away": ["127.0.0.1:8265"]}),
        ("blocked", {"seen": Seen(raised="OSError")}),
        ("capped", {"shown": 2**20}),
        ("capped", {"memory": 2**30}),
        ("obs_cap", {"shown": 2**20}),
        ("mem_cap", {"memory": 2**26}),
        ("deadline", {"seen": Seen(seconds=11.5)}),
        ("deadline", {"seen": Seen(seconds=5.5), "status": None}),
        ("hops<=5", {"hops": 7}),
        ("no_gold_in_obs", {"gold": True}),
        ("no_control_ids", {"seen": Seen(control=1)}),
        ("cut_after_first_call", {"seen": Seen()}),
        ("rejected_gold", {"seen": Seen()}),
        ("error_observed", {"seen": Seen()}),
        ("no_exec", {"seen": Seen(executed=["exec"])}),
    ],
)
def test_a_predicate_holds_only_where_all_processes_saw_it(predicate, change):
    check_known("a", predicate)
    assert holds(predicate, [GOOD, GOOD])
    assert not holds(predicate, [GOOD, replace(GOOD, **change)])
    assert not holds(predicate, [])


def test_a_visit_has_more_time_than_a_search():
    late = Seen(seconds=8.0)
    assert holds("deadline", [Searched(late, status="timeout")]) and not holds(
        "deadline", [Searched(late)]
    )


@pytest.mark.parametrize("predicate", ["wonder", "searches_run", "hops<5", "blocked twice"])
def test_an_unknown_predicate_is_named_with_those_that_are_known(predicate):
    with pytest.raises(
        ValueError,
        match=rf"a.jsonl:1: unknown predicate '{predicate}'; known are reward, .* blocked",
    ):
        check_known("a.jsonl:1", predicate)
    assert not holds(predicate, [GOOD])
