"""Facts in words: passages and questions about the invented world are written, and read back by an expert."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...tools import ToolCall, get_format
from ...tools.search.core import Passage
from ..tasks import KeyedRandom
from .facts import ARTICLES, RELATIONS, WORDS, YEAR, Graph, Relation

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
    says = [
        (relation.says[0] if brief else rng.choice(relation.says)).replace(
            "{o}", shown(graph.objects[relation.name][name], relation.object)
        )
        for relation in facts
    ] or [text.replace("{o}", str(rng.integer(low, high))) for text, low, high in (_ASIDES[:1] if brief else _ASIDES)]
    if not brief:
        pronoun = rng.choice(_PRONOUNS.get(kind, ("It",)))
        says = [text.replace("{s}", pronoun) if text.startswith("{s}") else text for text in rng.shuffled(says)]
        says.insert(0, "{s} " + rng.choice(_INTROS[kind]))
    texts = [text.replace("{s}", subject) for text in says]
    return Passage(f"{kind}-{number}", name, " ".join(f"{text[0].upper()}{text[1:]}." for text in texts))


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

    def pick(texts: Sequence[str]) -> str:
        return texts[0] if rng is None else rng.choice(texts)

    relations = [RELATIONS[name] for name in question.path]
    text = shown(question.start, relations[0].subject)
    for relation in relations[:-1]:
        text = pick(relation.phrases).format(x=text)
    return pick(relations[-1].asks).format(x=text)


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
        if of == kind and (match := pattern.fullmatch(text)) and (found := parse(match[1], relation.subject)):
            return Question(found.start, (*found.path, relation.name))
    return None


TRIES = 2  # searches for one fact


class SearchExpert:
    """Answers the world's questions from the question and the retrieved passages alone, one episode after the other.

    It searches for what it does not know yet, reads the passages' sentences, and goes on from fact to fact. If another
    action is taken than it proposed, set `command` to that action; it continues from there. `format` is how calls are
    written (`turngym.tools.FORMATS`).
    """

    def __init__(self, format: str = "tags") -> None:
        self.format = get_format(format)
        self.command = ""
        self.question = Question("", ())
        self.facts: dict[tuple[str, str], str] = {}  # (relation, subject): object
        self.searched: dict[tuple[str, str], int] = {}  # how often what it leads to was searched for
        self._said = ""
        self._open = ("", "")  # what the last search was for

    def act(self, observation: str) -> str:
        """Return the next search or the answer. Raises ValueError where the first text is no question of the world."""
        question = parse(observation.strip())
        if question:
            self.question, self.facts, self.searched = question, {}, {}
        elif not self.command:
            raise ValueError(f"the first text, {observation[:60]!r}, is no question of the world; begin with one")
        else:
            if self.command == self._said:
                self.searched[self._open] = self.searched.get(self._open, 0) + 1
            self._learn(observation)
        self.command = self._said = self._next()
        return self.command

    def _learn(self, text: str) -> None:
        for relation, subject, target in read(text):
            self.facts[relation, subject] = target
            for other in RELATIONS.values():
                if other.inverse == relation:
                    self.facts[other.name, target] = subject

    def _next(self) -> str:
        name = self.question.start
        for relation in self.question.path:
            fact = relation, name
            if fact not in self.facts:
                self._open, tried = fact, self.searched.get(fact, 0)
                if tried < TRIES:
                    # Words said twice count twice: passages of similar names fall behind those of the relation.
                    words = query(name, relation) + f" {RELATIONS[relation].words}" * tried
                    return self.format.render(ToolCall("search", {"query": words}))
                return f"<answer>{self._guess() or name}</answer>"
            name = self.facts[fact]
        return f"<answer>{name}</answer>"

    def _guess(self) -> str:
        """Return any object of the last relation that was seen; empty where none was."""
        last = self.question.path[-1]
        return next((target for (seen, _), target in self.facts.items() if seen == last), "")
