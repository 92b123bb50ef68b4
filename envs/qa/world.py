"""An invented world to search: no model can know its facts, so its questions need its passages.

Questions are fixed by an index and made when they are asked for. The last fact of a question decides its split, by the
two things that it joins: no question of another split has such an answer to the same thing, nor the same fact read
backwards.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

from ...tools.search.core import Passage
from ..tasks import KeyedRandom, check_choices, check_index, check_split, did_you_mean, in_split
from .facts import RELATIONS, SIZES, YEAR, build
from .search import QATask
from .wording import Question, ask, query, write

HOPS = (1, 2, 3, 4)
ATTEMPTS = 10_000


class InventedTasks:
    """Questions about a world: a last fact of the split is asked for once for each number of hops that leads there.

    hops: How many facts lead to the answer: 1 to 4, one number or several mixed evenly.

    Raises ValueError where an argument is none of these.
    """

    def __init__(self, world: InventedWorld, split: str, hops: int | tuple[int, ...]) -> None:
        self.name = world.name
        self.split = check_split(split)
        self.hops = check_choices("hops", hops, HOPS)
        self._world, self._graph = world, world.graph

    @cached_property
    def _facts(self) -> dict[int, list[tuple[str, str]]]:
        """The last facts of the split, (relation, subject), for each number of hops, in an order of their own."""
        facts = []
        for relation, subject, target in self._graph.facts():
            ends = (relation, subject) if RELATIONS[relation].object == YEAR else sorted((subject, target))
            if in_split(f"{self.name} {' '.join(ends)}", self.split):
                key = f"order {self.name} {relation} {subject}".encode()
                facts.append((hashlib.blake2b(key, digest_size=8).digest(), relation, subject))
        order = [fact[1:] for fact in sorted(facts)]
        reached = dict(zip(HOPS, self._graph.reached(max(HOPS)), strict=True))
        return {hops: [fact for fact in order if fact[1] in reached[hops]] for hops in self.hops}

    def __len__(self) -> int:
        return len(self.hops) * min(map(len, self._facts.values()))

    def __getitem__(self, i: int, /) -> QATask:
        check_index(i, self)
        number, hops = i // len(self.hops), self.hops[i % len(self.hops)]
        key = f"{self.name}-{hops}-{self.split}-{number}"
        rng = KeyedRandom(key)
        relation, subject = self._facts[hops][number]
        for _ in range(ATTEMPTS):
            question = self._question(relation, subject, hops, rng)
            if question:
                return self._task(key, question, rng)
            relation, subject = rng.choice(self._facts[hops])  # all ways there go round in circles
        raise RuntimeError(f"{self.name} has no question of {hops} hops for split {self.split}; choose a larger world")

    def _question(self, relation: str, subject: str, hops: int, rng: KeyedRandom) -> Question | None:
        target = self._graph.follow(relation, subject)
        assert target is not None
        before = self._before(subject, RELATIONS[relation].subject, hops - 1, {subject, target}, rng)
        return before and Question(before.start, (*before.path, relation))

    def _before(self, name: str, kind: str, hops: int, met: set[str], rng: KeyedRandom) -> Question | None:
        """Return a way of so many hops to a name that goes past nothing twice, or None where there is none."""
        if not hops:
            return Question(name, ())
        ways = [
            (relation, [source for source in self._graph.leading(relation.name, name) if source not in met])
            for relation in self._graph.relations
            if relation.object == kind
        ]
        ways = [way for way in ways if way[1]]
        while ways:
            relation, sources = ways.pop(rng.integer(0, len(ways) - 1))
            source = rng.choice(sources)
            found = self._before(source, relation.subject, hops - 1, met | {source}, rng)
            if found:
                return Question(found.start, (*found.path, relation.name))
        return None

    def _task(self, key: str, question: Question, rng: KeyedRandom) -> QATask:
        name, passages, queries = question.start, [], []
        for relation in question.path:
            target = self._graph.follow(relation, name)
            assert target is not None
            queries.append(query(name, relation))
            passages.append(self._world.ids[target if RELATIONS[relation].inverse else name])
            name = target
        text = ask(question, None if self._world.brief else rng)
        return QATask(
            key, text, name, category=f"{len(queries)} hops", passages=tuple(passages), queries=tuple(queries)
        )


class InventedWorld:
    """People, places, organisations, works and events, a passage each, and questions about them.

    The same arguments give the same world on any machine.

    Args:
        seed: Chooses the names and the facts.
        size: `tiny` (1,000 very short passages for a very small policy), `small` (3,000), `medium` (20,000) or `large`
            (100,000).

    Raises ValueError where there is no such size.
    """

    def __init__(self, seed: int = 0, size: str = "small") -> None:
        if size not in SIZES:
            raise ValueError(
                f"unknown size {size!r} of a world; {did_you_mean(size, SIZES)}the sizes are {', '.join(SIZES)}"
            )
        self.seed, self.size, self.brief = seed, size, SIZES[size].brief
        self.name = f"world-{size}-{seed}"
        self.graph = build(seed, SIZES[size])

    @cached_property
    def passages(self) -> list[Passage]:
        """A passage about each thing; its title is the thing's name."""
        return [
            write(self.graph, kind, number, self.seed, self.brief)
            for kind, names in self.graph.names.items()
            for number in range(len(names))
        ]

    def tasks(self, split: str = "train", hops: int | tuple[int, ...] = HOPS) -> InventedTasks:
        """Return the questions of a split; see `InventedTasks`."""
        return InventedTasks(self, split, hops)

    @cached_property
    def ids(self) -> dict[str, str]:
        """The passage about each thing."""
        return {passage.title: passage.id for passage in self.passages}
