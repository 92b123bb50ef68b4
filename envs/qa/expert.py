"""An agent that answers the invented world's questions from the question and the retrieved passages alone.

It takes the question apart, searches for what it does not know yet, reads the passages' sentences, and goes on from
fact to fact.
"""

from __future__ import annotations

from ...tools import ToolCall, get_format
from .facts import RELATIONS
from .wording import Question, parse, query, read

TRIES = 2  # searches for one fact


class SearchExpert:
    """Plays one episode after the other: a text that asks a question of the world begins a new one.

    If another action is taken than it proposed, set `command` to that action; it continues from there.

    Args:
        format: How calls are written (`turngym.tools.FORMATS`).
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
        """Return the next search or the answer, given what was last observed.

        Raises:
            ValueError: the first text is no question of the world.
        """
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
                    return self._search(query(name, relation) + f" {RELATIONS[relation].words}" * tried)
                return self._answer(self._guess() or name)
            name = self.facts[fact]
        return self._answer(name)

    def _guess(self) -> str:
        """Return any object of the last relation that was seen; empty where none was."""
        last = self.question.path[-1]
        return next((target for (seen, _), target in self.facts.items() if seen == last), "")

    def _search(self, text: str) -> str:
        return self.format.render(ToolCall("search", {"query": text}))

    def _answer(self, text: str) -> str:
        return f"<answer>{text}</answer>"
