import pytest

from turngym.envs.qa.world.questions import Question, ask, parse, query
from turngym.envs.qa.world.relations import RELATIONS
from turngym.envs.tasks import KeyedRandom


def paths(hops):
    """All ways to put relations behind one another."""
    if hops == 1:
        return [(name,) for name in RELATIONS]
    return [
        (*path, name)
        for path in paths(hops - 1)
        for name, relation in RELATIONS.items()
        if RELATIONS[path[-1]].object == relation.subject
    ]


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_every_question_is_understood_whatever_its_wording(hops):
    ways = paths(hops)
    assert len(ways) >= (29, 120, 470)[hops - 1]
    for path in ways:
        question = Question("Zgor Lom" if hops % 2 else "Zgor", path)
        wordings = {ask(question, KeyedRandom(path, i)) for i in range(20 if hops == 1 else 3)} | {ask(question, None)}
        assert all(parse(text) == question for text in wordings)
        if hops == 1:
            assert len(wordings) == len(RELATIONS[path[0]].asks)


def test_questions_as_they_read():
    assert ask(Question("Zgor Cup", ("winner", "born_in")), None) == "Where was the winner of the Zgor Cup born?"
    question = Question("Bzi Lom", ("founded", "seat", "mayor"))
    assert ask(question, None) == "Who was the first mayor of the seat of the organisation that Bzi Lom founded?"


def test_what_stands_inside_must_be_of_the_right_kind():
    assert parse("Where was the founder of the Zgor Guild born?") == Question("Zgor Guild", ("founder", "born_in"))
    assert parse("Where was the seat of the Zgor Guild born?") is None


@pytest.mark.parametrize(
    "text",
    ["", "Who?", "Zgor", "Where was born?", "Where was zgor born?", "Where was Zgor born", "So: Who wrote Zgor?"],
)
def test_other_texts_are_no_questions(text):
    assert parse(text) is None


def test_a_query_names_the_thing_and_the_relation():
    assert query("Bzi Lom", "born_in") == "Bzi Lom birthplace born"
