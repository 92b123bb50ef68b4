"""Questions of one or several hops, and how they are taken apart again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...tasks import KeyedRandom
from .passages import NAME, shown
from .relations import RELATIONS, Relation


@dataclass(frozen=True)
class Question:
    """What is asked: where `path`, relation after relation, leads to from `start`."""

    start: str
    path: tuple[str, ...]


def ask(question: Question, rng: KeyedRandom | None) -> str:
    """Return a wording of the question: one of many that `rng` chooses, or the shortest form of each part."""

    def pick(texts: tuple[str, ...]) -> str:
        return texts[0] if rng is None else rng.choice(texts)

    relations = [RELATIONS[name] for name in question.path]
    text = shown(question.start, relations[0].subject)
    for relation in relations[:-1]:
        text = pick(relation.phrases).format(x=text)
    return pick(relations[-1].asks).format(x=text)


def query(name: str, relation: str) -> str:
    """Return what to search for to learn where a relation leads to from a name."""
    return f"{name} {RELATIONS[relation].words}"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\{x\}", "(.+)"))


def _compiled(texts: Iterator[tuple[Relation, str]]) -> list[tuple[Relation, re.Pattern[str]]]:
    return [(relation, _pattern(text)) for relation, text in texts]


_ASKS = _compiled((relation, text) for relation in RELATIONS.values() for text in relation.asks)
_PHRASES = _compiled((relation, text) for relation in RELATIONS.values() for text in relation.phrases)
_START = re.compile(f"(?:the )?({NAME})")


def parse(text: str) -> Question | None:
    """Return what a text asks, or None where it is no question of this world."""
    for relation, pattern in _ASKS:
        if (match := pattern.fullmatch(text)) and (found := _noun(match[1], relation.subject)):
            return Question(found.start, (*found.path, relation.name))
    return None


def _noun(text: str, kind: str) -> Question | None:
    """Return what a part of a question names, a thing of a kind: with a path where it is described."""
    if match := _START.fullmatch(text):
        return Question(match[1], ())
    for relation, pattern in _PHRASES:
        if relation.object == kind and (match := pattern.fullmatch(text)):
            found = _noun(match[1], relation.subject)
            if found:
                return Question(found.start, (*found.path, relation.name))
    return None
