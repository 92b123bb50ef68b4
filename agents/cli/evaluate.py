"""The command `turngym eval`, and the suites that it knows by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table

from ...envs.options import EnvOptions, levels_of, parse_named_values
from ...envs.registry import flag_of
from ...envs.reserved_choices import find_outside_paths, reserved_choices
from ...tools.checks import did_you_mean
from ...tools.formats.foreign import describe_format
from ...tools.progress import Progress
from ..evaluation.scores import Episode, Report
from ..models.folder import read_toml
from .settings import EndpointOptions, EngineChoice, MachineOptions, SamplingOptions, parsed
from .terminal import Shown, console, mistakes

Environment = Annotated[tyro.conf.OmitArgPrefixes[EnvOptions], tyro.conf.arg(name="environment")]
E = TypeVar("E", bound="Eval")
MOST_TASKS = 40  # in a printed table; `eval.json` has all
SUITES = Path(__file__).with_name("suites.toml")
KEYS = (
    *("env", "split", "tasks", "difficulty", "shots", "option", "episodes", "samples", "k"),
    *("temperature", "top_p", "max_tokens"),
)


@dataclass(frozen=True)
class Eval(Shown):
    """Evaluate a policy: avg@k, unbiased pass@k, pass^k and maj@k with 95 % intervals."""

    env: tyro.conf.Positional[str] = "turngym/MathPython-v0"
    """Environment id."""
    suite: str = ""
    """A suite that others quote, which sets environment, tasks, samples and sampling, by its name (`gsm8k`, `aime25`,
    `bfcl-simple`, …) or as a TOML file. Other options replace what it sets."""
    policy: str = ""
    """`tiny`, a run folder, a model folder, the name of a model on the Hugging Face hub, `expert` (plays the gold
    actions) or `observer` (an expert that uses only what it observes). The default is `tiny`."""
    chat_template: str = ""
    """File of a chat template (jinja) in place of the policy's own."""
    endpoint: tyro.conf.OmitArgPrefixes[EndpointOptions] = EndpointOptions()
    episodes: int = 256
    """Number of tasks."""
    samples: int = 1
    """Episodes of each task: the k of avg@k."""
    k: tuple[int, ...] = ()
    """The k of pass@k and pass^k, one or several; the powers of two when left out."""
    split: str = ""
    """Split of the tasks: `train`, `valid`, `test`, or `all` for all tasks of a list or a file. When left out it is
    `test`; of an environment without splits it is all tasks."""
    sampling: tyro.conf.OmitArgPrefixes[SamplingOptions] = SamplingOptions()
    top_p: float = 1.0
    """The smallest set of tokens with this mass is drawn from, 1 for all."""
    seed: int = 0
    """Seed of the choice of tasks and of all other randomness."""
    machine: tyro.conf.OmitArgPrefixes[MachineOptions] = MachineOptions()
    engine: tyro.conf.OmitArgPrefixes[EngineChoice] = EngineChoice()
    out: Path | None = None
    """Folder for `eval.json` and the journal of all episodes."""
    resume: bool = False
    """Finish the evaluation in `--out`: episodes that have a score are not played again."""
    against: Path | None = None
    """Folder of an earlier evaluation of the same tasks: the difference in success, paired by task."""
    options: Environment = EnvOptions()
    source: tyro.conf.Suppress[tyro.conf.Fixed[str]] = (
        ""  # of the suite, and whether its scores were checked
    )
    base: tyro.conf.Suppress[
        tyro.conf.Fixed[tuple[str, ...]]
    ] = ()  # the suite's own `option`, below the command's

    def run(self) -> int:
        with self.shown() as notes:
            report, levels, ahead = self._report(notes)
            if self.suite:
                console.print(f"suite {self.suite}: {self.source}", markup=False, soft_wrap=True)
            console.print(_table(report, levels))
            for table in _parts(report):
                console.print(Padding(table, (1, 0, 0, 0)))
            if ahead:
                console.print(
                    f"\nsuccess, less that of {self.against}: {ahead}", markup=False, soft_wrap=True
                )
            self.conclude()
        return 0

    def conclude(self) -> None:
        """Do what else follows an evaluation, also one that is interrupted; here nothing."""

    def kwargs(self) -> dict[str, Any]:
        """Return the options of the environment: the split, then the suite's, then the command's."""
        return {
            "split": self.split,
            **parse_named_values("option", self.base),
            **self.options.kwargs(),
        }

    def _report(self, notes: Console) -> tuple[Report, Mapping[str, str], str]:
        with mistakes(), Progress("getting ready"):
            from ..evaluation import run as evaluate
            from ..evaluation.results import difference, read_against

            names = (
                "episodes",
                "samples",
                "sampling",
                "top_p",
                "seed",
                "machine",
                "out",
                "resume",
                "endpoint",
            )
            own: dict[str, Any] = {name: getattr(self, name) for name in (*names, "chat_template")}
            prepared = evaluate.prepare(
                self.env, self.kwargs(), self.policy, ks=self.k, choice=self.engine, **own
            )
            other = self.against and read_against(self.against, prepared.env, set(prepared.tasks))
        notes.print(prepared.begins, markup=False, soft_wrap=True)
        if prepared.note:
            notes.print(prepared.note, markup=False, soft_wrap=True)
        try:
            with mistakes((ValueError, OSError)):
                played: list[Episode] = []
                report = evaluate.run(prepared, played.append)
                return report, levels_of(prepared.env), difference(played, other) if other else ""
        except KeyboardInterrupt:
            if self.out is not None:
                console.print("interrupted; the same command with --resume continues")
            self.conclude()
            raise


def _table(report: Report, levels: Mapping[str, str]) -> Table:
    table = Table("what", Column("value", overflow="fold"), box=None)
    table.add_row(
        "episodes",
        f"{report.episodes} ({report.tasks} tasks, {report.failed} failed and not scored)",
    )
    table.add_row(f"success, avg@{report.samples}", str(report.success))
    for name, values in (("pass@", report.pass_at), ("pass^", report.pass_hat)):
        for k, value in values.items():
            table.add_row(f"{name}{k}", str(value))
    if report.maj is not None:
        table.add_row(f"maj@{report.samples}", str(report.maj))
    table.add_row("mean reward", f"{report.reward:.3f}")
    for name, part in report.rewards.items():
        table.add_row(f"reward {name}", f"{part.value:.3f} (weight {part.weight:g})")
    table.add_row("successes by a tool's result", f"{100 * report.tool_share:.1f} %")
    table.add_row("turns", f"{report.turns:.2f}")
    if report.call_errors is not None:
        table.add_row(
            "calls", f"{report.calls:.2f}, of which {100 * report.call_errors:.1f} % failed"
        )
    for name, foreign in report.foreign_calls.items():
        table.add_row(
            escape(f"turns with a call in {describe_format(name)}"),
            escape(f"{foreign.turns}, not read; {foreign.fix}"),
        )
    if report.tokens is not None:
        table.add_row("tokens drawn in an episode", f"{report.tokens:.1f}")
    if report.cut is not None:
        fix = "; allow longer turns with --max-tokens" if report.cut > 0.2 else ""
        table.add_row("turns cut at the token limit", f"{100 * report.cut:.1f} %{fix}")
    for name, mean in report.search.items():
        what = (
            "searches per question"
            if name == "searches"
            else name.replace("recall@", "gold passages, recall@")
        )
        table.add_row(what, f"{mean.value:.3f} (of {mean.of})")
    if report.failure:
        table.add_row("first failure", escape(report.failure))
    if usage := report.usage:
        tokens = (
            f"{usage['prompt_tokens']} prompt and {usage['completion_tokens']} completion tokens"
        )
        if usage["requests"] and not usage["prompt_tokens"] + usage["completion_tokens"]:
            tokens = "an unknown number of tokens"
        table.add_row(
            "model",
            escape(f"{usage['model'] or 'unknown'}: {usage['requests']} requests, {tokens}"),
        )
        if "reasoning" in usage:
            table.add_row("reasoning", escape(usage["reasoning"]))
    if report.not_played:
        table.add_row(
            "not played", f"{report.not_played} episodes; add --resume and a larger --token-budget"
        )
    table.add_row("ends", ", ".join(f"{stop} {count}" for stop, count in report.stops.items()))
    for tool, level in levels.items():
        table.add_row(f"isolation of {tool}", level)
    return table


def _parts(report: Report) -> Iterator[Table]:
    """Yield the tables by category and by task, where they say more than the report and fit on a page."""
    if len(report.by_category) > 1:
        table = Table(
            Column("category", overflow="fold"),
            "tasks",
            "episodes",
            "success",
            "mean reward",
            box=None,
        )
        for name, part in report.by_category.items():
            reward = "" if part.reward is None else f"{part.reward:.3f}"
            table.add_row(
                escape(name), str(part.tasks), str(part.episodes), str(part.success or ""), reward
            )
        yield table
    if report.samples > 1 and len(report.by_task) <= MOST_TASKS:
        table = Table("task", Column("", overflow="fold"), "right", "mean reward", box=None)
        for task in report.by_task:
            right = f"{task.won} of {task.episodes - task.failed}"
            table.add_row(
                str(task.task),
                escape(task.id),
                right,
                "" if task.reward is None else f"{task.reward:.3f}",
            )
        yield table


def suite_of(args: Sequence[str], command: E) -> E:
    """Return `command` with what the suite that `args` name by `--suite` sets. Raises ValueError, OSError."""
    asked = [value for arg, value in pairwise(args) if arg == "--suite"]
    asked += [arg.removeprefix("--suite=") for arg in args if arg.startswith("--suite=")]
    if not asked:
        return command
    name, known = asked[-1], read_toml(SUITES)
    if name.endswith(".toml"):
        table, where = {"source": "of a file", **read_toml(Path(name))}, name
    elif name in known:
        table, where = known[name], f"the suite {name}"
    else:
        hint = did_you_mean(name, known)
        raise ValueError(
            f"there is no suite {name!r}; {hint}suites are {', '.join(known)}, or a TOML file"
        )
    source = str(table.pop("source"))
    if others := sorted(table.keys() - {*KEYS}):
        raise ValueError(f"{where} sets {', '.join(others)}; a suite sets {', '.join(KEYS)}")
    found = parsed(command, table, where)
    found = replace(found, suite=name, source=source, base=found.options.option)
    found = replace(found, options=replace(found.options, option=()))
    near = [Path(name).parent] if name.endswith(".toml") else []
    if reserved := [
        *reserved_choices(found.kwargs(), found.env),
        *find_outside_paths(found.kwargs(), *near),
    ]:
        raise ValueError(
            f"{where} asks for {reserved[0]}; leave it out, and give {flag_of(reserved[0])} yourself"
        )
    return found
