"""The facts of the invented world: names that no two things share, and who was born where, who founded what and when.

All words are invented: each has a cluster of letters that hardly any real word has. Many names share a word, and none
that is asked for is part of another. What may hold between things, with all wordings, is in `relations.toml`.
"""

import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import gcd
from pathlib import Path

from ..keyed_random import KeyedRandom

_VOWELS = "aeiou"
_RARE = ("bz", "gv", "gz", "kv", "kz", "mv", "mz", "vz", "zb", "zg", "zr", "zv")
_COMMON = tuple("bdfghjklmnprstvz")
_ENDS = ("", "k", "l", "n", "r")


def invented(seed: int, syllables: int) -> Iterator[str]:
    """Yield every word of so many syllables once, with a capital, in an order that `seed` decides.

    A vowel is one letter and what stands between two vowels begins one syllable, so that a spelling has one reading.
    """
    others = len(_COMMON) * len(_VOWELS)
    count = syllables * len(_RARE) * len(_VOWELS) * others ** (syllables - 1) * len(_ENDS)
    rng = KeyedRandom(seed, "words", syllables)
    number, step = rng.integer(0, count - 1), rng.integer(count // 3, count // 2)
    while gcd(step, count) > 1:
        step += 1
    for _ in range(count):
        yield _spell(number, syllables).capitalize()
        number = (number + step) % count


def _spell(number: int, syllables: int) -> str:
    number, rare = divmod(number, syllables)
    number, end = divmod(number, len(_ENDS))
    word = ""
    for syllable in range(syllables):
        starts = _RARE if syllable == rare else _COMMON
        number, start = divmod(number, len(starts))
        number, vowel = divmod(number, len(_VOWELS))
        word += starts[start] + _VOWELS[vowel]
    return word + _ENDS[end]


NAMESAKE = "namesake"  # a sight called like something else, about which nothing is asked
ARTICLES = {"organisation": "the ", "event": "the ", NAMESAKE: "the "}
SHARED = {
    "person": (8, 4),
    "book": (2, 2),
    "film": (2, 2),
}  # things of a kind for each first word and second word
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
NOUNS: dict[str, list[str]] = WORDS["nouns"]


def name_all(seed: int, counts: Mapping[str, int], syllables: int) -> dict[str, list[str]]:
    """Return the names of each kind, so many as `counts` says; most words have `syllables`, given names two."""
    unused = invented(seed, syllables)
    given = unused if syllables == 2 else invented(seed, 2)
    names: dict[str, list[str]] = {}
    for kind, count in counts.items():
        if kind in SHARED:
            first, second = (-(-count // share) for share in SHARED[kind])
            firsts = islice(given if kind == "person" else unused, first)
            names[kind] = _pairs(list(firsts), list(islice(unused, second)), count)
        elif kind == NAMESAKE:
            words = sorted({name.split()[0] for others in names.values() for name in others})
            names[kind] = _pairs(words[:: max(1, len(words) // count)], NOUNS[kind], count)
        elif kind in NOUNS:
            names[kind] = _pairs(list(islice(unused, -(-count // 2))), NOUNS[kind], count)
        else:
            names[kind] = list(islice(unused, count))
    return names


def _pairs(firsts: Sequence[str], seconds: Sequence[str], count: int) -> list[str]:
    """Return different pairs that use each word about equally often."""
    # The same first word comes back every `rows` pairs, each time with a second word that is `step` further on.
    rows = len(firsts)
    step = len(seconds) // -(-count // rows)
    return [
        f"{firsts[i % rows]} {seconds[(i % rows + i // rows * step) % len(seconds)]}"
        for i in range(count)
    ]


YEAR = "year"
SPOUSE, CAPITAL, COUNTRY = "spouse", "capital", "country"


@dataclass(frozen=True)
class Relation:
    """A relation gives each thing of a kind at most one other."""

    name: str  # how it is called here
    subject: str  # the kind of thing that has it
    object: str  # the kind of thing that it leads to, or `YEAR`
    words: str  # what to search for beside the subject's name
    asks: Sequence[str]  # questions about {x}
    phrases: Sequence[
        str
    ] = ()  # how a question names the object of {x} when it asks on; none for years
    says: Sequence[
        str
    ] = ()  # sentences of the subject's passage, with {s} and {o}; none for another one's inverse
    inverse: str = ""  # the relation read backwards: this holds where that one leads to {x} from one thing alone
    after: str = ""  # the relation to the person in whose lifetime a year lies


_ROWS = tomllib.loads(Path(__file__).with_name("relations.toml").read_text("utf-8"))
RELATIONS = {name: Relation(name, **row) for name, row in _ROWS.items()}

REUSE = 0.8  # of so many different things for each subject, some are the object of several subjects
_BIRTHS = (1050, 1899)
_AGES = (
    20,
    70,
)  # so many years that an answer cannot be guessed from another; likewise between a couple's births


@dataclass(frozen=True)
class WorldSize:
    """How large a world is."""

    counts: Mapping[
        str, int
    ]  # how many things of each kind there are; the number of persons is even
    relations: tuple[str, ...] = tuple(
        RELATIONS
    )  # what can be asked; what reads another backwards comes behind it
    brief: bool = False  # whether passages and questions are as short as they can be


def _counts(total: int) -> dict[str, int]:
    shares = {
        "city": 14,
        "country": 4,
        "person": 36,
        "organisation": 12,
        "book": 8,
        "film": 7,
        "event": 8,
    }
    counts = {kind: total * share // 200 * 2 for kind, share in shares.items()}
    return counts | {NAMESAKE: total - sum(counts.values())}


SIZES = {
    "tiny": WorldSize(
        {"city": 240, "person": 480, "book": 240, NAMESAKE: 40},
        ("born_in", "spouse", "mayor", "city_year", "author", "book_year"),
        brief=True,
    ),
    "small": WorldSize(_counts(3_000)),
    "medium": WorldSize(_counts(20_000)),
    "large": WorldSize(_counts(100_000)),
}


@dataclass(frozen=True)
class Graph:
    """Names by kind, what can be asked, and by relation the object of each subject and the subjects of each object."""

    names: Mapping[str, list[str]]
    relations: tuple[Relation, ...]
    objects: dict[str, dict[str, str]] = field(default_factory=dict)
    subjects: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def follow(self, relation: str, name: str) -> str | None:
        """Return where a relation leads to from a name, or None where that is nothing or not one thing alone."""
        return self.objects[relation].get(name)

    def leading(self, relation: str, name: str) -> list[str]:
        """Return all from which a relation leads to a name."""
        return self.subjects[relation].get(name, [])

    def facts(self) -> Iterator[tuple[str, str, str]]:
        """Yield (relation, subject, object) for all that can be asked."""
        for relation, known in self.objects.items():
            for name, target in known.items():
                yield relation, name, target

    def reached(self, levels: int) -> list[set[str]]:
        """Return to what questions can lead in 0 steps, in 1, and so on, for so many levels."""
        steps = [(subject, target) for _, subject, target in self.facts()]
        reached = [{subject for subject, _ in steps}]
        while len(reached) < levels:
            reached.append({target for subject, target in steps if subject in reached[-1]})
        return reached


def build(seed: int, size: WorldSize) -> Graph:
    """Return the facts of a world."""
    relations = tuple(RELATIONS[name] for name in size.relations)
    graph = Graph(name_all(seed, size.counts, 2 if size.brief else 3), relations)
    persons = KeyedRandom(seed, SPOUSE).shuffled(graph.names["person"])
    couples = {person: persons[i ^ 1] for i, person in enumerate(persons)}
    births, drawn = dict[str, int](), KeyedRandom(seed, "births")
    for one, other in couples.items():
        births[one] = (
            births[other] + drawn.integer(-25, 25) if other in births else drawn.integer(*_BIRTHS)
        )
    for relation in relations:
        rng = KeyedRandom(seed, relation.name)
        if relation.inverse:
            backwards = graph.subjects[relation.inverse].items()
            objects = {name: found[0] for name, found in backwards if len(found) == 1}
        elif relation.name == SPOUSE:
            objects = couples
        elif relation.name == CAPITAL:
            objects = {
                country: rng.choice(cities) for country, cities in graph.subjects[COUNTRY].items()
            }
        elif relation.object != YEAR:
            objects = _spread(graph.names[relation.subject], graph.names[relation.object], rng)
        elif not relation.after:
            objects = {name: str(births[name]) for name in graph.names[relation.subject]}
        else:
            makers = graph.objects[relation.after]
            names = graph.names[relation.subject]
            objects = {name: str(births[makers[name]] + rng.integer(*_AGES)) for name in names}
        graph.objects[relation.name] = objects
        subjects: dict[str, list[str]] = defaultdict(list)
        for subject, target in objects.items():
            subjects[target].append(subject)
        graph.subjects[relation.name] = dict(subjects)
    return graph


def _spread(subjects: list[str], objects: list[str], rng: KeyedRandom) -> dict[str, str]:
    """Give every subject an object, each object as often as any other: none is a better guess."""
    pool = rng.shuffled(objects)[: round(REUSE * len(subjects))]
    return {subject: pool[i % len(pool)] for i, subject in enumerate(rng.shuffled(subjects))}
