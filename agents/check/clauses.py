"""The contract of environments: `turngym check ID` runs every clause, and so can the tests of other packages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...envs.registry import make
from .canary import check_canary
from .copies import check_fork, check_journal, check_snapshot, check_vector
from .episodes import Broken, Case
from .single import check_generators, check_gold, check_gymnasium, check_process, check_seeds, check_threads
from .steps import check_any_text, check_steps, check_tasks


@dataclass(frozen=True)
class Clause:
    """One promise: its name, what it says, and the function that returns a note or raises where it is not kept."""

    name: str
    about: str
    check: Callable[[Case], str]


@dataclass(frozen=True)
class Result:
    """Whether a clause is kept: `problem` says what broke, its value and the fix, `note` what was tried."""

    name: str
    about: str
    ok: bool
    problem: str = ""
    note: str = ""


def _clause(promise: Callable[[Case], str]) -> Clause:
    """Return the clause of a function whose docstring says what it promises."""
    about = (promise.__doc__ or "").rstrip(".")
    name = promise.__name__.removeprefix("check_").replace("_", "-")
    return Clause(name, about[:1].lower() + about[1:], promise)


PROMISES = (
    *(check_gymnasium, check_gold, check_seeds, check_tasks, check_process, check_generators, check_threads),
    *(check_fork, check_snapshot, check_journal, check_vector, check_steps, check_any_text, check_canary),
)
CLAUSES = tuple(_clause(promise) for promise in PROMISES)


def check(env_id: str, options: Mapping[str, Any] | None = None, seed: int = 0) -> Iterator[Result]:
    """Yield the result of each clause of the contract for an environment that is made with `options`.

    seed: chooses tasks, actions and the canary.

    Raises:
        ValueError, TypeError: there is no such environment, its options are others, or it is no `TextEnv`.
    """
    case = Case(env_id, options or {}, seed)
    make(env_id, **case.options).close()
    return (run(clause, case) for clause in CLAUSES)


def run(clause: Clause, case: Case) -> Result:
    """Return the result of one clause; whatever comes out of the environment breaks it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a clause that minds them says so itself
            note = clause.check(case)
    except (Broken, AssertionError) as problem:
        return Result(clause.name, clause.about, False, str(problem))
    except Exception as error:
        return Result(clause.name, clause.about, False, f"it raises {type(error).__name__}: {error}")
    return Result(clause.name, clause.about, True, note=note)
