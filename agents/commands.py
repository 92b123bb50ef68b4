"""Commands that neither train nor evaluate: `turngym play | check | replay | warmup | envs | doctor | serve-search`.

Each command is a frozen dataclass whose fields are its options. Input is checked before torch is imported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.markup import escape
from rich.table import Column, Table

from ..envs.registry import ENVS, GROUP, EnvOptions, check_levels, make
from ..envs.splits import begin, make_with_examples
from ..tools.plugins import list_plugins
from ..tools.progress import Work
from .eval_command import Environment
from .players import play_at_terminal
from .settings import LoraOptions, MachineOptions, WarmupOptions
from .terminal import Shown, console, mistakes

if TYPE_CHECKING:
    from .warmup.pretrain import WarmupStep


@dataclass(frozen=True)
class Envs:
    """List the environments, also those that other packages declare."""

    def run(self) -> int:
        table = Table(
            Column("id", no_wrap=True), "what it is", Column("from", overflow="fold"), box=None
        )
        for entry in ENVS:
            table.add_row(entry.id, entry.summary, entry.package)
        for plugin in list_plugins(GROUP, taken=[entry.id for entry in ENVS]):
            table.add_row(escape(plugin.name), escape(plugin.about), plugin.package)
        console.print(table)
        return 0


@dataclass(frozen=True)
class Doctor(Shown):
    """Report what works on this machine.

    The exit status is 1 if something that turngym needs does not work: the default isolation level of tools, a call of
    the Python tool, math-verify in a worker process, or a folder to write to.
    """

    def run(self) -> int:
        from .doctor import EXTRA, findings

        table = Table("what", "", Column("", overflow="fold"), box=None, header_style="bold")
        with self.shown(), Work("testing"):
            found = list(findings())
        for one in found:
            no = "[bold red]no[/bold red]" if one.needed else "no"
            mark = {True: "[green]yes[/green]", False: no, None: ""}[one.works]
            table.add_row(escape(one.what), mark, escape(one.about))
        console.print(table)
        lacking = sum(one.needed and one.works is False for one in found)
        extras = [
            one.what.removeprefix(EXTRA)
            for one in found
            if one.works is False and one.what.startswith(EXTRA)
        ]
        what = f"lacks {lacking} of what it needs" if lacking else "has all that it needs"
        without = (
            f", and does without the extras {', '.join(extras)}" if extras else ", and every extra"
        )
        console.print(f"turngym {what}{without}", markup=False, soft_wrap=True)
        return 1 if lacking else 0


@dataclass(frozen=True)
class Play:
    """Play an environment in the terminal."""

    env: tyro.conf.Positional[str] = "turngym/MathPython-v0"
    """Environment id."""
    task: int | None = None
    """Index of the task; by default a random one."""
    seed: int | None = None
    """Seed of the environment."""
    options: Environment = EnvOptions()

    def run(self) -> int:
        with mistakes():
            env = make_with_examples(self.env, self.options.kwargs())
            check_levels(env)
            _, info = (
                env.reset(seed=self.seed) if self.task is None else begin(env, self.task, self.seed)
            )
        with mistakes(), closing(env):
            play_at_terminal(env, info["messages"], console)
        return 0


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
            from .check.clauses import check

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
            from .replay import replay_journal

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


@dataclass(frozen=True)
class Warmup(Shown):
    """Train on demonstrations of an environment's expert: a new small policy, or LoRA weights of the model `--policy`.

    With `--policy` the defaults of episodes, steps, batch, lr and noise are those of fine-tuning: 160, 40, 4, 0.001, 0.
    """

    env: tyro.conf.Positional[str] = "turngym/Household-v0"
    """Environment id."""
    out: Path = Path("runs/warm")
    """Folder to write. It can be used as `--policy`."""
    training: tyro.conf.OmitArgPrefixes[WarmupOptions] = WarmupOptions()
    policy: str = ""
    """The model whose LoRA weights learn, as `turngym eval` takes it; by default a small one is made from nothing."""
    data: str = ""
    """JSONL file of conversations (`messages`) to learn from in place of the environment's; for `--policy` only."""
    lora: tyro.conf.OmitArgPrefixes[LoraOptions] = LoraOptions()
    device: str = "cpu"
    """`cpu`, `cuda` or `mps`; for `--policy` only."""
    dtype: str = "float32"
    """Data type of the frozen weights: `float32` or `bfloat16`."""
    slow_dtype: bool = False
    """Take `bfloat16` also on a processor that is slower with it, for the memory that it spares."""
    resume: bool = False
    """Continue the warm-up in `--out`."""
    options: Environment = EnvOptions()

    def run(self) -> int:
        with self.shown() as notes:
            with mistakes(), Work("getting ready"):
                note, updates = self._finetune() if self.policy else self._pretrain()
            if note:
                notes.print(note, markup=False, soft_wrap=True)
            try:
                with mistakes((ValueError, OSError)):
                    for said in (at.note for at in updates if at.note):
                        notes.print(said)
            except KeyboardInterrupt:
                console.print("interrupted; the same command with --resume continues")
                raise
        console.print(f"policy: {self.out}  (turngym eval {self.env} --policy {self.out})")
        return 0

    def _pretrain(self) -> tuple[str, Iterable[WarmupStep]]:
        from .warmup.pretrain import Settings, prepare, run

        for name, other in (
            ("data", ""),
            ("lora", LoraOptions()),
            ("device", "cpu"),
            ("dtype", "float32"),
        ):
            if (value := getattr(self, name)) != other:
                raise ValueError(
                    f"{name} is {value!r}, which is for the LoRA weights of a model; add --policy"
                )
        settings = Settings(self.env, self.options.kwargs(), self.training)
        prepared = prepare(settings, self.out, resume=self.resume)
        return prepared.split.note, run(prepared)

    def _finetune(self) -> tuple[str, Iterable[WarmupStep]]:
        from .warmup.finetune import Finetune, prepare, run

        machine = MachineOptions(self.device, self.dtype, self.training.threads, self.slow_dtype)
        options = self.options.kwargs()
        settings = Finetune(
            self.policy, self.env, options, self.data, self.training, self.lora, machine
        )
        prepared = prepare(settings, self.out, resume=self.resume)
        return prepared.split.note if prepared.split else "", run(prepared)


@dataclass(frozen=True)
class ServeSearch(Shown):
    """Serve a corpus over HTTP with the protocol of Search-R1's retrieval server, until interrupted."""

    corpus: tyro.conf.Positional[Path]
    """JSONL file, also `.gz`: rows `{id, title, text}` or `{id, contents}`."""
    host: str = "127.0.0.1"
    """Address to listen on. A token is required if other machines can reach it."""
    port: int = 8000
    """Port to listen on; 0 chooses a free one."""
    k1: float = 1.5
    """BM25: how slowly the weight of a word saturates with its count."""
    b: float = 0.75
    """BM25: how much the length of a passage counts, 0 to 1."""
    cache: Path | None = None
    """Folder for the index; by default a folder in the user's cache."""
    token_env: str | None = None
    """Environment variable with the token that clients must send as `Authorization: Bearer`."""
    token_file: Path | None = None
    """File with that token."""
    allow_host: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """One more name under which clients ask, as in their URL; may be given again. Loopback and the address itself are
    allowed."""

    def run(self) -> int:
        with mistakes():
            from ..tools.search.index import open_index
            from ..tools.search.serve import serve

            token = self._token()
            with self.shown():
                index = open_index(self.corpus, self.cache, k1=self.k1, b=self.b)
            with serve(
                index, self.host, self.port, token=token, allow_hosts=self.allow_host
            ) as url:
                console.print(f"{url}/retrieve: {escape(index.name)}", soft_wrap=True)
                threading.Event().wait()
        return 0

    def _token(self) -> str:
        if self.token_env is not None and self.token_file is not None:
            raise ValueError("--token-env and --token-file are both given; give one")
        token, lack = "", ""
        if self.token_file is not None:
            token, lack = (
                self.token_file.read_text().strip(),
                f"--token-file: {self.token_file} is empty",
            )
        elif self.token_env is not None:
            token = os.environ.get(self.token_env, "")
            lack = f"--token-env: the environment variable {self.token_env} is not set or empty"
        if lack and not token:
            raise ValueError(lack)
        return token
