"""An invented world to search: no model can know its facts, so its questions need its passages.

`InventedWorld` has a passage about each thing and, by `InventedWorld.tasks`, questions. A passage
and a question are facts put into words (`write_passage`, `word_question`), which the expert reads
back (`read_facts`, `parse_question`).

A question is fixed by its index and made when it is asked for. Its split is decided by the two
things that its last fact joins: no other split has a question that ends with this fact, nor with
the same fact read backwards.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...tools.search.retriever import Passage
from ..keyed_random import KeyedRandom
from ..splits import check_split, in_split
from ..tasks import check_choices, check_index, check_known
from .env import QATask
from .facts import ARTICLES, RELATIONS, SIZES, WORDS, YEAR, Fact, Graph, Relation, build_graph

HOPS = (1, 2, 3, 4)  # how many facts a question can join


class InventedWorld:
    """People, places, organisations, works and events, a passage each, and questions about them.

    The same arguments give the same world on any machine.

    Args:
        seed: Chooses the names and the facts.
        size: `tiny` (1,000 very short passages for a very small policy), `small` (3,000), `medium`
            (20,000) or `large` (100,000).

    Raises:
        ValueError: There is no such size.
    """

    def __init__(self, seed: int = 0, size: str = "small") -> None:
        check_known(size, SIZES, f"unknown size {size!r} of a world", "the sizes are")
        self.seed = seed
        self.size = size
        self.brief = SIZES[size].brief
        self.name = f"world-{size}-{seed}"
        self.graph = build_graph(seed, SIZES[size])

    @cached_property
    def passages(self) -> list[Passage]:
        """A passage about each thing; its title is the thing's name."""
        passages = []
        for kind, names in self.graph.names.items():
            for number in range(len(names)):
                passage = write_passage(self.graph, kind, number, seed=self.seed, brief=self.brief)
                passages.append(passage)
        return passages

    @cached_property
    def passage_ids(self) -> dict[str, str]:
        """The id of the passage about each thing, by the thing's name."""
        return {passage.title: passage.id for passage in self.passages}

    def tasks(self, split: str = "train", hops: int | tuple[int, ...] = HOPS) -> InventedTasks:
        """Return the questions of a split; see `InventedTasks`."""
        return InventedTasks(self, split, hops)


@dataclass(frozen=True)
class Question:
    """A question for what the relations in `path`, one after the other, lead to from `start`.

    `Question("Zgor Cup", ("winner", "born_in"))` asks where the winner of the Zgor Cup was born.
    """

    start: str
    path: tuple[str, ...]


# How many last facts are tried for a question before the world counts as too small.
MAX_ATTEMPTS = 10_000


class InventedTasks:
    """Questions about a world.

    A question asks for its last fact by a chain of other facts, which is drawn. For each number of
    hops, each last fact of the split to which a chain of that length can lead is asked for once.

    Args:
        world: The world.
        split: `train`, `valid` or `test`.
        hops: How many facts lead to the answer, 1 to 4: one number, or several, mixed evenly.

    Raises:
        ValueError: `split` or `hops` is none of these.
    """

    def __init__(self, world: InventedWorld, split: str, hops: int | tuple[int, ...]) -> None:
        self.name = world.name
        self.split = check_split(split)
        self.hops = check_choices("hops", hops, HOPS)
        self._world = world
        self._graph = world.graph

    @cached_property
    def _last_facts(self) -> dict[int, list[Fact]]:
        """The last facts of the split's questions by the number of hops, in a hashed order."""
        facts = [fact for fact in self._graph.facts() if self._is_in_split(fact)]
        facts.sort(key=self._order_key)
        # A fact can be the last of n hops if n - 1 hops can lead to its subject.
        reachable = self._graph.reachable_names(max(HOPS))
        last_facts = {}
        for hops in self.hops:
            subjects = reachable[hops - 1]
            last_facts[hops] = [fact for fact in facts if fact.subject in subjects]
        return last_facts

    def _is_in_split(self, fact: Fact) -> bool:
        """Return whether questions of the split may end with a fact.

        The split is decided by a hash of the two things that the fact joins, in alphabetical order.
        So a fact and its inverse are in one split; otherwise "Who wrote X?" could be a question of
        one split, and "Which book did Y write?" of another. A year has no inverse: there, it is a
        hash of relation and subject.
        """
        if RELATIONS[fact.relation].object == YEAR:
            hashed_parts = [fact.relation, fact.subject]
        else:
            hashed_parts = sorted([fact.subject, fact.object])
        return in_split(f"{self.name} {' '.join(hashed_parts)}", self.split)

    def _order_key(self, fact: Fact) -> tuple[bytes, Fact]:
        """Return the key by which facts are sorted: a hash, which is the same on any machine."""
        text = f"order {self.name} {fact.relation} {fact.subject}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest(), fact

    def __len__(self) -> int:
        fewest = min(len(facts) for facts in self._last_facts.values())
        return len(self.hops) * fewest

    def __getitem__(self, i: int, /) -> QATask:
        """Return question `i`; with several numbers of hops, consecutive questions take turns.

        Raises:
            IndexError: There is no question `i`.
            RuntimeError: The world is too small for a question of so many hops.
        """
        check_index(i, self)
        number, place = divmod(i, len(self.hops))
        hops = self.hops[place]
        task_id = f"{self.name}-{hops}-{self.split}-{number}"
        rng = KeyedRandom(task_id)
        last_fact = self._last_facts[hops][number]
        for _ in range(MAX_ATTEMPTS):
            chain = self._draw_chain_to(
                last_fact.subject,
                kind=RELATIONS[last_fact.relation].subject,
                hops=hops - 1,
                visited={last_fact.subject, last_fact.object},
                rng=rng,
            )
            if chain is not None:
                question = Question(chain.start, (*chain.path, last_fact.relation))
                return self._make_task(task_id, question, rng)
            # No chain to this fact without a thing that is met twice: another fact takes its place.
            last_fact = rng.choice(self._last_facts[hops])
        raise RuntimeError(
            f"{self.name} has no question of {hops} hops for split {self.split}; "
            "choose a larger world"
        )

    def _draw_chain_to(
        self, name: str, *, kind: str, hops: int, visited: set[str], rng: KeyedRandom
    ) -> Question | None:
        """Draw a chain of facts that leads to a thing, by a backwards depth-first search.

        Args:
            name: The thing.
            kind: The kind of the thing.
            hops: How many facts the chain has.
            visited: The things that the chain must not meet, `name` among them.
            rng: Chooses a relation that leads to the thing, then one of its subjects.

        Returns:
            Where the chain starts and its relations. None if the search found none; it tries only
            one subject of each relation.
        """
        if hops == 0:
            return Question(name, ())
        candidates: list[tuple[Relation, list[str]]] = []
        for relation in self._graph.relations:
            if relation.object != kind:
                continue
            subjects = self._graph.follow_back(relation.name, name)
            unvisited = [subject for subject in subjects if subject not in visited]
            if unvisited:
                candidates.append((relation, unvisited))
        while candidates:
            relation, subjects = candidates.pop(rng.integer(0, len(candidates) - 1))
            subject = rng.choice(subjects)
            chain = self._draw_chain_to(
                subject, kind=relation.subject, hops=hops - 1, visited=visited | {subject}, rng=rng
            )
            if chain is not None:
                return Question(chain.start, (*chain.path, relation.name))
        return None

    def _make_task(self, task_id: str, question: Question, rng: KeyedRandom) -> QATask:
        """Return the task of a question: its wording, its answer, and how a search finds that."""
        name = question.start
        passages = []
        queries = []
        for relation in question.path:
            target = self._graph.objects[relation][name]
            queries.append(search_query(name, relation))
            # An inverse relation is stated by the passage about what it leads to.
            topic = target if RELATIONS[relation].inverse else name
            passages.append(self._world.passage_ids[topic])
            name = target
        return QATask(
            task_id,
            prompt=word_question(question, None if self._world.brief else rng),
            gold=name,
            category=f"{len(question.path)} hops",
            passages=tuple(passages),
            queries=tuple(queries),
        )


def search_query(name: str, relation: str) -> str:
    """Return what to search for to learn what a relation leads to from a name."""
    return f"{name} {RELATIONS[relation].search_words}"


def with_article(name: str, kind: str) -> str:
    """Return a name with the article that its kind has in a sentence: `"the Zgor Cup"`."""
    return ARTICLES.get(kind, "") + name


class Aside(NamedTuple):
    """A sentence about a sight that answers no question, with the range of the number in it."""

    sentence: str
    low: int
    high: int


_ASIDES = [Aside(sentence, *numbers) for sentence, numbers in WORDS["asides"].items()]
_INTROS: dict[str, list[str]] = WORDS["intros"]
_PERSON_PRONOUNS = ("He", "She")
_THING_PRONOUN = "It"
_PRONOUNS = (*_PERSON_PRONOUNS, _THING_PRONOUN)


def write_passage(graph: Graph, kind: str, number: int, *, seed: int, brief: bool) -> Passage:
    """Return the passage about one thing: what it is, then each of its facts in a sentence.

    Args:
        graph: The facts of the world.
        kind: The kind of the thing.
        number: Which thing of its kind.
        seed: The seed of the world; with the thing's name it decides the wording.
        brief: Whether the passage has only the facts, always in the same words and order. Else
            they come in any order, and a pronoun stands for the thing if a sentence begins with it.
    """
    name = graph.names[kind][number]
    rng = KeyedRandom(seed, "passage", name)
    # The sentences have `{s}` in place of their subject until all of them are chosen.
    sentences = _state_facts(graph, kind, name, None if brief else rng)
    if not sentences:
        # A sight, about which there is no fact.
        asides = _ASIDES[:1] if brief else _ASIDES
        for aside in asides:
            value = rng.integer(aside.low, aside.high)
            sentences.append(aside.sentence.replace("{o}", str(value)))
    if not brief:
        pronouns = _PERSON_PRONOUNS if kind == "person" else (_THING_PRONOUN,)
        pronoun = rng.choice(pronouns)
        sentences = [_begin_with(pronoun, sentence) for sentence in rng.shuffled(sentences)]
        intro = rng.choice(_INTROS[kind])
        sentences.insert(0, f"{{s}} {intro}")

    subject = with_article(name, kind)
    finished_sentences = []
    for sentence in sentences:
        sentence = sentence.replace("{s}", subject)
        finished_sentences.append(f"{sentence[0].upper()}{sentence[1:]}.")
    return Passage(id=f"{kind}-{number}", title=name, text=" ".join(finished_sentences))


def _begin_with(pronoun: str, sentence: str) -> str:
    """Put a pronoun in place of the subject `{s}` that a sentence begins with, if it does."""
    if sentence.startswith("{s}"):
        return sentence.replace("{s}", pronoun)
    return sentence


def _state_facts(graph: Graph, kind: str, name: str, rng: KeyedRandom | None) -> list[str]:
    """Return a sentence for each fact about a thing, with `{s}` in place of the thing's name.

    `rng` chooses the wordings; without it, each is the first one.
    """
    sentences = []
    for relation in graph.relations:
        if relation.subject != kind or not relation.sentences:
            continue
        sentence = relation.sentences[0] if rng is None else rng.choice(relation.sentences)
        target = with_article(graph.objects[relation.name][name], relation.object)
        sentences.append(sentence.replace("{o}", target))
    return sentences


# A name as a regex: one or two words with capitals.
NAME = "[A-Z][a-z]+(?: [A-Z][a-z]+)?"


class SentencePattern(NamedTuple):
    """How a sentence that states a fact is recognised.

    Args:
        relation: The name of the fact's relation.
        literal: The longest piece of text that every such sentence has.
        regex: Matches the sentence; its groups `s` and `o` are subject and object.
    """

    relation: str
    literal: str
    regex: re.Pattern[str]


def _make_sentence_patterns(relation: Relation) -> list[SentencePattern]:
    """Return the patterns of a relation's sentences, such as `"{s} was written by {o}"`."""
    subject_regex = f"(?:[Tt]he )?(?P<s>{NAME})"
    object_regex = f"(?:the )?(?P<o>{NAME})"
    if relation.object == YEAR:
        object_regex = r"(?P<o>\d{4})"
    patterns = []
    for sentence in relation.sentences:
        literal = max(re.split(r"\{[so]\}", sentence), key=len)
        regex = re.escape(f"{sentence}.")
        regex = regex.replace(r"\{s\}", subject_regex).replace(r"\{o\}", object_regex)
        patterns.append(SentencePattern(relation.name, literal, re.compile(regex)))
    return patterns


_SENTENCE_PATTERNS: list[SentencePattern] = []
for _relation in RELATIONS.values():
    _SENTENCE_PATTERNS += _make_sentence_patterns(_relation)
# The first sentence of a passage says what the thing is: `Bzi Lom was a baker`.
_INTRO = re.compile(rf"({NAME}) (?:is|was) an? ")


def read_facts(text: str) -> Iterator[Fact]:
    """Yield the facts that a text of passages states, as a search shows them.

    A line holds one passage at most. The thing that its first sentence introduces ("Bzi Lom was a
    baker") is the subject of all sentences that begin with a pronoun.
    """
    for line in text.splitlines():
        intro = _INTRO.search(line)
        for pattern in _SENTENCE_PATTERNS:
            # Most lines do not have the literal, and to look for it is faster than the regex.
            if pattern.literal not in line:
                continue
            for match in pattern.regex.finditer(line):
                subject = match["s"]
                if subject in _PRONOUNS:
                    if intro is None:
                        continue
                    subject = intro[1]
                yield Fact(pattern.relation, subject, match["o"])


def word_question(question: Question, rng: KeyedRandom | None) -> str:
    """Return a question in words, built from the inside out.

    From the start `Zgor Cup` the relation `winner` makes `the winner of the Zgor Cup`, and the last
    one, `born_in`, makes `Where was the winner of the Zgor Cup born?`.

    Args:
        question: The question.
        rng: Chooses the wording of each part; None for the shortest one.
    """
    *inner_relations, last_relation = [RELATIONS[name] for name in question.path]
    text = with_article(question.start, RELATIONS[question.path[0]].subject)
    wordings_by_step = [relation.descriptions for relation in inner_relations]
    wordings_by_step.append(last_relation.questions)
    for wordings in wordings_by_step:
        wording = wordings[0] if rng is None else rng.choice(wordings)
        text = wording.format(x=text)
    return text


class WordingPattern(NamedTuple):
    """A wording of a relation as a regex, whose group 1 is the part of the question inside it."""

    relation: Relation
    regex: re.Pattern[str]


def _make_wording_patterns(relation: Relation, wordings: Sequence[str]) -> list[WordingPattern]:
    """Return the patterns of wordings such as `"Who wrote {x}?"`."""
    patterns = []
    for wording in wordings:
        regex = re.escape(wording).replace(r"\{x\}", "(.+)")
        patterns.append(WordingPattern(relation, re.compile(regex)))
    return patterns


_QUESTION_PATTERNS: list[WordingPattern] = []
# The patterns of descriptions by the kind of thing that they describe.
_DESCRIPTION_PATTERNS: dict[str, list[WordingPattern]] = defaultdict(list)
for _relation in RELATIONS.values():
    _QUESTION_PATTERNS += _make_wording_patterns(_relation, _relation.questions)
    _DESCRIPTION_PATTERNS[_relation.object] += _make_wording_patterns(
        _relation, _relation.descriptions
    )
_NAME_WITH_ARTICLE = re.compile(f"(?:the )?({NAME})")


def parse_question(text: str) -> Question | None:
    """Return the question that a text asks, in any of its wordings; None if it asks none."""
    return _match_wordings(text, _QUESTION_PATTERNS)


def _parse_description(text: str, kind: str) -> Question | None:
    """Return what a part of a question describes, a thing of a kind; None if it is no description.

    A name describes itself: `"the Zgor Cup"` -> `Question("Zgor Cup", ())`.
    """
    name = _NAME_WITH_ARTICLE.fullmatch(text)
    if name is not None:
        return Question(name[1], ())
    return _match_wordings(text, _DESCRIPTION_PATTERNS.get(kind, []))


def _match_wordings(text: str, patterns: Sequence[WordingPattern]) -> Question | None:
    """Return the question of the first pattern that matches a text and whose inside can be read."""
    for pattern in patterns:
        match = pattern.regex.fullmatch(text)
        if match is None:
            continue
        inner = _parse_description(match[1], pattern.relation.subject)
        if inner is not None:
            return Question(inner.start, (*inner.path, pattern.relation.name))
    return None
