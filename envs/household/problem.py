"""PDDL problems, as far as ALFWorld games use them: objects, initial facts and a goal.

PDDL does not tell upper from lower case; everything here is in lower case, as the planner of ALFWorld reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

Expression: TypeAlias = "str | list[Expression]"
Fact: TypeAlias = tuple[str, ...]

_COMMENT = re.compile(r";[^\n]*")
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class Problem:
    """What a problem declares.

    Args:
        types: The type of each declared object.
        facts: The initial facts, each a predicate and its arguments.
        goal: The goal as nested lists.
    """

    types: dict[str, str]
    facts: frozenset[Fact]
    goal: Expression

    @cached_property
    def by_predicate(self) -> dict[str, list[Fact]]:
        """The arguments of the facts of each predicate, sorted."""
        found: dict[str, list[Fact]] = {}
        for fact in sorted(self.facts):
            found.setdefault(fact[0], []).append(fact[1:])
        return found


def parse_problem(text: str) -> Problem:
    """Read a PDDL problem.

    Raises:
        ValueError: it is no problem, or one of its parts is missing; the message is the end of a sentence.
    """
    define = _nested(text)
    if not isinstance(define, list) or not define or define[0] != "define":
        raise ValueError("is no PDDL problem: it does not begin with (define")
    parts = {part[0]: part[1:] for part in define[1:] if isinstance(part, list) and part and isinstance(part[0], str)}
    for name in (":objects", ":init", ":goal"):
        if name not in parts:
            raise ValueError(f"is no complete PDDL problem: it has no {name}")
    if len(parts[":goal"]) != 1:
        raise ValueError("has a :goal that is not one expression")
    facts = frozenset(tuple(fact) for fact in map(_fact, parts[":init"]) if fact[0] != "=")
    return Problem(_types(parts[":objects"]), facts, parts[":goal"][0])


def typed(words: list[Expression]) -> list[tuple[str, str]]:
    """Return the pairs of a typed list such as `?o1 ?o2 - object ?r - receptacle`."""
    pairs: list[tuple[str, str]] = []
    waiting: list[str] = []
    rest = iter(words)
    for word in rest:
        if not isinstance(word, str):
            raise ValueError(f"has an expression in a list of names: {word!r}")
        if word == "-":
            kind = str(next(rest, ""))
            pairs += [(name, kind) for name in waiting]
            waiting = []
        else:
            waiting.append(word)
    return pairs + [(name, "object") for name in waiting]


def _types(words: list[Expression]) -> dict[str, str]:
    return dict(typed(words))


def _fact(expression: Expression) -> list[str]:
    if not isinstance(expression, list) or not expression:
        raise ValueError(f"has {expression!r} where a fact should be")
    if expression[0] == "=":  # (= (total-cost) 0): costs are the planner's business
        return ["="]
    words = [word for word in expression if isinstance(word, str)]
    if len(words) != len(expression):
        raise ValueError(f"has an initial fact that is no plain fact: {expression!r}")
    return words


def _nested(text: str) -> Expression:
    stack: list[list[Expression]] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text.lower())):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            if not stack:
                raise ValueError("closes a parenthesis that it did not open")
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError("does not close its parentheses" if len(stack) > 1 else "is not one PDDL expression")
    return stack[0][0]
