"""An invented world to search: no model can know its facts, so its questions need its passages.

Passages and questions are facts in words, which an expert reads back. Questions are fixed by an index and made when
they are asked for. The last fact of a question decides its split, by the two things that it joins: no question of
another split has such an answer to the same thing, nor the same fact read backwards.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...tools.search.retriever import Passage
from ..keyed_random import KeyedRandom
from ..splits import check_split, in_split
from ..tasks import check_choices, check_index, check_known
from .env import QATask
from .facts import ARTICLES, RELATIONS, SIZES, WORDS, YEAR, Graph, Relation, build

NAME = "[A-Z][a-z]+(?: [A-Z][a-z]+)?"
_PRONOUNS = {"person": ("He", "She")}
_INTROS, _ASIDES = WORDS["intros"], [(text, *numbers) for text, numbers in WORDS["asides"].items()]


def write(graph: Graph, kind: str, number: int, seed: int, brief: bool) -> Passage:
    """Return the passage about one thing: what it is, then its facts in any order, each in a sentence.

    A brief one has the facts alone, always in the same words. A pronoun stands for the thing wherever one can.
    """
    name = graph.names[kind][number]
    subject, rng = shown(name, kind), KeyedRandom(seed, "passage", name)
    facts = [relation for relation in graph.relations if relation.subject == kind and relation.says]
    says = []
    for relation in facts:
        text = relation.says[0] if brief else rng.choice(relation.says)
        says.append(text.replace("{o}", shown(graph.objects[relation.name][name], relation.object)))
    for text, low, high in () if facts else _ASIDES[:1] if brief else _ASIDES:
        says.append(text.replace("{o}", str(rng.integer(low, high))))
    if not brief:
        pronoun = rng.choice(_PRONOUNS.get(kind, ("It",)))
        says = [
            text.replace("{s}", pronoun) if text.startswith("{s}") else text
            for text in rng.shuffled(says)
        ]
        says.insert(0, "{s} " + rng.choice(_INTROS[kind]))
    texts = [text.replace("{s}", subject) for text in says]
    return Passage(
        f"{kind}-{number}", name, " ".join(f"{text[0].upper()}{text[1:]}." for text in texts)
    )


def shown(name: str, kind: str) -> str:
    """Return a name with the article that its kind has in a sentence."""
    return ARTICLES.get(kind, "") + name


def _sentence_pattern(says: str, relation: Relation) -> re.Pattern[str]:
    target = r"(?P<o>\d{4})" if relation.object == YEAR else f"(?:the )?(?P<o>{NAME})"
    text = re.escape(says + ".").replace(r"\{o\}", target)
    return re.compile(text.replace(r"\{s\}", f"(?:[Tt]he )?(?P<s>{NAME})"))


_PATTERNS = [  # with the longest piece of text that every match has: most lines do not have it
    (relation.name, max(re.split(r"\{.\}", says), key=len), _sentence_pattern(says, relation))
    for relation in RELATIONS.values()
    for says in relation.says
]
_INTRO = re.compile(rf"({NAME}) (?:is|was) an? ")


def read(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the (relation, subject, object) that a text of passages states; a line holds one passage at most."""
    for line in text.splitlines():
        intro = _INTRO.search(line)
        for relation, piece, pattern in _PATTERNS:
            for fact in pattern.finditer(line) if piece in line else ():
                if fact["s"] not in ("He", "She", "It"):
                    yield relation, fact["s"], fact["o"]
                elif intro:
                    yield relation, intro[1], fact["o"]


@dataclass(frozen=True)
class Question:
    """What is asked: where `path`, relation after relation, leads to from `start`."""

    start: str
    path: tuple[str, ...]


def ask(question: Question, rng: KeyedRandom | None) -> str:
    """Return a wording of the question: one of many that `rng` chooses, or the shortest form of each part."""
    relations = [RELATIONS[name] for name in question.path]
    text = shown(question.start, relations[0].subject)
    for texts in (*(relation.phrases for relation in relations[:-1]), relations[-1].asks):
        text = (texts[0] if rng is None else rng.choice(texts)).format(x=text)
    return text


def query(name: str, relation: str) -> str:
    """Return what to search for to learn where a relation leads to from a name."""
    return f"{name} {RELATIONS[relation].words}"


_START = re.compile(f"(?:the )?({NAME})")
_FORMS = [  # of questions, which are about no kind, and of descriptions of things of a kind
    (kind, relation, re.compile(re.escape(text).replace(r"\{x\}", "(.+)")))
    for relation in RELATIONS.values()
    for kind, texts in (("", relation.asks), (relation.object, relation.phrases))
    for text in texts
]


def parse(text: str, kind: str = "") -> Question | None:
    """Return what a text asks, or what the part of a question that names a thing of a `kind` leads to; else None."""
    if kind and (name := _START.fullmatch(text)):
        return Question(name[1], ())
    for of, relation, pattern in _FORMS:
        if (
            of == kind
            and (match := pattern.fullmatch(text))
            and (found := parse(match[1], relation.subject))
        ):
            return Question(found.start, (*found.path, relation.name))
    return None


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
            ends = (
                (relation, subject)
                if RELATIONS[relation].object == YEAR
                else sorted((subject, target))
            )
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
            target = self._graph.follow(relation, subject)
            assert target is not None
            before = self._before(
                subject, RELATIONS[relation].subject, hops - 1, {subject, target}, rng
            )
            if before:
                return self._task(key, Question(before.start, (*before.path, relation)), rng)
            relation, subject = rng.choice(self._facts[hops])  # all ways there go round in circles
        raise RuntimeError(
            f"{self.name} has no question of {hops} hops for split {self.split}; choose a larger world"
        )

    def _before(
        self, name: str, kind: str, hops: int, met: set[str], rng: KeyedRandom
    ) -> Question | None:
        """Return a way of so many hops to a name that goes past nothing twice, or None where there is none."""
        if not hops:
            return Question(name, ())
        ways = []
        for relation in (one for one in self._graph.relations if one.object == kind):
            if sources := [
                one for one in self._graph.leading(relation.name, name) if one not in met
            ]:
                ways.append((relation, sources))
        while ways:
            relation, sources = ways.pop(rng.integer(0, len(ways) - 1))
            source = rng.choice(sources)
            if found := self._before(source, relation.subject, hops - 1, met | {source}, rng):
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
        text, kind = ask(question, None if self._world.brief else rng), f"{len(queries)} hops"
        return QATask(
            key, text, name, category=kind, passages=tuple(passages), queries=tuple(queries)
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
        check_known(size, SIZES, f"unknown size {size!r} of a world", "the sizes are")
        self.seed, self.size, self.brief = seed, size, SIZES[size].brief
        self.name = f"world-{size}-{seed}"
        self.graph = build(seed, SIZES[size])

    @cached_property
    def passages(self) -> list[Passage]:
        """A passage about each thing; its title is the thing's name."""
        things = (
            (kind, number)
            for kind, names in self.graph.names.items()
            for number in range(len(names))
        )
        return [write(self.graph, kind, number, self.seed, self.brief) for kind, number in things]

    def tasks(self, split: str = "train", hops: int | tuple[int, ...] = HOPS) -> InventedTasks:
        """Return the questions of a split; see `InventedTasks`."""
        return InventedTasks(self, split, hops)

    @cached_property
    def ids(self) -> dict[str, str]:
        """The passage about each thing."""
        return {passage.title: passage.id for passage in self.passages}
