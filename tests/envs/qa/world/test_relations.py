from collections import Counter

from turngym.envs.qa.world.relations import RELATIONS, YEAR


def test_every_relation_has_its_wordings():
    assert len(RELATIONS) == 29
    for relation in RELATIONS.values():
        assert len(relation.asks) >= 2 and all(text.count("{x}") == 1 and text.endswith("?") for text in relation.asks)
        assert all(text.count("{x}") == 1 and text.startswith("the ") for text in relation.phrases)
        assert bool(relation.phrases) is (relation.object != YEAR)
        assert all(text.count("{s}") == text.count("{o}") == 1 and text[-1] != "." for text in relation.says)
        assert bool(relation.says) is not bool(relation.inverse)
        assert relation.words and relation.words == relation.words.lower()


def test_no_wording_asks_for_two_things():
    counts = Counter(text for relation in RELATIONS.values() for text in (*relation.asks, *relation.phrases))
    assert counts.most_common(1)[0][1] == 1


def test_an_inverse_turns_its_relation_around_and_comes_behind_it():
    order = list(RELATIONS)
    inverses = [relation for relation in RELATIONS.values() if relation.inverse]
    assert len(inverses) == 7
    for relation in inverses:
        other = RELATIONS[relation.inverse]
        assert (other.subject, other.object, other.inverse) == (relation.object, relation.subject, "")
        assert order.index(other.name) < order.index(relation.name)


def test_a_year_comes_after_the_person_in_whose_life_it_lies():
    order = list(RELATIONS)
    years = [relation for relation in RELATIONS.values() if relation.object == YEAR]
    assert [relation.name for relation in years if not relation.after] == ["born_year"]
    for relation in years[1:]:
        maker = RELATIONS[relation.after]
        assert (maker.subject, maker.object) == (relation.subject, "person")
        assert order.index(maker.name) < order.index(relation.name)


def test_a_query_has_a_word_of_every_sentence_that_answers_it():
    """A question read backwards finds its passage by these words: others name the thing asked about more often."""
    for relation in RELATIONS.values():
        if relation.inverse:
            for says in RELATIONS[relation.inverse].says:
                assert set(relation.words.split()) & set(says.split()), (relation.name, says)
