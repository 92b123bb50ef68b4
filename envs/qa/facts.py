"""The facts of the invented world: its names, and who was born where, who founded what and when.

`build_graph` makes the names (`invent_names`) and draws the facts between them, a relation after
the other (`_draw_objects`). The relations, with all their wordings, are in `relations.toml`.

All words are invented: each has a cluster of letters that hardly any real word has. Many names
share a word, so a search for a name finds others as well, but no name that is asked for is part of
another.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ..keyed_random import KeyedRandom

WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
NOUNS: dict[str, list[str]] = WORDS["nouns"]  # the second words of names, by kind
# A kind of sights that share a word with another name, so that a search finds them as well; nothing
# is asked about them.
NAMESAKE = "namesake"
# The article in front of a name in a sentence, for the kinds that have one.
ARTICLES = {"organisation": "the ", "event": "the ", NAMESAKE: "the "}

# In place of a kind: the object of a relation is a year of four digits.
YEAR = "year"
# The names of the relations that have rules of their own in `_draw_objects`.
SPOUSE = "spouse"
CAPITAL = "capital"
COUNTRY = "country"


@dataclass(frozen=True)
class Relation:
    """A relation, which leads from each thing of a kind to at most one other thing, or a year.

    Args:
        name: Its name in `relations.toml`.
        subject: The kind of thing that it leads from.
        object: The kind of thing that it leads to, or `YEAR`.
        search_words: What to search for beside the subject's name.
        questions: Questions for the object; `{x}` is the subject.
        descriptions: How a longer question names the object, by the subject `{x}`. None of years,
            about which no question goes on.
        sentences: Sentences of the subject's passage, with the subject `{s}` and the object `{o}`.
            None of an inverse relation, which the passages of the other one state.
        inverse: The relation that this one reads backwards: it leads from a thing to the one thing
            that leads there, and nowhere if there are several.
        maker: The relation from the subject to the person in whose lifetime the year lies.
    """

    name: str
    subject: str
    object: str
    search_words: str
    questions: Sequence[str]
    descriptions: Sequence[str] = ()
    sentences: Sequence[str] = ()
    inverse: str = ""
    maker: str = ""


_ROWS = tomllib.loads(Path(__file__).with_name("relations.toml").read_text("utf-8"))
RELATIONS = {name: Relation(name, **row) for name, row in _ROWS.items()}


@dataclass(frozen=True)
class WorldSize:
    """How large a world is.

    Args:
        counts: The number of things of each kind; that of persons is even, for all are married.
        relations: The names of the relations; an inverse comes behind the relation that it reads.
        brief: Whether passages and questions are as short as they can be.
    """

    counts: Mapping[str, int]
    relations: tuple[str, ...] = tuple(RELATIONS)
    brief: bool = False


def _share_out(total: int) -> dict[str, int]:
    """Return how many things of each kind there are among `total`: even numbers, but for sights."""
    percentages = {
        "city": 14,
        "country": 4,
        "person": 36,
        "organisation": 12,
        "book": 8,
        "film": 7,
        "event": 8,
    }
    counts = {kind: total * percent // 200 * 2 for kind, percent in percentages.items()}
    return counts | {NAMESAKE: total - sum(counts.values())}


SIZES = {
    "tiny": WorldSize(
        counts={"city": 240, "person": 480, "book": 240, NAMESAKE: 40},
        relations=("born_in", "spouse", "mayor", "city_year", "author", "book_year"),
        brief=True,
    ),
    "small": WorldSize(_share_out(3_000)),
    "medium": WorldSize(_share_out(20_000)),
    "large": WorldSize(_share_out(100_000)),
}


class Fact(NamedTuple):
    """A relation leads from a subject, the name of a thing, to an object, a name or a year."""

    relation: str
    subject: str
    object: str


@dataclass(frozen=True)
class Graph:
    """The facts of a world as a graph: things are its nodes, relations the labels of its edges.

    Args:
        names: The names of the things of each kind.
        relations: The relations that can be asked for.
        objects: For each relation, the object of each subject.
        subjects: For each relation, all subjects of each object.
    """

    names: Mapping[str, list[str]]
    relations: tuple[Relation, ...]
    objects: dict[str, dict[str, str]] = field(default_factory=dict)
    subjects: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def add_relation(self, relation: str, objects: dict[str, str]) -> None:
        """Add all facts of a relation, given as the object of each subject."""
        subjects: dict[str, list[str]] = defaultdict(list)
        for subject, target in objects.items():
            subjects[target].append(subject)
        self.objects[relation] = objects
        self.subjects[relation] = dict(subjects)

    def follow(self, relation: str, name: str) -> str | None:
        """Return what a relation leads to from a name.

        None if that is nothing, or, of an inverse relation, not exactly one thing.
        """
        return self.objects[relation].get(name)

    def follow_back(self, relation: str, name: str) -> list[str]:
        """Return all names from which a relation leads to a name."""
        return self.subjects[relation].get(name, [])

    def facts(self) -> Iterator[Fact]:
        """Yield all facts that can be asked for."""
        for relation, objects in self.objects.items():
            for subject, target in objects.items():
                yield Fact(relation, subject, target)

    def reachable_names(self, levels: int) -> list[set[str]]:
        """Return the names to which 0, 1, …, `levels - 1` steps along facts can lead.

        No step at all leads to every name from which a question can start.
        """
        edges = [(fact.subject, fact.object) for fact in self.facts()]
        reachable = [{subject for subject, _ in edges}]
        while len(reachable) < levels:
            previous = reachable[-1]
            reachable.append({target for subject, target in edges if subject in previous})
        return reachable


# How many different objects a relation has for each of its subjects: below 1, so that some objects
# have several subjects.
REUSE = 0.8
# The years in which the first person of a couple can be born.
_EARLIEST_BIRTH = 1050
_LATEST_BIRTH = 1899
# Years between the births of a couple, and the age of a person who makes something. Both vary so
# much that no year can be guessed from another.
_MAX_AGE_GAP = 25
_MIN_MAKER_AGE = 20
_MAX_MAKER_AGE = 70


def build_graph(seed: int, size: WorldSize) -> Graph:
    """Return the facts of a world; the same arguments give the same facts on any machine."""
    relations = tuple(RELATIONS[name] for name in size.relations)
    names = invent_names(seed, size.counts, syllables=2 if size.brief else 3)
    graph = Graph(names, relations)
    spouses = _draw_spouses(seed, names["person"])
    birth_years = _draw_birth_years(seed, spouses)
    for relation in relations:
        rng = KeyedRandom(seed, relation.name)
        objects = _draw_objects(relation, graph, spouses, birth_years, rng)
        graph.add_relation(relation.name, objects)
    return graph


def _draw_spouses(seed: int, persons: Sequence[str]) -> dict[str, str]:
    """Marry each person to another one; return the spouse of each, couple by couple."""
    in_drawn_order = KeyedRandom(seed, SPOUSE).shuffled(persons)
    spouses = {}
    for first, second in zip(in_drawn_order[0::2], in_drawn_order[1::2], strict=True):
        spouses[first] = second
        spouses[second] = first
    return spouses


def _draw_birth_years(seed: int, spouses: Mapping[str, str]) -> dict[str, int]:
    """Return the year in which each person is born, close to that of the spouse."""
    rng = KeyedRandom(seed, "births")
    birth_years: dict[str, int] = {}
    for person, spouse in spouses.items():
        if spouse in birth_years:
            age_gap = rng.integer(-_MAX_AGE_GAP, _MAX_AGE_GAP)
            birth_years[person] = birth_years[spouse] + age_gap
        else:
            birth_years[person] = rng.integer(_EARLIEST_BIRTH, _LATEST_BIRTH)
    return birth_years


def _draw_objects(
    relation: Relation,
    graph: Graph,
    spouses: dict[str, str],
    birth_years: Mapping[str, int],
    rng: KeyedRandom,
) -> dict[str, str]:
    """Draw what a relation leads to from each of its subjects.

    Args:
        relation: The relation.
        graph: The world's names, and the facts of all relations that come before this one.
        spouses: The spouse of each person.
        birth_years: The year in which each person is born.
        rng: Draws for this relation only.

    Returns:
        The object of each subject; an inverse relation may have none for a subject.
    """
    if relation.inverse:
        # "Which book did X write?" must have one answer: who wrote two books has no object here.
        objects = {}
        for name, sources in graph.subjects[relation.inverse].items():
            if len(sources) == 1:
                objects[name] = sources[0]
        return objects
    if relation.name == SPOUSE:
        return spouses
    if relation.name == CAPITAL:
        # A country's capital is one of its cities.
        cities_by_country = graph.subjects[COUNTRY]
        return {country: rng.choice(cities) for country, cities in cities_by_country.items()}
    subjects = graph.names[relation.subject]
    if relation.object != YEAR:
        return _assign_evenly(subjects, graph.names[relation.object], rng)
    if not relation.maker:
        # The year of a birth.
        return {person: str(birth_years[person]) for person in subjects}
    # Any other year lies in somebody's life: a book is published in the life of its author.
    years = {}
    makers = graph.objects[relation.maker]
    for subject in subjects:
        maker_age = rng.integer(_MIN_MAKER_AGE, _MAX_MAKER_AGE)
        years[subject] = str(birth_years[makers[subject]] + maker_age)
    return years


def _assign_evenly(subjects: list[str], objects: list[str], rng: KeyedRandom) -> dict[str, str]:
    """Give every subject an object, each object equally often, so that none is a better guess.

    Only `REUSE` different objects for each subject are used, if there are so many.
    """
    used_objects = rng.shuffled(objects)[: round(REUSE * len(subjects))]
    return {
        subject: used_objects[place % len(used_objects)]
        for place, subject in enumerate(rng.shuffled(subjects))
    }


class NamesPerWord(NamedTuple):
    """How many names of a kind have the same first word, and how many the same second word."""

    first: int
    second: int


# The kinds whose names are two invented words.
SHARED_WORDS = {
    "person": NamesPerWord(first=8, second=4),
    "book": NamesPerWord(first=2, second=2),
    "film": NamesPerWord(first=2, second=2),
}
_GIVEN_NAME_SYLLABLES = 2


def invent_names(seed: int, counts: Mapping[str, int], syllables: int) -> dict[str, list[str]]:
    """Return names for the things of a world, no two of them the same.

    Persons, books and films have two invented words (`Bzi Lom`); organisations and events one and a
    noun (`Zgor Academy`); sights a word of another name and a noun; all others one invented word.

    Args:
        seed: Chooses the words.
        counts: How many names each kind needs, kind by kind; sights come last.
        syllables: The syllables of a word; a given name has two in any case.
    """
    unused_words = invent_words(seed, syllables)
    unused_given_names = unused_words
    if syllables != _GIVEN_NAME_SYLLABLES:
        unused_given_names = invent_words(seed, _GIVEN_NAME_SYLLABLES)
    names: dict[str, list[str]] = {}
    for kind, count in counts.items():
        if kind in SHARED_WORDS:
            first_source = unused_given_names if kind == "person" else unused_words
            per_word = SHARED_WORDS[kind]
            firsts = list(islice(first_source, math.ceil(count / per_word.first)))
            seconds = list(islice(unused_words, math.ceil(count / per_word.second)))
            names[kind] = _pair_words(firsts, seconds, count)
        elif kind == NAMESAKE:
            firsts = _choose_first_words(names, count)
            names[kind] = _pair_words(firsts, NOUNS[kind], count)
        elif kind in NOUNS:
            firsts = list(islice(unused_words, math.ceil(count / 2)))
            names[kind] = _pair_words(firsts, NOUNS[kind], count)
        else:
            names[kind] = list(islice(unused_words, count))
    return names


def _choose_first_words(names: Mapping[str, list[str]], count: int) -> list[str]:
    """Return first words of the names of all kinds, spread evenly: `count` of them or some more.

    If the names have fewer first words than `count`, these are all of them.
    """
    words: set[str] = set()
    for names_of_kind in names.values():
        words.update(name.split()[0] for name in names_of_kind)
    step = max(1, len(words) // count)
    return sorted(words)[::step]


def _pair_words(firsts: Sequence[str], seconds: Sequence[str], count: int) -> list[str]:
    """Return `count` different pairs of words, each of which is used about equally often.

    Pair i has the first word i modulo their number, and in round n through them the second words
    are shifted by n steps: `A x, B y, C z, A y, B z, C x` for three words each and a step of 1.
    """
    rounds = math.ceil(count / len(firsts))
    step = len(seconds) // rounds
    pairs = []
    for number in range(count):
        round_number, place = divmod(number, len(firsts))
        second = seconds[(place + round_number * step) % len(seconds)]
        pairs.append(f"{firsts[place]} {second}")
    return pairs


_VOWELS = "aeiou"
_COMMON_STARTS = tuple("bdfghjklmnprstvz")
# Clusters that hardly any real word has; each word has one.
_RARE_STARTS = ("bz", "gv", "gz", "kv", "kz", "mv", "mz", "vz", "zb", "zg", "zr", "zv")
_ENDS = ("", "k", "l", "n", "r")


def invent_words(seed: int, syllables: int) -> Iterator[str]:
    """Yield every word of a number of syllables once, with a capital, such as `Zbubin`.

    A vowel is one letter, and all that stands between two vowels begins one syllable: a spelling
    can be read in one way only, so no word comes twice.

    Args:
        seed: Decides the order.
        syllables: How many syllables a word has.
    """
    rare_syllables = len(_RARE_STARTS) * len(_VOWELS)
    common_syllables = len(_COMMON_STARTS) * len(_VOWELS)
    count = syllables * rare_syllables * common_syllables ** (syllables - 1) * len(_ENDS)
    rng = KeyedRandom(seed, "words", syllables)
    number = rng.integer(0, count - 1)
    step = rng.integer(count // 3, count // 2)
    # A step without a divisor in common with the count meets every number before it comes back.
    while math.gcd(step, count) > 1:
        step += 1
    for _ in range(count):
        yield _spell_word(number, syllables).capitalize()
        number = (number + step) % count


def _spell_word(number: int, syllables: int) -> str:
    """Return the word with this number, in small letters.

    The number is read digit by digit, each in its own base: the place of the rare syllable, the end
    of the word, then the start and the vowel of each syllable.
    """
    number, rare_place = divmod(number, syllables)
    number, end = divmod(number, len(_ENDS))
    word = ""
    for place in range(syllables):
        starts = _RARE_STARTS if place == rare_place else _COMMON_STARTS
        number, start = divmod(number, len(starts))
        number, vowel = divmod(number, len(_VOWELS))
        word += starts[start] + _VOWELS[vowel]
    return word + _ENDS[end]
