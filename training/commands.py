"""The commands of training: `turngym train | compare | methods | audit`, and `verify` in a source checkout.

Each command is a frozen dataclass whose fields are its options.
"""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from ..agents.commands import Warmup
from ..agents.terminal import console, mistakes
from ..envs.registry import EnvOptions, weaker_levels
from .config import TrainConfig, from_run, read_recipe
from .methods import METHODS, check_names, describe, title

WIDE = 120  # columns of a table where there is no terminal


@dataclass(frozen=True)
class Methods:
    """List the learning methods, or describe those that are named."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="METHOD [METHOD …]")] = ()
    """Methods to describe: equation, parameters with defaults and ranges, source, deviations from the paper."""

    def run(self) -> int:
        """Print a table of names and titles, or the card and the parameters of each named method."""
        if not self.names:
            table = Table("method", "what it is", box=None)
            for name in METHODS:
                table.add_row(name, title(name))
            console.print(table)
            console.print("parameters and equations: turngym methods METHOD")
        with mistakes():
            cards = [describe(name) for name in self.names]
        for text in cards:
            console.print(escape(text), soft_wrap=True)
        return 0


@dataclass(frozen=True)
class Train:
    """Train a LoRA policy: `turngym train [RECIPE] [options]`.

    A recipe is `math-python` (the default), `household`, `search`, the name of a method (`turngym methods`), or the
    path of a TOML file. Options replace the values of the recipe.
    """

    config: Annotated[tyro.conf.OmitArgPrefixes[TrainConfig], tyro.conf.arg(name="")]

    def run(self) -> int:
        """Train, with live progress, and print before and after."""
        with mistakes():
            check_names(self.config.method)  # before torch is imported

            from . import progress, run

            prepared = run.prepare(self.config)
        console.quiet = not prepared.launch.first
        console.print(
            f"training {self.config.policy} on {self.config.env} with {self.config.method} into {prepared.folder}"
        )
        if self.config.engine.own_server:
            console.print(f"starting a vLLM server, which takes a minute or more: {prepared.folder / 'server.log'}")
        try:
            from .loop import Refusals

            with mistakes((ValueError, OSError, FloatingPointError, Refusals), run.resume_hint(prepared.folder)):
                progress.watch(run.execute(prepared), self.config.schedule.steps, console)
        except KeyboardInterrupt:
            console.print(f"interrupted; {run.resume_hint(prepared.folder)}")
            raise
        console.print(progress.before_after(json.loads((prepared.folder / "summary.json").read_text())))
        console.print(f"run folder: {prepared.folder}")
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare methods on the same tasks, with the same seeds and budget, in one table and one picture."""

    methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="METHOD [METHOD …]")] = ()
    """Recipes of methods: names, or TOML files that set `method` and other settings of the method."""
    on: str = "math-python"
    """Recipe or TOML file with the settings that all methods share: environment, policy, steps, …"""
    seeds: int = 3
    """Number of seeds, and so of runs of each method. The first is the seed of `--on`, and the others follow it."""
    option: tuple[str, ...] | None = None
    """Options of the environment as `name=value`; they replace those of `--on`."""
    policy: str | None = None
    """Policy instead of that of `--on`: `tiny`, a model folder, or the name of a model on the Hugging Face hub."""
    steps: int | None = None
    """Largest number of steps of a run, instead of that of `--on`."""
    token_budget: int | None = None
    """A run ends after the step in which training has drawn this many tokens. 0 means no limit."""
    eval_every: int | None = None
    """Steps between validations. A smaller number shows more exactly when a success was reached."""
    out: str = ""
    """Folder of the comparison. By default the first of runs/compare, runs/compare-2, … that does not exist."""
    resume: bool = False
    """Continue the comparison in `--out`. Finished runs are kept; more methods and seeds can be added."""

    def run(self) -> int:
        """Train, with live progress, and print the tables."""
        with mistakes():
            from . import progress
            from .comparison import report
            from .comparison.plan import plan as make_plan

            plan = make_plan(self.methods, self.on, self.seeds, self._changes(), self.out, self.resume)
        console.print(
            f"comparing {', '.join(plan.methods)} on {plan.base}, seeds {', '.join(map(str, plan.seeds))}, "
            f"into {plan.folder}"
        )
        try:
            with mistakes((ValueError, OSError)):
                progress.watch_comparison(plan, console, lambda: report.write_report(plan))
        except KeyboardInterrupt:
            console.print(f"interrupted; continue with: {self._resume_command(plan.folder)}", soft_wrap=True)
            raise
        for table in report.write_report(plan):
            console.print("", report.shown(table), width=console.width if console.is_terminal else WIDE)
        console.print(f"\nwritten: {', '.join(str(plan.folder / name) for name in report.NAMES)}", soft_wrap=True)
        return 0

    def _changes(self) -> dict[str, Any]:
        """Return what replaces keys of the base recipe."""
        names = ("option", "policy", "steps", "token_budget", "eval_every")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _resume_command(self, folder: Path) -> str:
        """Return the command that continues this comparison."""
        options = {"on": self.on, "seeds": self.seeds, **self._changes(), "out": folder}
        named = [
            text
            for key, value in options.items()
            for text in (f"--{key.replace('_', '-')}", *(value if isinstance(value, tuple) else (str(value),)))
        ]
        return shlex.join(["turngym", "compare", *self.methods, *named, "--resume"])


@dataclass(frozen=True)
class Audit:
    """Check from the files of a run that no path and no token is missing or counted twice."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder."""

    def run(self) -> int:
        """Print each check with the number of steps that pass it; return 1 if a step fails one."""
        with mistakes((ValueError, OSError)):
            from .accounting import checks

            done = list(checks(self.folder))
        for check in done:
            mark = "[green]holds[/green]" if check.good else "[bold red]FAILS[/bold red]"
            console.print(f"{mark}  {check.held}/{check.of}  steps with {escape(check.what)}")
            if check.note:
                console.print(f"       [dim]{escape(check.note)}[/dim]")
        return 0 if all(check.good for check in done) else 1


@dataclass(frozen=True)
class Verify:
    """Measure how far the promises of turngym hold; only in a source checkout."""


def verify_command(args: list[str]) -> Any:
    """Return the command `verify`; its areas are loaded only where `args` begin with it.

    Raises:
        ValueError: `args` ask for it, and this is an installed package, which does not contain the areas.
    """
    if args[:1] != ["verify"]:
        return Verify
    try:
        return import_module("..tests.verify.command", __package__).Verify
    except ModuleNotFoundError as error:
        if not f"{error.name}".endswith((".tests", ".tests.verify")):
            raise
        raise ValueError("`turngym verify` needs a source checkout; the installed package leaves tests/ out") from None


def recipe_of(args: list[str]) -> TrainConfig:
    """Return the defaults of a training run: its recipe's or, with `--resume`, those of the run folder.

    `args` begin with `train`; a recipe's name is taken out of them.
    """
    named = len(args) > 1 and not args[1].startswith("-")
    weaker = _named_levels(args)
    recipe = read_recipe(args.pop(1) if named else "math-python", weaker=weaker)
    if "--resume" not in args or {"-h", "--help"} & set(args):
        return recipe
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", default=recipe.out)
    out: str = parser.parse_known_args(args)[0].out
    if not out:
        raise ValueError("--resume needs the run folder: turngym train --resume --out FOLDER")
    return replace(from_run(Path(out), weaker), out=out)


def warmup_of(args: list[str]) -> Warmup:
    """Return the defaults of a warm-up: a recipe's, that makes the policy which the recipe starts from.

    `args` begin with `warmup`; a recipe's name (an environment's has a slash) is taken out of them.
    """
    if len(args) < 2 or args[1].startswith("-") or ("/" in args[1] and not args[1].endswith(".toml")):
        return Warmup()
    recipe = read_recipe(args.pop(1), weaker=_named_levels(args))
    if recipe.policy == "tiny":
        raise ValueError("the recipe starts from the policy 'tiny', which needs no warm-up; name an environment")
    return Warmup(recipe.env, Path(recipe.policy), options=recipe.environment)


def _named_levels(args: list[str]) -> list[str]:
    """Return the isolation levels below the default that the command line itself names with `--option`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--option", nargs="*", default=[])
    named = [item for item in parser.parse_known_args(args)[0].option if "=" in item]
    return weaker_levels(EnvOptions(option=tuple(named)).kwargs())
