"""The world's questions, fixed by an index and made when they are asked for.

The last fact of a question decides its split, by the two things that it joins: no question of another split has such
an answer to the same thing, nor the same fact read backwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property

from ...dice import Dice
from ...tasks import SPLIT_SHARES, check_split, text_share
from ..task import QATask
from .graph import Graph
from .questions import Question, ask, query
from .relations import RELATIONS, YEAR

HOPS = (1, 2, 3, 4)
ATTEMPTS = 10_000


class WorldTasks:
    """Questions about a world: a last fact of the split is asked for once for each number of hops that leads there.

    Args:
        graph: What is true.
        ids: The passage of each thing.
        name: Tells worlds apart, in the tasks' ids and in what is drawn.
        split: `train`, `valid` or `test`.
        hops: How many facts lead to the answer: 1 to 4, one number or several mixed evenly.
        brief: Whether the wording is always the shortest.

    Raises:
        ValueError: An argument is none of these.
    """

    def __init__(
        self,
        graph: Graph,
        ids: Mapping[str, str],
        name: str,
        split: str = "train",
        hops: int | tuple[int, ...] = HOPS,
        brief: bool = False,
    ) -> None:
        chosen = {hops} if isinstance(hops, int) else set(hops)
        if not chosen or not chosen <= set(HOPS):
            raise ValueError(f"hops is {hops}; choose one or several of {', '.join(map(str, HOPS))}")
        self.name = name
        self.split = check_split(split)
        self.hops = tuple(sorted(chosen))
        self._graph, self._ids, self._brief = graph, ids, brief

    @cached_property
    def _facts(self) -> dict[int, list[tuple[str, str]]]:
        """The last facts of the split, (relation, subject), for each number of hops, in an order of their own."""
        low, high = SPLIT_SHARES[self.split]
        facts = []
        for relation, subject, target in self._graph.facts():
            ends = (relation, subject) if RELATIONS[relation].object == YEAR else sorted((subject, target))
            if low <= text_share(f"{self.name} {' '.join(ends)}") < high:
                key = f"order {self.name} {relation} {subject}".encode()
                facts.append((hashlib.blake2b(key, digest_size=8).digest(), relation, subject))
        order = [fact[1:] for fact in sorted(facts)]
        reached = dict(zip(HOPS, self._graph.reached(max(HOPS)), strict=True))
        return {hops: [fact for fact in order if fact[1] in reached[hops]] for hops in self.hops}

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.hops) * min(map(len, self._facts.values()))

    def __getitem__(self, i: int, /) -> QATask:
        """Return task `i`; raise IndexError out of range."""
        if not 0 <= i < len(self):
            raise IndexError(f"task {i} of {self.name}: there are tasks 0 to {len(self) - 1}")
        number, hops = i // len(self.hops), self.hops[i % len(self.hops)]
        key = f"{self.name}-{hops}-{self.split}-{number}"
        dice = Dice(key)
        relation, subject = self._facts[hops][number]
        for _ in range(ATTEMPTS):
            question = self._question(relation, subject, hops, dice)
            if question:
                return self._task(key, question, dice)
            relation, subject = dice.pick(self._facts[hops])  # all ways there go round in circles
        raise RuntimeError(f"{self.name} has no question of {hops} hops for split {self.split}; choose a larger world")

    def _question(self, relation: str, subject: str, hops: int, dice: Dice) -> Question | None:
        target = self._graph.follow(relation, subject)
        assert target is not None
        before = self._before(subject, RELATIONS[relation].subject, hops - 1, {subject, target}, dice)
        return before and Question(before.start, (*before.path, relation))

    def _before(self, name: str, kind: str, hops: int, met: set[str], dice: Dice) -> Question | None:
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
            relation, sources = ways.pop(dice.roll(0, len(ways) - 1))
            source = dice.pick(sources)
            found = self._before(source, relation.subject, hops - 1, met | {source}, dice)
            if found:
                return Question(found.start, (*found.path, relation.name))
        return None

    def _task(self, key: str, question: Question, dice: Dice) -> QATask:
        name, passages, queries = question.start, [], []
        for relation in question.path:
            target = self._graph.follow(relation, name)
            assert target is not None
            queries.append(query(name, relation))
            passages.append(self._ids[target if RELATIONS[relation].inverse else name])
            name = target
        text = ask(question, None if self._brief else dice)
        return QATask(key, text, name, passages=tuple(passages), queries=tuple(queries))
