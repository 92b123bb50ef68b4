import gzip
import json
import re
from collections import Counter
from itertools import islice

import pytest

from turngym.envs.qa.facts import (
    NAMESAKE,
    NOUNS,
    RELATIONS,
    REUSE,
    SIZES,
    YEAR,
    build_graph,
    invent_names,
    invent_words,
)
from turngym.envs.qa.grader import normalise_text


@pytest.fixture(scope="module", params=["tiny", "small"])
def graph(request):
    return build_graph(0, SIZES[request.param])


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
    graph = build_graph(0, SIZES["small"])
    born = graph.objects["born_year"]
    assert all(abs(int(born[a]) - int(born[b])) <= 25 for a, b in graph.objects["spouse"].items())
    for relation in graph.relations:
        for name, year in graph.objects[relation.name].items() if relation.maker else ():
            assert 20 <= int(year) - int(born[graph.objects[relation.maker][name]]) <= 70


def test_a_relation_is_followed_backwards_only_to_one_thing_alone():
    graph = build_graph(0, SIZES["small"])
    wrote = Counter(graph.objects["author"].values())
    assert {1, 2} <= set(wrote.values())
    for person in graph.names["person"]:
        book = graph.follow("wrote", person)
        assert (book is None) is (wrote[person] != 1)
        if book is not None:
            assert graph.objects["author"][book] == person and graph.follow_back("wrote", book) == [
                person
            ]
    several = next(person for person, count in wrote.items() if count == 2)
    books = graph.follow_back("author", several)
    assert len(books) == 2 and all(graph.follow_back("wrote", book) == [] for book in books)
    assert (
        graph.follow("born_in", books[0]) is None and graph.follow_back("born_in", books[0]) == []
    )


def test_facts_are_all_that_can_be_asked(graph):
    facts = list(graph.facts())
    assert len(set(facts)) == len(facts)
    assert {relation for relation, _, _ in facts} == {relation.name for relation in graph.relations}
    told = {name: known for name, known in graph.objects.items() if not RELATIONS[name].inverse}
    forward = {(relation, *fact) for relation, known in told.items() for fact in known.items()}
    assert forward <= set(facts)
    for relation, subject, target in set(facts) - forward:
        assert (RELATIONS[relation].inverse, target, subject) in forward


def test_what_is_reached_in_so_many_steps(graph):
    leads = {(subject, target) for _, subject, target in graph.facts()}
    subjects = {subject for subject, _ in leads}
    zero, one, two = graph.reachable_names(3)
    assert zero == subjects
    assert one == {target for _, target in leads}
    assert two == {target for subject, target in leads if subject in one} < one


def test_a_seed_chooses_the_facts():
    tiny = SIZES["tiny"]
    assert build_graph(3, tiny) == build_graph(3, tiny)
    one, other = build_graph(3, tiny), build_graph(4, tiny)
    assert one.names["person"] != other.names["person"]


def test_sizes():
    totals = {name: sum(size.counts.values()) for name, size in SIZES.items()}
    assert totals == {"tiny": 1_000, "small": 3_000, "medium": 20_000, "large": 100_000}
    assert all(size.counts["person"] % 2 == 0 for size in SIZES.values())


@pytest.fixture(scope="module", params=SIZES)
def named(request):
    size = SIZES[request.param]
    return size, invent_names(0, size.counts, 2 if size.brief else 3)


def test_there_are_as_many_names_as_asked_for_and_no_two_are_the_same(named):
    size, names = named
    assert {kind: len(of_kind) for kind, of_kind in names.items()} == size.counts
    every = [normalise_text(name) for of_kind in names.values() for name in of_kind]
    assert len(set(every)) == len(every) == sum(size.counts.values())


def test_no_name_is_part_of_another(named):
    """A word that is a name is no word of a longer one; those of two words differ, so none holds another."""
    _, names = named
    asked = [name for kind, of_kind in names.items() if kind != NAMESAKE for name in of_kind]
    assert {len(name.split()) for name in asked} == {1, 2}
    alone = {name for name in asked if " " not in name}
    assert alone.isdisjoint(word for name in asked if " " in name for word in name.split())


def test_names_survive_the_grader_s_normalisation(named):
    _, names = named
    for of_kind in names.values():
        for name in of_kind[:500]:
            assert normalise_text(f"The {name}.") == name.lower()


def test_many_names_share_a_word(named):
    _, names = named
    for kind in ("person", "book"):
        firsts, seconds = zip(*(name.split() for name in names[kind]), strict=True)
        assert (
            min(Counter(firsts).values()) >= 2
            and max(Counter(firsts).values()) <= 8
            and max(Counter(seconds).values()) <= 8
        )
        assert min(Counter(seconds).values()) >= 2
    others = {
        word
        for kind, of_kind in names.items()
        if kind != NAMESAKE
        for name in of_kind
        for word in name.split()
    }
    assert all(
        name.split()[0] in others and name.split()[1] in NOUNS[NAMESAKE] for name in names[NAMESAKE]
    )


def test_a_seed_chooses_the_names():
    counts = {"city": 20, "person": 40}
    assert invent_names(1, counts, 3) == invent_names(1, counts, 3)
    assert set(invent_names(1, counts, 3)["city"]).isdisjoint(invent_names(2, counts, 3)["city"])


def test_every_relation_has_its_wordings():
    assert len(RELATIONS) == 29
    for relation in RELATIONS.values():
        assert len(relation.questions) >= 2 and all(
            text.count("{x}") == 1 and text.endswith("?") for text in relation.questions
        )
        assert all(
            text.count("{x}") == 1 and text.startswith("the ") for text in relation.descriptions
        )
        assert bool(relation.descriptions) is (relation.object != YEAR)
        assert all(
            text.count("{s}") == text.count("{o}") == 1 and text[-1] != "."
            for text in relation.sentences
        )
        assert bool(relation.sentences) is not bool(relation.inverse)
        assert relation.search_words and relation.search_words == relation.search_words.lower()


def test_no_wording_asks_for_two_things():
    counts = Counter(
        text
        for relation in RELATIONS.values()
        for text in (*relation.questions, *relation.descriptions)
    )
    assert counts.most_common(1)[0][1] == 1


def test_an_inverse_turns_its_relation_around_and_comes_behind_it():
    order = list(RELATIONS)
    inverses = [relation for relation in RELATIONS.values() if relation.inverse]
    assert len(inverses) == 7
    for relation in inverses:
        other = RELATIONS[relation.inverse]
        assert (other.subject, other.object, other.inverse) == (
            relation.object,
            relation.subject,
            "",
        )
        assert order.index(other.name) < order.index(relation.name)


def test_a_year_comes_after_the_person_in_whose_life_it_lies():
    order = list(RELATIONS)
    years = [relation for relation in RELATIONS.values() if relation.object == YEAR]
    assert [relation.name for relation in years if not relation.maker] == ["born_year"]
    for relation in years[1:]:
        maker = RELATIONS[relation.maker]
        assert (maker.subject, maker.object) == (relation.subject, "person")
        assert order.index(maker.name) < order.index(relation.name)


def test_a_query_has_a_word_of_every_sentence_that_answers_it():
    """A question read backwards finds its passage by these words: others name the thing asked about more often."""
    for relation in RELATIONS.values():
        if relation.inverse:
            for says in RELATIONS[relation.inverse].sentences:
                assert set(relation.search_words.split()) & set(says.split()), (relation.name, says)


def first(count, seed=0, syllables=2):
    return list(islice(invent_words(seed, syllables), count))


def test_all_words_of_two_syllables_are_different():
    words = list(invent_words(0, 2))
    assert len(words) == len(set(words)) == 2 * (12 * 5) * (16 * 5) * 5
    assert set(words) == set(invent_words(7, 2))  # a seed decides the order alone


def test_the_words_are_the_same_on_every_machine():
    assert first(4, 1) == ["Zbubin", "Jagzuk", "Zrihe", "Vokzon"]
    assert first(4, 1, 3) == ["Gvesurok", "Nokveran", "Kepuvzi", "Gzikunun"]


@pytest.mark.parametrize("syllables", [2, 3])
def test_a_word_has_its_syllables_and_one_rare_cluster(syllables):
    words = first(20_000, 3, syllables)
    assert len(set(words)) == 20_000
    for word in words[:2000]:
        assert re.fullmatch("[A-Z][a-z]+", word)
        assert len(re.findall("[aeiou]", word)) == syllables
        assert len(re.findall("[^aeiou]{2}", word.lower())) == 1
    assert len({word[0] for word in words[:2000]}) >= 16


def test_words_of_two_and_three_syllables_are_never_the_same():
    assert set(first(48_000)).isdisjoint(first(48_000, 0, 3))


def test_no_word_is_one_of_an_encyclopedia(shared_data):
    with gzip.open(shared_data / "search_qa" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        real = {
            word
            for line in lines
            for word in re.findall("[a-z]+", json.loads(line)["text"].lower())
        }
    assert len(real) > 40_000
    assert real.isdisjoint(word.lower() for word in (*invent_words(0, 2), *first(50_000, 0, 3)))
