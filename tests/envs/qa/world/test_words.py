import gzip
import json
import re
from itertools import islice

import pytest

from turngym.envs.qa.world.words import invented


def first(count, seed=0, syllables=2):
    return list(islice(invented(seed, syllables), count))


def test_all_words_of_two_syllables_are_different():
    words = list(invented(0, 2))
    assert len(words) == len(set(words)) == 2 * (12 * 5) * (16 * 5) * 5
    assert set(words) == set(invented(7, 2))  # a seed decides the order alone


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
        real = {word for line in lines for word in re.findall("[a-z]+", json.loads(line)["text"].lower())}
    assert len(real) > 40_000
    assert real.isdisjoint(word.lower() for word in (*invented(0, 2), *first(50_000, 0, 3)))
