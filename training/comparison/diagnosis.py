"""A diagnosis: worlds, and a comparison in each, whose seeds begin with policies of their own.

Its folder holds WORLD/start/seed-S, the policies that seeds begin with, and WORLD/METHOD/seed-S, which are ordinary run
folders with what the trained policy measured. What is whole is kept, so a diagnosis that died goes on where it was. A
policy to begin with is warmed up to the world's table, measured, and refused outside its gates: one that lacks the
skill shows nothing of a control, as there is nothing that a control could keep.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...agents.cli.settings import flat
from ...agents.journal.trees import make_writable_folder, write_file
from ...envs.diagnostic import WORLDS, DiagnosticWorld, Start
from ...envs.split_episodes import open_split
from ...envs.tasks import did_you_mean
from ...tools.progress import track
from ..report.picture import plain, save
from ..runs.config import TrainConfig, revision
from .measure import SAMPLES, Final, Measured
from .outcomes import Table, final_tables, outcomes
from .plan import PLAN, REPORTS, Comparison, Trial, folder_of, method_configs, try_runs
from .workers import in_processes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BASE = {
    "method": "grpo",
    "prompts": 8,
    "group": 8,
    "lr": 3e-4,
    "lr_end": 0.1,
    "rank": 32,
    "eval_tasks": 64,
}
STEPS, EVAL_EVERY = 120, 20  # of a comparison in a world, unless the command names others
IN_WORLD = (
    "seed",
    "steps",
    "token_budget",
    "eval_every",
)  # what a command may change of a comparison in a world
FILE = (
    "start.json"  # of a policy that a seed begins with, written last: a folder that has it is whole
)
GATES = {
    "tool": 0.06,
    "skill": 0.12,
    "valid": 0.05,
    "success": 0.08,
    "pass_at_8": 0.12,
}  # how far from the table
PROBED = 8  # steps in which a method that acts is to differ
TABLES, DATA, PICTURE = (f"diagnose.{ending}" for ending in ("md", "json", "png"))
PANELS = {
    "success": "success",
    "tool": "p(tool)",
    "skill": "skill",
    "entropy": "entropy of turn 0 (nats)",
}
PAPER = "#fbfaf7"  # a light background of its own, so that the picture also reads on a dark page
WINDOW = 5  # steps whose mean is drawn
RARE = 4  # uses of the tool in a step, below which its skill is not drawn
COLOURS = ("#6e7781", "#1a7f5a", "#c4622d", "#3b6fb6", "#8a5fb0", "#b08d1a", "#b5446e", "#2a9aa8")


@dataclass(frozen=True)
class Case:
    """A world and a start; `final` says what solves it."""

    name: str
    world: DiagnosticWorld
    isolates: str
    start: Start = Start()
    success: float = 0.8
    pass_at_8: float = 0.0

    @property
    def final(self) -> Final:
        return Final(success=self.success, pass_at_8=self.pass_at_8, world=self.world)

    @property
    def env(self) -> str:
        return f"turngym/{self.world.name.title().replace('-', '')}-v0"

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens of a turn: word, free word and end, and one more, so that rambling shows."""
        return 3 + self.world.free


_LATE, _IDLE, _SIX, _FREE = WORLDS.values()
_ALL = (
    Case(
        "late-bloomer",
        _LATE,
        "a tool that pays once it is mastered: the first turn must stay open until then",
    ),
    Case(
        "twin",
        _LATE,
        "the same without the trap, as the tool is in use: a control must cost nothing",
        Start(0.93),
    ),
    Case(
        "useless-choice",
        _IDLE,
        "words that are allowed and useless in copying: only the first turn may stay open",
    ),
    Case(
        "many-ways",
        _SIX,
        "six equal ways, of which a task opens three: coverage shows in pass@8",
        Start(),
        0.4,
        0.9,
    ),
    Case(
        "distractor",
        _FREE,
        "free text in every turn, whose entropy says nothing about what is decided there",
    ),
)
CASES = {case.name: case for case in _ALL}


def find_case(name: str) -> Case:
    """Return a case by its name; raise ValueError for a name that there is not, with the nearest."""
    if name not in CASES:
        raise ValueError(
            f"there is no world {name!r}; {did_you_mean(name, CASES)}the worlds are {', '.join(CASES)}"
        )
    return CASES[name]


@dataclass(frozen=True)
class SeedStart:
    """The policy that a seed begins with in a world: what it is warmed up for, and where it is."""

    case: Case
    seed: int
    folder: Path

    @property
    def made(self) -> bool:
        """Whether the policy is there and whole."""
        return (self.folder / FILE).is_file()


@dataclass(frozen=True)
class Diagnosis:
    """A checked diagnosis. Trials go seed by seed, so that an unfinished one has whole seeds to show."""

    folder: Path
    worlds: tuple[tuple[Case, Comparison], ...]

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.worlds[0][1].methods)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.worlds[0][1].seeds

    @property
    def starts(self) -> list[SeedStart]:
        return [
            SeedStart(case, seed, one.start(seed))
            for seed in self.seeds
            for case, one in self.worlds
        ]

    def begun(self, case: Case) -> dict[int, Measured]:
        """Return what the policies measured that runs in a world begin with, by seed, as far as they are made."""
        made = [start for start in self.starts if start.case is case and start.made]
        texts = {start.seed: (start.folder / FILE).read_text("utf-8") for start in made}
        return {seed: Measured(**json.loads(text)["measured"]) for seed, text in texts.items()}

    @property
    def trials(self) -> list[Trial]:
        return sorted(
            (trial for _, one in self.worlds for trial in one.trials),
            key=lambda trial: trial.config.seed,
        )


def plan(
    methods: Sequence[str],
    worlds: Sequence[str],
    seeds: int,
    first: int,
    steps: int,
    out: str,
    resume: bool,
    against: str = "",
) -> Diagnosis:
    """Check all before the first policy is made. Raises ValueError or OSError: what is wrong, its value and the fix."""
    if not methods:
        raise ValueError(
            "no method is named; name recipes of methods, such as: turngym diagnose grpo epo"
        )
    if seeds < 1 or first < 0:
        raise ValueError(
            f"seeds is {seeds} and seed {first}; there must be at least 1, and the first be 0 or more"
        )
    cases = tuple(find_case(name) for name in dict.fromkeys(worlds))
    base = TrainConfig().changed(**BASE, steps=steps, eval_every=steps)
    base.check()
    configs = method_configs(methods, flat(base))
    try_runs(configs, env=cases[0].env)  # what does not fit a run is found with another policy, too
    folder = folder_of("diagnose", out, resume, (TABLES, DATA, PICTURE))
    judged = tuple(range(first, first + seeds))

    def compared(case: Case) -> Comparison:
        own = {
            name: config.changed(env=case.env, max_tokens=case.max_tokens)
            for name, config in configs.items()
        }
        return Comparison(
            folder / case.name, case.name, own, judged, final=case.final, against=against
        )

    diagnosis = Diagnosis(folder, tuple((case, compared(case)) for case in cases))
    for _, comparison in diagnosis.worlds:
        comparison.check()
    make_writable_folder(folder)
    return diagnosis


def plan_in_world(
    methods: Sequence[str],
    world: str,
    seeds: int,
    changes: Mapping[str, Any],
    out: str,
    resume: bool,
    final: Final,
    against: str,
) -> Comparison:
    """Return a comparison in one world, checked before the first policy is made.

    `changes` may name what is in `IN_WORLD`; the world decides everything else. Raises ValueError or OSError: what is
    wrong, its value and the fix.
    """
    if not methods:
        raise ValueError(
            "no method is named; name recipes of methods, such as: turngym compare grpo turn-floor"
        )
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; a comparison needs at least 1")
    if final.episodes < SAMPLES:
        raise ValueError(
            f"final is {final.episodes}; a world is measured on at least {SAMPLES} episodes"
        )
    case = find_case(world)
    if fixed := [name for name in changes if name not in IN_WORLD]:
        named = f"--{fixed[0].replace('_', '-')}"
        fix = f"leave it out, or compare elsewhere, as with --on math-python {named}"
        raise ValueError(f"{named} is given, but the world {world} brings its own; {fix}")
    values = {
        **BASE,
        "steps": STEPS,
        "eval_every": EVAL_EVERY,
        "env": case.env,
        "max_tokens": case.max_tokens,
    }
    base = TrainConfig().changed(**{**values, **changes})
    base.check()
    configs = method_configs(methods, flat(base))
    try_runs(configs)
    measured = replace(case.final, episodes=final.episodes)
    folder = folder_of("compare", out, resume, (PLAN, *REPORTS))
    judged = tuple(range(base.seed, base.seed + seeds))
    return Comparison(folder, case.name, configs, judged, final=measured, against=against)


def starts_of(comparison: Comparison) -> list[SeedStart]:
    """Return the policies that the seeds of a comparison in a world begin with."""
    case = find_case(comparison.base)
    return [SeedStart(case, seed, comparison.start(seed)) for seed in comparison.seeds]


def make_starts(starts: Sequence[SeedStart], workers: int, say: Callable[[str], object]) -> None:
    """Make what seeds begin with, and say what each measures. Raises ValueError where one is outside its gates."""
    made = [start for start in starts if start.made]
    left = [partial(_start, start) for start in starts if not start.made]
    for line in track(chain(map(_start, made), in_processes(left, workers)), "starts", len(starts)):
        say(line)


def _start(start: SeedStart) -> str:
    case = start.case
    found = begin(case, start.seed, start.folder)
    shares = (
        f"{name} {100 * getattr(found, name):.1f} %"
        for name in case.start.expected_metrics(case.world)
    )
    return f"{case.name}, seed {start.seed} begins with {', '.join(shares)}"


def check_acting(diagnosis: Diagnosis, workers: int, say: Callable[[str], object]) -> None:
    """Say which methods take the same first steps as the reference, of those whose first run has not begun."""
    for case, comparison in diagnosis.worlds:
        first = [trial for trial in comparison.trials if trial.config.seed == diagnosis.seeds[0]]
        peer = comparison.reference
        if all(trial.begun or trial.method == peer for trial in first):
            continue
        what = f"probing methods in {case.name}"
        seen = dict(
            track(
                in_processes([partial(_probe, trial) for trial in first], workers), what, len(first)
            )
        )
        for method, steps in seen.items():
            if method != peer and steps == seen[peer]:
                what = f"the same {len(steps)} first steps as {peer} in {case.name}"
                say(f"{method} took {what}: it may not act there at all")


def _probe(trial: Trial) -> tuple[str, list[Any]]:
    """Return the method, and entropy and norm of the gradient in each of the first steps of a run."""
    with TemporaryDirectory() as folder:
        short = replace(trial, config=replace(trial.config, out=folder))
        with closing(short.records()) as records:
            taken = islice(
                (one.metrics for one in records if one.metrics),
                min(PROBED, trial.config.schedule.steps),
            )
            return trial.method, [[metrics["entropy"], metrics["grad_norm"]] for metrics in taken]


def begin(case: Case, seed: int, folder: Path) -> Measured:
    """Return what the policy in `folder`, made if it is not whole, measures. Raises ValueError if it is off."""
    if not (folder / FILE).is_file():
        from ...agents.warmup.exact import warm_up

        shutil.rmtree(folder, ignore_errors=True)
        for _ in warm_up(open_split(case.env, {"split": "train"}), case.start, seed, folder):
            pass
        found = case.final.play(
            case.env, {"split": "test"}, folder, max_tokens=case.max_tokens, seed=seed
        )
        write_file(
            folder / FILE,
            json.dumps({"start": asdict(case.start), "measured": asdict(found)}) + "\n",
        )
    data = json.loads((folder / FILE).read_text("utf-8"))
    if data["start"] != asdict(case.start):
        raise ValueError(
            f"the policy in {folder} was made for {data['start']}, not {asdict(case.start)}; remove it"
        )
    check(
        case,
        found := Measured(**data["measured"]),
        f"{case.name}, seed {seed}: the policy in {folder}",
    )
    return found


def check(case: Case, found: Measured, what: str) -> None:
    """Raise ValueError where a start measures something else than its table says; `what` names it."""
    for name, wanted in case.start.expected_metrics(case.world).items():
        value, most = getattr(found, name), GATES[name]
        if value is None or not abs(value - wanted) <= most:
            gate = f"{wanted:.3f} ± {most} on {found.episodes} episodes, outside of which the world shows nothing"
            raise ValueError(
                f"{what} has {name} {value}; the gate is {gate}; choose other seeds with --seed"
            )


def write_report(diagnosis: Diagnosis, picture: bool = False) -> list[Table]:
    """Write the files from what has finished by now, and return the tables. Raises OSError or ValueError."""
    tables = list[Table]()
    methods = {name: config.method for name, config in diagnosis.worlds[0][1].methods.items()}
    data: dict[str, Any] = {"version": __version__, "revision": revision(), "methods": methods}
    data |= {"starts": {}, "results": {}, "runs": []}
    for case, comparison in diagnosis.worlds:
        found, starts = outcomes(comparison), diagnosis.begun(case)
        note = f"Isolates {case.isolates}. The best possible success is {case.world.best_success():.0%}. "
        tables += final_tables(comparison, found, case.name, note, [*starts.values()])
        data["starts"][case.name] = {seed: asdict(one) for seed, one in starts.items()}
        data["results"][case.name] = results = {name: one.to_json() for name, one in found.items()}
        for one in results.values():
            del one["runs"]  # all runs stand together
        for trial in (trial for trial in comparison.trials if trial.finished):
            about = {"world": comparison.base, "method": trial.method, "seed": trial.config.seed}
            data["runs"].append(about | trial.result())
    seeds = ", ".join(map(str, diagnosis.seeds))
    title = f"# {', '.join(methods)}\n\nSeeds {seeds}; turngym {__version__}, revision {revision()[:12]}.\n"
    write_file(
        diagnosis.folder / TABLES, "\n".join([title, *(table.markdown() for table in tables)])
    )
    write_file(diagnosis.folder / DATA, json.dumps(data, allow_nan=False) + "\n")
    if picture:
        draw(diagnosis)
    return tables


def draw(diagnosis: Diagnosis) -> None:
    """Draw by step what `PANELS` names, for each world: a thin line a seed, and their mean."""
    from matplotlib.figure import Figure

    worlds = diagnosis.worlds
    panels = [
        (case, one, name)
        for case, one in worlds
        for name in PANELS
        if name != "tool" or case.world.tool
    ]
    columns = 2 if len(worlds) == 1 else len(PANELS)
    rows = -(-len(panels) // columns)
    figure = Figure(
        figsize=(3.4 * columns, 2.6 * rows + 0.4), dpi=130, layout="constrained", facecolor=PAPER
    )
    for place, (case, comparison, name) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        _lines(axes, comparison, name)
        axes.set_title(PANELS[name] + ("" if len(worlds) == 1 else f", {case.name}"), fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(len(labels), 4),
        fontsize=9,
        frameon=False,
    )
    save(figure, diagnosis.folder / PICTURE)


def _lines(axes: Axes, comparison: Comparison, name: str) -> None:
    for place, method in enumerate(comparison.methods):
        own = [trial for trial in comparison.trials if trial.method == method and trial.finished]
        points = ([_value(point, name) for point in trial.result()["curve"]] for trial in own)
        curves = [
            [_mean(one[max(i - WINDOW, 0) : i]) for i in range(1, len(one) + 1)] for one in points
        ]
        colour = COLOURS[place % len(COLOURS)]
        for curve in curves:
            axes.plot(range(1, len(curve) + 1), curve, color=colour, alpha=0.3, linewidth=0.8)
        means = [_mean(at) for at in zip(*curves, strict=False)]
        axes.plot(range(1, len(means) + 1), means, color=colour, linewidth=2, label=method)
    if name != "entropy":
        axes.set_ylim(-0.02, 1.02)
    axes.set(facecolor=PAPER, xlabel="step")
    plain(axes)


def _value(point: Mapping[str, Any], name: str) -> float:
    """Return a share of a step, or the entropy of its first turn; NaN where there was too little to count."""
    if name == "entropy":
        return float(point[name][0])
    rare = (
        name == "skill" and point["tool"] is not None and point["tool"] * point["episodes"] < RARE
    )
    return float("nan") if point[name] is None or rare else float(point[name])


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return fmean(known) if known else float("nan")
