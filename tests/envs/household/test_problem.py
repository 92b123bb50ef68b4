import pytest

from turngym.envs.household.problem import parse_problem, typed

TEXT = """(define (problem P) (:domain alfred) ; a comment with ( in it
  (:objects agent1 - agent Mug_1 Cup_1 - object  thing)
  (:init (= (total-cost) 0) (holds agent1 MUG_1) (isHot cup_1) (isHot cup_1))
  (:goal (and (exists (?o - object) (isHot ?o)))))"""


def test_a_problem_is_read_in_lower_case():
    problem = parse_problem(TEXT)
    assert problem.types == {"agent1": "agent", "mug_1": "object", "cup_1": "object", "thing": "object"}
    assert problem.facts == {("holds", "agent1", "mug_1"), ("ishot", "cup_1")}
    assert problem.goal == ["and", ["exists", ["?o", "-", "object"], ["ishot", "?o"]]]
    assert problem.by_predicate == {"holds": [("agent1", "mug_1")], "ishot": [("cup_1",)]}


def test_typed_lists():
    assert typed(["?a", "?b", "-", "object", "?r", "-", "receptacle"]) == [
        ("?a", "object"),
        ("?b", "object"),
        ("?r", "receptacle"),
    ]
    with pytest.raises(ValueError, match="an expression in a list of names"):
        typed(["?a", ["b"]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not one PDDL expression"),
        ("(define", "does not close its parentheses"),
        ("(define))", "closes a parenthesis that it did not open"),
        ("(problem)", "does not begin with"),
        ("define", "does not begin with"),
        ("(define (:objects) (:init))", "has no :goal"),
        ("(define (:objects) (:init) (:goal))", "not one expression"),
        ("(define (:objects) (:init x) (:goal x))", "where a fact should be"),
        ("(define (:objects) (:init (not (x))) (:goal x))", "no plain fact"),
        ("(define (:objects (a)) (:init) (:goal x))", "an expression in a list of names"),
    ],
)
def test_what_is_no_problem_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse_problem(text)
