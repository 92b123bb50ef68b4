"""The command line: `turngym train | eval | play | envs | methods`.

Each command is a frozen dataclass whose fields are its options. Input is checked before torch is imported, so that a
mistake is answered at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import tyro
from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from .agents.engine import Sampling
from .envs.options import EnvOptions
from .envs.registry import ENVS, make, play_options
from .training.config import TrainConfig, from_run, read_recipe

if TYPE_CHECKING:
    from .agents.scores import Report

EXTRA = ("jinja2", "peft", "safetensors", "tokenizers", "torch", "transformers")  # what `turngym[train]` brings
console = Console(highlight=False)


@dataclass(frozen=True)
class Envs:
    """List the environments."""

    def run(self) -> int:
        """Print id and summary of each."""
        table = Table("id", "what it is", box=None)
        for entry in ENVS:
            table.add_row(entry.id, entry.summary)
        console.print(table)
        return 0


@dataclass(frozen=True)
class Play:
    """Play an environment in the terminal."""

    env: tyro.conf.Positional[str] = "turngym/MathPython-v0"
    """Environment id."""
    task: int | None = None
    """Task index; drawn at random when left out."""
    seed: int | None = None
    """Seed of the environment's generator."""
    options: tyro.conf.OmitArgPrefixes[EnvOptions] = EnvOptions()

    def run(self) -> int:
        """Ask for actions until the episode ends."""
        with _mistakes():
            env = make(self.env, **{**play_options(self.env), **self.options.kwargs()})
            observation, info = env.reset(seed=self.seed, options={} if self.task is None else {"task": self.task})
        for message in info["messages"]:
            console.print(Panel(Text(message["content"]), title=message["role"], title_align="left"))
        done = False
        while not done:
            action = _ask()
            if action is None:
                console.print("left")
                return 0
            observation, reward, terminated, truncated, info = env.step(action)
            if observation:
                role = info["messages"][0]["role"]
                console.print(Panel(Text(observation), title=role, title_align="left"))
            done = terminated or truncated
        env.close()
        console.print(f"reward {reward:g}, {info['outcome']} ({info['stop']}) after {info['turn']} turns")
        return 0


@dataclass(frozen=True)
class Eval:
    """Evaluate a policy: avg@k and unbiased pass@k with 95 % intervals."""

    env: tyro.conf.Positional[str] = "turngym/MathPython-v0"
    """Environment id."""
    policy: str = "tiny"
    """`tiny`, a run folder, a model folder, a hub name, or `expert` (plays the gold)."""
    episodes: int = 256
    """Tasks to play."""
    samples: int = 1
    """Episodes a task: the k of avg@k."""
    split: str = "test"
    """`train`, `valid` or `test`."""
    temperature: float = 1.0
    """Sampling temperature; 0 is greedy."""
    max_tokens: int = 96
    """Most tokens a turn."""
    seed: int = 0
    """Chooses the tasks and keys all randomness."""
    device: str = "cpu"
    """`cpu`, `cuda` or `mps`."""
    dtype: str = "float32"
    """`float32` or `bfloat16`."""
    threads: int = 1
    """CPU threads of torch: more for larger models."""
    out: Path | None = None
    """Folder for `eval.json` and the journal of all episodes."""
    options: tyro.conf.OmitArgPrefixes[EnvOptions] = EnvOptions()

    def run(self) -> int:
        """Play, print the table, write the files."""
        with _mistakes():
            from .agents import evaluate

            prepared = evaluate.prepare(
                self.env,
                {"split": self.split, **self.options.kwargs()},
                self.policy,
                episodes=self.episodes,
                samples=self.samples,
                sampling=Sampling(temperature=self.temperature, max_tokens=self.max_tokens),
                seed=self.seed,
                device=self.device,
                dtype=self.dtype,
                threads=self.threads,
                out=self.out,
            )
        with (
            _mistakes((ValueError, OSError)),
            Progress(*Progress.get_default_columns(), console=console, transient=True) as progress,
        ):
            bar = progress.add_task("episodes", total=len(prepared.tasks) * self.samples)
            report = evaluate.run(prepared, lambda episode: progress.advance(bar))
        console.print(_table(report))
        if self.out is not None:
            (self.out / "eval.json").write_text(json.dumps(report.to_json(), indent=1) + "\n")
        return 0


@dataclass(frozen=True)
class Methods:
    """List the learning methods and their parameters."""

    def run(self) -> int:
        """Print name, parameters and first line of each card."""
        with _mistakes():
            from .training.methods import METHODS, describe

        table = Table("method", "parameters", "what it is", box=None)
        for name in METHODS:
            table.add_row(*describe(name))
        console.print(table)
        return 0


@dataclass(frozen=True)
class Train:
    """Train a LoRA policy. `turngym train [RECIPE] [options]`; options override the recipe."""

    config: tyro.conf.OmitArgPrefixes[TrainConfig]

    def run(self) -> int:
        """Train, with live progress, and print before and after."""
        with _mistakes():
            from .training import live, run

            prepared = run.prepare(self.config)
        console.print(
            f"training {self.config.policy} on {self.config.env} with {self.config.method} into {prepared.folder}"
        )
        try:
            with _mistakes((ValueError, OSError)):
                live.watch(run.execute(prepared), self.config.steps, console)
        except KeyboardInterrupt:
            console.print(f"interrupted; go on with: turngym train --resume --out {prepared.folder}")
            return 130
        console.print(live.before_after(json.loads((prepared.folder / "summary.json").read_text())))
        console.print(f"run folder: {prepared.folder}")
        return 0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    args = list(sys.argv[1:] if argv is None else argv)
    with _mistakes():
        recipe = TrainConfig()
        if args[:1] == ["train"]:
            recipe = _recipe(args)
    commands = (
        Annotated[Train, tyro.conf.subcommand(name="train", default=Train(recipe))]
        | Annotated[Eval, tyro.conf.subcommand(name="eval")]
        | Annotated[Play, tyro.conf.subcommand(name="play")]
        | Annotated[Envs, tyro.conf.subcommand(name="envs")]
        | Annotated[Methods, tyro.conf.subcommand(name="methods")]
    )
    command: Any = tyro.cli(commands, args=args, prog="turngym", description=__doc__.splitlines()[0] if __doc__ else "")
    sys.exit(command.run())


def _recipe(args: list[str]) -> TrainConfig:
    """Return the defaults of a training run: its recipe's or, with `--resume`, those of the run folder."""
    named = len(args) > 1 and not args[1].startswith("-")
    recipe = read_recipe(args.pop(1) if named else "math-python")
    if "--resume" not in args or {"-h", "--help"} & set(args):
        return recipe
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", default=recipe.out)
    out: str = parser.parse_known_args(args)[0].out
    if not out:
        raise ValueError("--resume needs the run folder: turngym train --resume --out FOLDER")
    return replace(from_run(Path(out)), out=out)


def _table(report: Report) -> Table:
    table = Table("what", "value", box=None)
    table.add_row("episodes", f"{report.episodes} ({report.tasks} tasks, {report.failed} failed and not scored)")
    table.add_row(f"success, avg@{report.samples}", str(report.success))
    for k, value in report.pass_at.items():
        table.add_row(f"pass@{k}", str(value))
    table.add_row("mean reward", f"{report.reward:.3f}")
    table.add_row("successes by a tool's result", f"{100 * report.tool_share:.1f} %")
    table.add_row("turns", f"{report.turns:.2f}")
    table.add_row("ends", ", ".join(f"{stop} {count}" for stop, count in report.stops.items()))
    return table


@contextmanager
def _mistakes(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError, LookupError, TypeError),
) -> Iterator[None]:
    """Answer a user's mistake with one line; set TURNGYM_TRACEBACK=1 to see where it was found."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        _refuse(f"{error.name} is not installed; policies need the training extra: pip install 'turngym[train]'")
    except kinds as error:
        if os.environ.get("TURNGYM_TRACEBACK"):
            raise
        _refuse(str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error))


def _refuse(message: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("error: ", "bold red"), message))
    sys.exit(2)


def _ask() -> str | None:
    """Read one action; a line that opens `<python>` goes on to its end. None when the person leaves."""
    try:
        text = console.input("[bold]> [/bold]")
        while text.count("<python>") > text.count("</python>"):
            text += "\n" + console.input("[bold]. [/bold]")
    except (EOFError, KeyboardInterrupt):
        return None
    return None if text.strip() in (":q", ":quit") else text


if __name__ == "__main__":
    main()
