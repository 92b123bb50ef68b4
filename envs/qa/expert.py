"""An expert that answers questions of the invented world by searching."""

from __future__ import annotations

from ...tools import ToolCall, get_format
from .facts import RELATIONS
from .world import Question, parse, query, read

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
        self.searched: dict[
            tuple[str, str], int
        ] = {}  # how often what it leads to was searched for
        self._said = ""
        self._open = ("", "")  # what the last search was for

    def act(self, observation: str) -> str:
        """Return the next search or the answer. Raises ValueError where the first text is no question of the world."""
        if question := parse(observation.strip()):
            self.question, self.facts, self.searched = question, {}, {}
        elif not self.command:
            raise ValueError(
                f"the first text, {observation[:60]!r}, is no question of the world; begin with one"
            )
        else:
            if self.command == self._said:
                self.searched[self._open] = self.searched.get(self._open, 0) + 1
            for relation, subject, target in read(observation):
                self.facts[relation, subject] = target
                backwards = (
                    other.name for other in RELATIONS.values() if other.inverse == relation
                )
                self.facts |= {(other, target): subject for other in backwards}
        self.command = self._said = self._next()
        return self.command

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
                last = self.question.path[
                    -1
                ]  # it guesses any object of the last relation that was seen
                name = next(
                    (target for (seen, _), target in self.facts.items() if seen == last), name
                )
                break
            name = self.facts[fact]
        return f"<answer>{name}</answer>"
