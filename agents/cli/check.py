"""The command `turngym check`."""

from __future__ import annotations

from dataclasses import dataclass

import tyro
from rich.markup import escape

from ...envs.options import EnvOptions, check_levels
from ...envs.registry import make
from .evaluate import Environment
from .terminal import Shown, console, mistakes


@dataclass(frozen=True)
class Check(Shown):
    """Check the contract of an environment, clause by clause; exit status 1 if one is broken."""

    env: tyro.conf.Positional[str]
    """Environment id."""
    seed: int = 0
    """Seed of the choice of tasks, actions and the canary."""
    options: Environment = EnvOptions()

    def run(self) -> int:
        with self.shown(), mistakes():
            from ..check.clauses import check

            env = make(self.env, **self.options.kwargs())
            check_levels(env)
            env.reset(seed=self.seed)  # what cannot begin is said once, and not by every clause
            env.close()
            broken = 0
            for result in check(self.env, self.options.kwargs(), self.seed):
                mark = "[green]ok[/green]    " if result.ok else "[bold red]BROKEN[/bold red]"
                console.print(f"{mark}  {result.name}: {escape(result.about)}")
                for line in filter(None, (result.problem, result.note)):
                    console.print(
                        f"        {escape(line)}", style="red" if line == result.problem else "dim"
                    )
                broken += not result.ok
        console.print(
            f"{self.env} breaks {broken} clauses" if broken else f"{self.env} keeps the contract"
        )
        return 1 if broken else 0
