"""An expert that answers questions of the invented world by searching."""

from __future__ import annotations

from ...tools import ToolCall, get_format
from .facts import RELATIONS
from .world import Question, parse_question, read_facts, search_query

TRIES = 2  # searches for one fact before the expert guesses


class SearchExpert:
    """Answers questions of the world from nothing but the question and the passages shown.

    It searches for the first fact that it lacks, reads the facts that the passages state, and goes
    on from fact to fact. It plays one episode after the other.

    `command` is its last action. If another action is taken than it proposed, set `command` to that
    action; it continues from there.

    Args:
        format: How calls are written (`turngym.tools.FORMATS`).
    """

    def __init__(self, format: str = "tags") -> None:
        self.format = get_format(format)
        self.command = ""
        self.question = Question("", ())
        # What it has read in this episode: the object by (relation, subject).
        self.facts: dict[tuple[str, str], str] = {}
        # How often it has searched for the object of a (relation, subject).
        self.search_counts: dict[tuple[str, str], int] = {}
        self._proposed_command = ""
        self._sought = ("", "")  # the (relation, subject) whose object it has last searched for

    def act(self, observation: str) -> str:
        """Return the next search or the answer.

        Args:
            observation: A question, which begins an episode, or what the last action has shown.

        Raises:
            ValueError: The first text is no question of the world.
        """
        question = parse_question(observation.strip())
        if question is not None:
            self.question = question
            self.facts = {}
            self.search_counts = {}
        elif not self.command:
            raise ValueError(
                f"the first text, {observation[:60]!r}, is no question of the world; begin with one"
            )
        else:
            # If another action was taken, it was no search for the missing fact.
            if self.command == self._proposed_command:
                self.search_counts[self._sought] = self.search_counts.get(self._sought, 0) + 1
            self._learn_facts(observation)
        self.command = self._choose_action()
        self._proposed_command = self.command
        return self.command

    def _learn_facts(self, passages: str) -> None:
        """Note the facts that passages state, in both directions if a relation has an inverse."""
        for fact in read_facts(passages):
            self.facts[fact.relation, fact.subject] = fact.object
            for relation in RELATIONS.values():
                if relation.inverse == fact.relation:
                    self.facts[relation.name, fact.object] = fact.subject

    def _choose_action(self) -> str:
        """Follow the question's relations through the facts that are known, as far as they lead.

        The action is the answer, or a search for the first fact that is missing.
        """
        name = self.question.start
        for relation in self.question.path:
            target = self.facts.get((relation, name))
            if target is None:
                return self._search_or_guess(name, relation)
            name = target
        return self._answer(name)

    def _search_or_guess(self, name: str, relation: str) -> str:
        """Search for what a relation leads to from a name; guess the answer after `TRIES` tries."""
        self._sought = (relation, name)
        past_searches = self.search_counts.get(self._sought, 0)
        if past_searches >= TRIES:
            return self._answer(self._guess_answer() or name)
        # In another try the query has the relation's words once more. They count each time, so
        # passages about similar names fall behind those that state the relation.
        repeated_words = f" {RELATIONS[relation].search_words}" * past_searches
        query = search_query(name, relation) + repeated_words
        return self.format.render(ToolCall("search", {"query": query}))

    def _guess_answer(self) -> str | None:
        """Return any object of the question's last relation that was read; None if none was."""
        last_relation = self.question.path[-1]
        for (relation, _), target in self.facts.items():
            if relation == last_relation:
                return target
        return None

    def _answer(self, name: str) -> str:
        return f"<answer>{name}</answer>"
