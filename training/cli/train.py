"""The command `turngym train`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from ...agents.cli.settings import FINETUNING, WarmupOptions
from ...agents.cli.terminal import Shown, console, mistakes
from ...agents.cli.warmup import Warmup
from ...agents.evaluation.scores import Interval, NoScore
from ...envs import choices
from ...envs.options import EnvOptions
from ...envs.reserved_choices import find_outside_paths, reserved_choices
from ...tools.files import read_text
from ...tools.progress import Progress
from ..methods import check_methods, foreign, plausible
from ..runs.config import TrainConfig, adjust, from_run, read_recipe, recorded, with_options
from ..runs.folder import METRICS, SUMMARY
from ..runs.launch import launched

if TYPE_CHECKING:
    from ..runs.run import PreparedRun


RECIPE = "math-python"  # of `turngym train` without one
SHOWN = {"calls": "tool_calls_path", "silent": "silent_groups"}  # a path, and of the groups
WIDE = 160  # columns of a table where there is no terminal


@dataclass(frozen=True)
class Train(Shown):
    """Train a LoRA policy: `turngym train [RECIPE] [options]`.

    A recipe is `math-python` (the default), `household`, `search`, the name of a method (`turngym methods`), a TOML
    file, or several joined by `+`, as in `gsm8k-python+qwen2.5-1.5b`. Options replace the values of the recipe.
    """

    config: Annotated[tyro.conf.OmitArgPrefixes[TrainConfig], tyro.conf.arg(name="")]
    recipe: tyro.conf.Suppress[tyro.conf.Fixed[str]] = (
        ""  # whose values `config` has; none of a run that goes on
    )
    named: tyro.conf.Suppress[
        tyro.conf.Fixed[tuple[str, ...]]
    ] = ()  # the settings that the command names itself
    run_options: tyro.conf.Suppress[
        tyro.conf.Fixed[tuple[str, ...]]
    ] = ()  # of the environment, of a run that goes on
    begun: Annotated[str, tyro.conf.arg(name="from", metavar="RUN")] = ""
    """Begin a new run with the weights of the newest checkpoint of a run folder, and with its settings in place of a
    recipe's, so that a method can be added in the middle."""
    dry_run: bool = False
    """Check the run, say what memory it takes, and print its first prompt; draw and write nothing."""

    def run(self) -> int:
        if self.dry_run:
            with self.shown(), mistakes(), Progress("dry run"):
                from ..runs.dry_run import dry_run, tell

                return tell(dry_run(self.config, self.recipe, self.named))
        with mistakes():
            check_methods(self.config.method)  # before torch is imported
            console.quiet = not launched().first
        with self.shown() as notes:
            prepared = self._prepared(notes)
            try:
                self._train(prepared, notes)
                if drew := recorded(prepared.folder).get("draw_threads"):
                    notes.print(f"threads that drew: {drew}")
                console.print(before_after(json.loads(read_text(prepared.folder / SUMMARY))))
                console.print(f"run folder: {prepared.folder}")
            finally:
                if launched().first and (prepared.folder / METRICS).exists():
                    write_report(prepared.folder)
        return 0

    def _prepared(self, notes: Console) -> PreparedRun:
        with mistakes(), Progress("getting ready"):
            from ..runs import run

            config, lines = self._adjusted()
            prepared = run.prepare(config)
        begins = f"training {self.config.policy} on {self.config.env} with {self.config.method} into {prepared.folder}"
        read = (
            f"{name} has grade C, a plausible reading: turngym methods {name}"
            for name in plausible(config.method)
        )
        lines += (*read, *filter(None, (prepared.train.note, prepared.valid.note)))
        notes.print(begins, *lines, sep="\n", markup=False, soft_wrap=True)
        if self.config.engine.own_server:
            notes.print(
                f"starting a vLLM server, which takes a minute or more: {prepared.folder / 'server.log'}"
            )
        return prepared

    def _adjusted(self) -> tuple[TrainConfig, tuple[str, ...]]:
        """Return the config, adjusted to policy and environment if it is a recipe's, and lines that say how."""
        if self.recipe:
            return adjust(self.config, self.recipe, self.named)
        if "option" in self.named:
            return with_options(self.config, self.run_options, self.named), ()
        return self.config, ()

    def _train(self, prepared: PreparedRun, notes: Console) -> None:
        from ..loop.trainer import Refusals
        from ..runs import run

        try:
            hint = run.resume_hint(prepared.folder, self.config)
            with mistakes((ValueError, OSError, FloatingPointError, Refusals), hint):
                self._watch(prepared, notes)
        except KeyboardInterrupt:
            console.print(f"interrupted; {run.resume_hint(prepared.folder, self.config)}")
            raise

    def _watch(self, prepared: PreparedRun, notes: Console) -> None:
        """Train and show each step; a validation without a score says how to go on once its cause is mended."""
        from ..runs import run

        try:
            watch(run.execute(prepared), self.config.schedule.steps, notes)
        except NoScore as error:
            hint = run.resume_hint(prepared.folder, self.config)
            raise NoScore(f"{error}; mend it, then {hint}") from error


def train_of(args: list[str]) -> Train:
    """Return the command with the defaults of its recipe, as `recipe_of` does; `args` are those of `recipe_of`."""
    recipe = args[1] if len(args) > 1 and not args[1].startswith("-") else RECIPE
    config = recipe_of(args)
    recipe = "" if "--resume" in args or _options(args).begun else recipe
    named = (
        arg[2:].partition("=")[0].replace("-", "_").removeprefix("no_")
        for arg in args
        if arg.startswith("--")
    )
    return Train(config, recipe, tuple(named), config.environment.option)


def recipe_of(args: list[str]) -> TrainConfig:
    """Return the defaults of the recipe, whose name is taken out of `args`, or of the run of `--resume` or `--from`."""
    named, allowed = len(args) > 1 and not args[1].startswith("-"), _named(args)
    if begun := _options(args).begun:
        if named or "--resume" in args:
            raise ValueError(
                f"--from takes its settings from {begun}; leave out {args[1] if named else '--resume'}"
            )
        own = from_run(Path(begun), allowed)
        return replace(own, policy=begun, chat_template="", out="", from_optimizer=False)
    recipe = read_recipe(args.pop(1) if named else RECIPE, allowed=allowed)
    if "--resume" not in args or {"-h", "--help"} & set(args):
        return recipe
    out: str = _options(args).out or recipe.out
    if out:
        return replace(from_run(Path(out), allowed), out=out)
    raise ValueError("--resume needs the run folder: turngym train --resume --out FOLDER")


def warmup_of(args: list[str]) -> Warmup:
    """Return the defaults of a warm-up; of a recipe's policy where `args` name one, whose name is taken out of them."""
    kind = Warmup(
        training=FINETUNING
        if any(arg.partition("=")[0] == "--policy" for arg in args)
        else WarmupOptions()
    )
    if (
        len(args) < 2
        or args[1].startswith("-")
        or ({*"/:"} & {*args[1]} and not args[1].endswith(".toml"))
    ):
        return kind
    recipe = read_recipe(args.pop(1), allowed=[*_named(args), "out=", "log="])  # neither is used
    if recipe.policy == "tiny":
        raise ValueError(
            "the recipe starts from the policy 'tiny', which needs no warm-up; name an environment"
        )
    return replace(kind, env=recipe.env, out=Path(recipe.policy), options=recipe.environment)


def _named(args: list[str]) -> list[str]:
    """Return what the command line itself names that data may not choose, as `reserved_choices` gives it."""
    found = _options(args)
    shots = found.shots if found.shots and not found.shots.isdecimal() else 0
    options = EnvOptions(
        found.tasks, shots=shots, option=tuple(item for item in found.option if "=" in item)
    ).kwargs()
    env = found.env or (args[1] if args[0] == "warmup" and len(args) > 1 else "")
    lists = {name: getattr(found, name) for name in ("server", "server_option", "chat_template")}
    if found.method and foreign(found.method):
        lists["method"] = [found.method]
    given = {arg[2:].partition("=")[0].replace("-", "_") for arg in args if arg.startswith("--")}
    replaced = [
        f"{name}="
        for name in sorted(given & choices.SETTINGS.keys() - {*lists, "env", "method", "option"})
    ]
    chosen = [*reserved_choices(options, env), *find_outside_paths(options), *replaced]
    return chosen + [f"{name}={value}" for name, values in lists.items() for value in values]


def _options(args: list[str]) -> argparse.Namespace:
    """Return the options in `args` that say what the others begin from."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("out", "tasks", "env", "method", "shots"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--from", dest="begun", default="")
    for name in ("option", "server", "server-option", "chat-template"):
        parser.add_argument(f"--{name}", nargs="*", default=[])
    return parser.parse_known_args(args)[0]


def watch(
    records: Iterable[Any],
    steps: int,
    console: Console,
    run: str = "",
    whole: Progress | None = None,
) -> None:
    """Show each record of a run as it comes; of one of several also its name, `run`, and how far the `whole` is."""
    say, before = partial(console.print, markup=False, soft_wrap=True), whole.done if whole else 0
    with Progress(f"{run}: step" if run else "step", steps) as work:
        for record in records:
            work.reach(record.step)
            if whole:
                whole.reach(before + record.step)
            work.text = step_line(record.metrics) if record.metrics else ""
            step = f"{run}  step {record.step}" if run else f"step {record.step}"
            if record.metrics and record.metrics["refused"]:
                say(f"{step} was refused: {record.metrics['refused']}", style="red")
            for alarm in record.begun:
                say(f"{step}: {alarm}", style="yellow")
            if record.valid is not None and not (
                run and record.step == steps
            ):  # the outcome of a named run follows
                say(
                    f"{step}: held-out success {record.valid.success}", style="dim" if run else None
                )


def show_tables(tables: Iterable[Any], folder: Path, names: Iterable[str]) -> None:
    """Print tables, and which files of `folder` they were written to."""
    if not console.is_terminal:
        console.width = WIDE
    for table in tables:
        console.print("", table)
    console.print(f"\nwritten: {', '.join(str(folder / name) for name in names)}", soft_wrap=True)


def step_line(metrics: dict[str, Any]) -> str:
    """Return one step in a line: reward, success, entropy by turn (nats), what is known of `SHOWN`, speed."""
    by_turn = " ".join(
        f"{value:.2f}" for name, value in metrics.items() if name.startswith("entropy_turn/")
    )
    shown = "".join(
        f"  {name} {metrics[key]:.2f}"
        for name, key in SHOWN.items()
        if isfinite(metrics.get(key, nan))
    )
    speed = f"  {metrics['tokens'] / metrics['seconds']:.0f} tokens/s" if metrics["seconds"] else ""
    return f"reward {metrics['reward']:.2f}  success {metrics['success']:.2f}  entropy [{by_turn}]{shown}{speed}"


def before_after(summary: Mapping[str, Any]) -> Table:
    """Return the table that ends a run, of what `summary.json` holds."""
    table = Table(
        "", "step", "held-out success (95 %)", "by a tool's result", "turns", "cut turns", box=None
    )
    for name, step in (("before", 0), ("after", summary["steps"])):
        found = summary[name]
        success = Interval(found["success"], found["low"], found["high"])
        cut = "" if found["cut"] is None else f"{100 * found['cut']:.0f} %"
        tool = f"{100 * found['tool_share']:.0f} %"
        table.add_row(name, str(step), str(success), tool, f"{found['turns']:.2f}", cut)
    return table


def write_report(folder: Path) -> None:
    """Write the page into a folder and print where it is, or why there is none."""
    from ..report.page import NAME, write_page

    said = f"report: {folder / NAME}"
    try:
        with Progress("writing the report"):
            write_page([folder], folder / NAME)
    except (OSError, ValueError) as error:
        said = f"no report: {error}"
    console.print(said, markup=False, soft_wrap=True)
