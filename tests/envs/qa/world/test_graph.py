from collections import Counter

import pytest

from turngym.envs.qa.world.graph import REUSE, SIZES, build
from turngym.envs.qa.world.relations import RELATIONS, YEAR


@pytest.fixture(scope="module", params=["tiny", "small"])
def graph(request):
    return build(0, SIZES[request.param])


def test_every_thing_has_each_relation_of_its_kind_with_a_thing_of_the_right_kind(graph):
    for relation in graph.relations:
        if relation.inverse:
            continue
        facts = graph.objects[relation.name]
        assert sorted(facts) == sorted(graph.names[relation.subject])
        if relation.object == YEAR:
            assert all(year.isdecimal() and len(year) == 4 for year in facts.values())
        else:
            assert set(facts.values()) <= set(graph.names[relation.object])


def test_no_object_is_a_better_guess_than_another(graph):
    for relation in graph.relations:
        if relation.inverse or relation.name == "capital":
            continue
        facts = graph.objects[relation.name]
        counts = Counter(facts.values())
        if relation.object == YEAR:
            assert max(counts.values()) <= max(4, 0.02 * len(facts))
        else:
            assert max(counts.values()) - min(counts.values()) <= 1
            assert max(counts.values()) / len(facts) <= 0.02
            assert relation.name == "spouse" or len(counts) <= round(REUSE * len(facts))


def test_couples_and_capitals_are_consistent(graph):
    spouse = graph.objects["spouse"]
    assert all(spouse[spouse[name]] == name != spouse[name] for name in spouse)
    for country, capital in graph.objects.get("capital", {}).items():
        assert graph.objects["country"][capital] == country


def test_what_a_person_did_lies_in_the_person_s_life():
    graph = build(0, SIZES["small"])
    born = graph.objects["born_year"]
    assert all(abs(int(born[a]) - int(born[b])) <= 25 for a, b in graph.objects["spouse"].items())
    for relation in graph.relations:
        for name, year in graph.objects[relation.name].items() if relation.after else ():
            assert 20 <= int(year) - int(born[graph.objects[relation.after][name]]) <= 70


def test_a_relation_is_followed_backwards_only_to_one_thing_alone():
    graph = build(0, SIZES["small"])
    wrote = Counter(graph.objects["author"].values())
    assert {1, 2} <= set(wrote.values())
    for person in graph.names["person"]:
        book = graph.follow("wrote", person)
        assert (book is None) is (wrote[person] != 1)
        if book is not None:
            assert graph.objects["author"][book] == person and graph.leading("wrote", book) == [person]
    several = next(person for person, count in wrote.items() if count == 2)
    books = graph.leading("author", several)
    assert len(books) == 2 and all(graph.leading("wrote", book) == [] for book in books)
    assert graph.follow("born_in", books[0]) is None and graph.leading("born_in", books[0]) == []


def test_facts_are_all_that_can_be_asked(graph):
    facts = list(graph.facts())
    assert len(set(facts)) == len(facts)
    assert {relation for relation, _, _ in facts} == {relation.name for relation in graph.relations}
    forward = {(relation, *fact) for relation, known in graph.objects.items() for fact in known.items()}
    assert forward <= set(facts)
    for relation, subject, target in set(facts) - forward:
        assert (RELATIONS[relation].inverse, target, subject) in forward


def test_what_is_reached_in_so_many_steps(graph):
    leads = {(subject, target) for _, subject, target in graph.facts()}
    subjects = {subject for subject, _ in leads}
    zero, one, two = graph.reached(3)
    assert zero == subjects
    assert one == {target for _, target in leads}
    assert two == {target for subject, target in leads if subject in one} < one


def test_a_seed_chooses_the_facts():
    tiny = SIZES["tiny"]
    assert build(3, tiny) == build(3, tiny)
    one, other = build(3, tiny), build(4, tiny)
    assert one.names["person"] != other.names["person"]


def test_sizes():
    totals = {name: sum(size.counts.values()) for name, size in SIZES.items()}
    assert totals == {"tiny": 1_000, "small": 3_000, "medium": 20_000, "large": 100_000}
    assert all(size.counts["person"] % 2 == 0 for size in SIZES.values())
