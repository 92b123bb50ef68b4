"""The command `turngym replay`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.markup import escape

from ...envs.options import EnvOptions
from .evaluate import Environment
from .terminal import Shown, console, mistakes


@dataclass(frozen=True)
class ReplayJournal(Shown):
    """Play the episodes of a journal again and report the first difference; exit status 1 if there is one."""

    journal: tyro.conf.Positional[Path]
    """The `trees.jsonl` of an evaluation, or a file in the folder `trees` of a run."""
    task: int | None = None
    """Only the episodes of this task."""
    branch: int | None = None
    """Only this branch of each task."""
    env: str = ""
    """Environment id. It has to be named where it is of another package; a journal cannot choose whose code runs."""
    # These replace the recorded options, for instance after a file of tasks was moved.
    options: Environment = EnvOptions()

    def run(self) -> int:
        with self.shown(), mistakes():
            from ..journal.replay import replay_journal

            played = failed = 0
            chosen = {"task": self.task, "branch": self.branch}
            for result in replay_journal(
                self.journal, **chosen, options=self.options.kwargs(), env_id=self.env
            ):
                if result.divergence is not None:
                    console.print(
                        f"[bold red]diverged[/bold red]  {escape(str(result.divergence))}"
                    )
                    return 1
                played, failed = played + 1, failed + result.failed
        note = (
            f"; {failed} of them up to an infrastructure failure, which cannot be replayed"
            if failed
            else ""
        )
        console.print(
            f"{played} episodes of {self.journal} were replayed without a difference{note}"
        )
        return 0
