from collections import Counter

import pytest

from turngym.envs.qa.grade import normalise
from turngym.envs.qa.world.graph import SIZES
from turngym.envs.qa.world.names import NAMESAKE, NOUNS, name_all


@pytest.fixture(scope="module", params=SIZES)
def named(request):
    size = SIZES[request.param]
    return size, name_all(0, size.counts, 2 if size.brief else 3)


def test_there_are_as_many_names_as_asked_for_and_no_two_are_the_same(named):
    size, names = named
    assert {kind: len(of_kind) for kind, of_kind in names.items()} == size.counts
    every = [normalise(name) for of_kind in names.values() for name in of_kind]
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
            assert normalise(f"The {name}.") == name.lower()


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
    others = {word for kind, of_kind in names.items() if kind != NAMESAKE for name in of_kind for word in name.split()}
    assert all(name.split()[0] in others and name.split()[1] in NOUNS[NAMESAKE] for name in names[NAMESAKE])


def test_a_seed_chooses_the_names():
    counts = {"city": 20, "person": 40}
    assert name_all(1, counts, 3) == name_all(1, counts, 3)
    assert set(name_all(1, counts, 3)["city"]).isdisjoint(name_all(2, counts, 3)["city"])
