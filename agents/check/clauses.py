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
from .steps import check_any_text, check_steps
from .tasks import check_tasks


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


CLAUSES = (
    Clause("gymnasium", "Gymnasium's check_env passes without a warning", check_gymnasium),
    Clause("gold", "playing the gold earns a total reward of 1", check_gold),
    Clause(
        "seeds", "a seed gives the same episode in every instance, and not all seeds give the same one", check_seeds
    ),
    Clause("tasks", "a task is chosen by its index, and no split has the tasks of another", check_tasks),
    Clause("process", "a seed gives the same episode in another process with another hash seed", check_process),
    Clause("generators", "the global generators of random and numpy.random do not change", check_generators),
    Clause(
        "threads",
        "environments that are stepped in turn, each from its own thread, behave as they do alone",
        check_threads,
    ),
    Clause(
        "fork",
        "a fork at every turn, also through wrappers, continues as the original does and does not affect it",
        check_fork,
    ),
    Clause(
        "snapshot",
        "a snapshot is JSON; restored in a fresh environment, it continues as the original does",
        check_snapshot,
    ),
    Clause("journal", "replaying the journal of an episode gives the same episode", check_journal),
    Clause(
        "vector",
        "make_vec, sync and async, with default arguments gives the same episodes as single environments",
        check_vector,
    ),
    Clause("steps", "observations, info, rewards and ends have the promised form", check_steps),
    Clause("any-text", "every text that an agent can write is answered in that form", check_any_text),
    Clause("canary", "a random text in place of the gold answers appears nowhere", check_canary),
)


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
