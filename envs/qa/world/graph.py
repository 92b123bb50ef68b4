"""The facts of the world: who was born where, who founded what and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...tasks import KeyedRandom
from .names import NAMESAKE, name_all
from .relations import CAPITAL, COUNTRY, RELATIONS, SPOUSE, YEAR, Relation

REUSE = 0.8  # of so many different things for each subject, some are the object of several subjects
_BIRTHS = (1050, 1899)
_AGES = (20, 70)  # so many years that an answer cannot be guessed from another; likewise between a couple's births


@dataclass(frozen=True)
class Size:
    """How large a world is.

    Args:
        counts: How many things of each kind there are; the number of persons is even.
        relations: What can be asked about them; what reads another relation backwards comes behind that one.
        brief: Whether passages and questions are as short as they can be.
    """

    counts: Mapping[str, int]
    relations: tuple[str, ...] = tuple(RELATIONS)
    brief: bool = False


def _counts(total: int) -> dict[str, int]:
    shares = {"city": 14, "country": 4, "person": 36, "organisation": 12, "book": 8, "film": 7, "event": 8}
    counts = {kind: total * share // 200 * 2 for kind, share in shares.items()}
    return counts | {NAMESAKE: total - sum(counts.values())}


SIZES = {
    "tiny": Size(
        {"city": 240, "person": 480, "book": 240, NAMESAKE: 40},
        ("born_in", "spouse", "mayor", "city_year", "author", "book_year"),
        brief=True,
    ),
    "small": Size(_counts(3_000)),
    "medium": Size(_counts(20_000)),
    "large": Size(_counts(100_000)),
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
        inverse = RELATIONS[relation].inverse
        if not inverse:
            return self.objects.get(relation, {}).get(name)
        found = self.subjects.get(inverse, {}).get(name, ())
        return found[0] if len(found) == 1 else None

    def leading(self, relation: str, name: str) -> list[str]:
        """Return all from which a relation leads to a name."""
        inverse = RELATIONS[relation].inverse
        if not inverse:
            return self.subjects.get(relation, {}).get(name, [])
        found = self.objects.get(inverse, {}).get(name)
        return [] if found is None or self.follow(relation, found) is None else [found]

    def facts(self) -> Iterator[tuple[str, str, str]]:
        """Yield (relation, subject, object) for all that can be asked."""
        for relation in self.relations:
            known = self.subjects if relation.inverse else self.objects
            for name in known.get(relation.inverse or relation.name, ()):
                target = self.follow(relation.name, name)
                if target is not None:
                    yield relation.name, name, target

    def reached(self, levels: int) -> list[set[str]]:
        """Return to what questions can lead in 0 steps, in 1, and so on, for so many levels."""
        steps = [(subject, target) for _, subject, target in self.facts()]
        reached = [{subject for subject, _ in steps}]
        while len(reached) < levels:
            reached.append({target for subject, target in steps if subject in reached[-1]})
        return reached


def build(seed: int, size: Size) -> Graph:
    """Return the facts of a world."""
    relations = tuple(RELATIONS[name] for name in size.relations)
    graph = Graph(name_all(seed, size.counts, 2 if size.brief else 3), relations)
    couples = _couples(graph.names["person"], KeyedRandom(seed, SPOUSE))
    births = _births(couples, KeyedRandom(seed, "births"))
    for relation in relations:
        if relation.inverse:
            continue
        rng = KeyedRandom(seed, relation.name)
        if relation.name == SPOUSE:
            objects = couples
        elif relation.name == CAPITAL:
            objects = {country: rng.choice(cities) for country, cities in graph.subjects[COUNTRY].items()}
        elif relation.object != YEAR:
            objects = _spread(graph.names[relation.subject], graph.names[relation.object], rng)
        else:
            objects = _years(graph, relation, births, rng)
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


def _couples(persons: list[str], rng: KeyedRandom) -> dict[str, str]:
    order = rng.shuffled(persons)
    return {order[i]: order[i ^ 1] for i in range(len(order))}


def _births(couples: Mapping[str, str], rng: KeyedRandom) -> dict[str, int]:
    births: dict[str, int] = {}
    for person, spouse in couples.items():
        births[person] = births[spouse] + rng.integer(-25, 25) if spouse in births else rng.integer(*_BIRTHS)
    return births


def _years(graph: Graph, relation: Relation, births: Mapping[str, int], rng: KeyedRandom) -> dict[str, str]:
    if not relation.after:
        return {name: str(births[name]) for name in graph.names[relation.subject]}
    makers = graph.objects[relation.after]
    return {name: str(births[makers[name]] + rng.integer(*_AGES)) for name in graph.names[relation.subject]}
