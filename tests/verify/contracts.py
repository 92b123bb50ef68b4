"""What environments promise: every clause of the contract on every environment, what a turn is, canaries in golds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turngym.envs.text_env import TextEnv
from turngym.tests.verify.rows import Row, first

if TYPE_CHECKING:
    from turngym.agents.check.episodes import Subject


@dataclass(frozen=True)
class Contracts:
    """The contract of environments: every clause on each, canaries for the golds of many episodes, what a turn is."""

    seed: int = 0
    """Chooses tasks, actions and canaries."""
    episodes: int = 1000
    """Episodes of each environment without tools in which a canary is looked for."""
    tool_episodes: int = 100
    """The same of each environment with tools, whose own process a program searches in each."""

    def rows(self) -> Iterator[Row]:
        """Yield a row for each clause, then one for the canaries of each environment."""
        if min(self.episodes, self.tool_episodes) < 1:
            raise ValueError(
                f"episodes is {self.episodes} and tool_episodes is {self.tool_episodes}; both must be 1 or more"
            )
        from turngym.agents.check.clauses import CLAUSES, run
        from turngym.agents.check.episodes import Subject
        from turngym.envs.registry import ENVS, make
        from turngym.tests.verify.leaks import leak_row
        from turngym.tests.verify.turns import turn_rows

        cases = [Subject(entry.id, {}, self.seed) for entry in ENVS if not entry.needs]
        planted = [case for case in cases if _takes_canaries(make(case.env_id))]
        for clause in CLAUSES:
            judged = planted if clause.name == "canary" else cases
            results = [(case.env_id, run(clause, case)) for case in judged]
            kept = [
                env_id
                for env_id, result in results
                if result.ok and not result.note.startswith("not checked")
            ]
            others = [
                f"{env_id}: {result.problem or result.note}"
                for env_id, result in results
                if env_id not in kept
            ]
            yield Row(
                f"environments keep the clause {clause.name}: {clause.about}",
                len(kept),
                len(judged),
                first(others),
            )
        for case in planted:
            env = make(case.env_id)
            armed = bool(getattr(env, "toolbox", ()))
            env.close()
            yield hunted(case, self.tool_episodes if armed else self.episodes)
        yield leak_row()
        yield from turn_rows([case.env_id for case in cases], self.seed)


def _takes_canaries(env: TextEnv) -> bool:
    """Whether an environment holds a gold text; where the gold is a way of acting there is none to look for."""
    env.close()
    return type(env).plant is not TextEnv.plant


def kept(case: Subject, what: str) -> Row:
    """Count the clauses that an environment keeps; `what` names it in the row."""
    from turngym.agents.check.clauses import CLAUSES, run

    results = [run(clause, case) for clause in CLAUSES]
    broken = [f"{result.name}: {result.problem}" for result in results if not result.ok]
    unchecked = [
        f"{result.name}: {result.note}"
        for result in results
        if result.note.startswith("not checked")
    ]
    note = "; ".join(filter(None, [first(broken), *unchecked]))
    return Row(
        f"clauses of the contract that {what} keeps", len(results) - len(broken), len(results), note
    )


def hunted(case: Subject, episodes: int) -> Row:
    """Hunt for a canary in episodes with seeds of their own, from that of `case` on."""
    from turngym.agents.check.canary import hunt

    clean, seen = 0, []
    for i in range(episodes):
        try:
            clean += hunt(replace(case, seed=case.seed + i))
        except (
            Exception
        ) as problem:  # whatever comes out of an environment is no proof that it keeps its gold
            seen.append(f"{type(problem).__name__}: {problem}")
    what = f"episodes of {case.env_id} show the canary in place of the gold nowhere"
    return Row(what, clean, episodes, first(seen, 2))
