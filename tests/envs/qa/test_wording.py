import re
from collections import Counter

import pytest

from turngym.envs.keyed_random import KeyedRandom
from turngym.envs.qa.facts import NAMESAKE, RELATIONS
from turngym.envs.qa.world import (
    InventedWorld,
    Question,
    parse_question,
    read_facts,
    search_query,
    with_article,
    word_question,
)


def facts_of(graph):
    return {fact for fact in graph.facts() if not RELATIONS[fact[0]].inverse}


def test_all_facts_are_read_back_from_the_passages_and_no_other(small, tiny):
    for world in (small, tiny):
        found = Counter(read_facts("\n".join(passage.text for passage in world.passages)))
        assert set(found) == facts_of(world.graph)
        assert set(found.values()) == {1}


def test_each_passage_states_each_relation_of_its_kind_once(small):
    kinds = {name: kind for kind, names in small.graph.names.items() for name in names}
    for passage in small.passages:
        facts = list(read_facts(passage.text))
        known = [
            relation.name
            for relation in RELATIONS.values()
            if relation.subject == kinds[passage.title]
        ]
        assert sorted(relation for relation, _, _ in facts) == sorted(
            name for name in known if RELATIONS[name].sentences
        )
        for relation, subject, target in facts:
            assert subject == passage.title
            assert with_article(target, RELATIONS[relation].object) in passage.text


def test_a_passage_has_two_to_five_sentences_and_begins_with_its_subject(small):
    lengths = Counter()
    for passage in small.passages:
        sentences = passage.text.split(". ")
        lengths[len(sentences)] += 1
        assert re.match(
            f"(The )?{passage.title} (is|was) an? ", passage.text
        ) and passage.text.endswith(".")
        assert not re.search(r"[{}]|\.\.|  ", passage.text)
    assert set(lengths) <= {3, 4, 5}


def test_brief_passages_are_one_or_two_short_sentences_that_name_their_subject(tiny):
    for passage in tiny.passages:
        sentences = passage.text.removesuffix(".").split(". ")
        assert len(sentences) <= 2 and len(passage.text) <= 100
        assert all(passage.title in sentence for sentence in sentences)


def test_sentences_come_in_all_wordings(small):
    text = " ".join(passage.text for passage in small.passages)
    for relation in RELATIONS.values():
        for says in relation.sentences:
            middle = max(re.split(r"\{[so]\}", says), key=len)
            assert text.count(middle) >= 20, says


def test_passages_are_named_by_kind_and_number(small):
    assert len({passage.id for passage in small.passages}) == len(small.passages) == 3000
    first = small.passages[0]
    assert (first.id, first.title) == ("city-0", small.graph.names["city"][0])
    ids = {passage.title: passage.id for passage in small.passages}
    assert ids[small.graph.names[NAMESAKE][5]] == "namesake-5"


def test_passages_about_namesakes_answer_nothing(small):
    others = [passage.text for passage in small.passages if passage.id.startswith(NAMESAKE)]
    assert len(others) >= 300
    assert list(read_facts("\n".join(others))) == []


def test_what_is_read_of_a_text_as_a_tool_shows_it():
    text = (
        '<information>\nDoc 1(Title: "Zgor Academy") The Zgor Academy is a small organisation. It was founded by Bzi '
        'Lom. It has its seat in Kvu.\nDoc 2(Title: "Bzi Lom") Bzi Lom was a baker. The birthplace of Bzi Lom was '
        "Mzak. She was born in 1604. She was married to Kor…\n</information>"
    )
    assert set(read_facts(text)) == {
        ("founder", "Zgor Academy", "Bzi Lom"),
        ("seat", "Zgor Academy", "Kvu"),
        ("born_in", "Bzi Lom", "Mzak"),
        ("born_year", "Bzi Lom", "1604"),
    }


def test_a_pronoun_without_its_subject_says_nothing():
    assert list(read_facts("She was born in Mzak.\nBzi Lom was a baker.")) == []


def test_the_text_depends_on_the_seed_and_the_name_alone():
    one = InventedWorld(5, "tiny").passages
    assert one == InventedWorld(5, "tiny").passages
    assert [passage.text for passage in one] != [
        passage.text for passage in InventedWorld(6, "tiny").passages
    ]


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
        wordings = {
            word_question(question, KeyedRandom(path, i)) for i in range(20 if hops == 1 else 3)
        } | {word_question(question, None)}
        assert all(parse_question(text) == question for text in wordings)
        if hops == 1:
            assert len(wordings) == len(RELATIONS[path[0]].questions)


def test_questions_as_they_read():
    assert (
        word_question(Question("Zgor Cup", ("winner", "born_in")), None)
        == "Where was the winner of the Zgor Cup born?"
    )
    question = Question("Bzi Lom", ("founded", "seat", "mayor"))
    assert (
        word_question(question, None)
        == "Who was the first mayor of the seat of the organisation that Bzi Lom founded?"
    )


def test_what_stands_inside_must_be_of_the_right_kind():
    assert parse_question("Where was the founder of the Zgor Guild born?") == Question(
        "Zgor Guild", ("founder", "born_in")
    )
    assert parse_question("Where was the seat of the Zgor Guild born?") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Who?",
        "Zgor",
        "Where was born?",
        "Where was zgor born?",
        "Where was Zgor born",
        "So: Who wrote Zgor?",
    ],
)
def test_other_texts_are_no_questions(text):
    assert parse_question(text) is None


def test_a_query_names_the_thing_and_the_relation():
    assert search_query("Bzi Lom", "born_in") == "Bzi Lom birthplace born"
