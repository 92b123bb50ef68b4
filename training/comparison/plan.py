"""A comparison: methods on the same tasks, with the same seeds and budget, each a run of its own, one after another.

Its folder holds METHOD/seed-S, which are ordinary run folders. A method is a recipe that sets what is the method's own;
everything else comes from one base recipe.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...agents.cli.settings import flat
from ...agents.journal.trees import write_file
from ...agents.models.resolve import find, setting_of
from ...tools.files import refuse_links_out_of, remove_temporary_files
from ...tools.progress import Progress
from ..methods import check_methods, foreign
from ..runs import config as recipes
from ..runs import run
from ..runs.config import TrainConfig, from_mapping, read_recipe, revision
from ..runs.folder import CONFIG, METRICS, WRITTEN
from ..runs.launch import launched
from .effect import EFFECT, digests, read_effect
from .measure import SAMPLES, Final, Measured
from .workers import in_processes

if TYPE_CHECKING:
    from ..loop.trainer import Loop

# What a method may set.
OWN = (
    "method",
    "updates",
    "group",
    "prompts",
    "lr",
    "lr_end",
    "clip_norm",
    "rank",
    "alpha",
    "targets",
)
PLAN = "plan.json"
REPORTS = tuple(f"compare.{ending}" for ending in ("md", "json", "png"))
REFERENCE = "grpo"  # what the others are compared with, where it takes part; else the first one
WARM = Path("runs/warm")  # where `turngym warmup` makes what shipped recipes start from
ANYTIME = tuple(
    name for name in run.FREE if name not in run.LENGTH
)  # what may differ when a comparison goes on


@dataclass(frozen=True)
class Trial:
    """One method with one seed, in a comparison or in one of the worlds of a diagnosis."""

    method: str
    config: TrainConfig
    final: Final = Final()
    reference: TrainConfig | None = (
        None  # of the method that it is compared with; None of that method itself
    )
    where: str = ""  # the world, if there are several

    def __str__(self) -> str:
        return f"{self.where}{', ' if self.where else ''}{self.method}, seed {self.config.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.config.out)

    @property
    def begun(self) -> bool:
        return (self.folder / CONFIG).is_file()

    @property
    def finished(self) -> bool:
        """Return whether the run is over and measured. Raises CheckpointError if its checkpoints are damaged."""
        measured = (self.folder / self.final.file).is_file()
        if self.final.world:
            return measured
        return self.begun and (measured or not self.final.episodes) and run.finished(self.config)

    @property
    def steps(self) -> int:
        path = self.folder / METRICS
        return max(path.read_bytes().count(b"\n") - 1, 0) if path.is_file() else 0

    def check_same(self) -> None:
        """Raise ValueError where the run was begun with another value of what must stay."""
        if not self.begun:
            return
        old, new = str(setting_of(self.folder, "policy")), self.config.policy
        if (
            self.final.world and old != new and Path(old).parts[-3:] == Path(new).parts[-3:]
        ):  # the folder was moved
            was, now = (
                f"\npolicy = {json.dumps(place, ensure_ascii=False)}\n" for place in (old, new)
            )
            write_file(
                self.folder / CONFIG, (self.folder / CONFIG).read_text("utf-8").replace(was, now)
            )
        run.check_same(
            self.config,
            self.folder,
            ANYTIME,
            "use the same value, or choose another folder with --out",
        )

    def records(self) -> Generator[Any, None, None]:
        """Train, or continue, yield the records of the run, and measure its policy. Raises as `execute` does.

        Of a world what each step did is measured too, and its journals go then.
        """
        config, final, began = self.config, self.final, time.process_time()
        remove_temporary_files(self.folder, (*WRITTEN, EFFECT, final.file))
        if not (self.begun and run.finished(config)):
            with closing(run.prepare(replace(config, resume=self.begun))) as prepared:
                yield from run.execute(prepared, partial(self._watch_own_term, prepared))
        self._write_episodes()
        if not final.episodes:
            return
        options = (
            {"split": "test"} if final.world else {**run.task_options(config), "split": "valid"}
        )
        drawn: dict[str, Any] = {"max_tokens": config.sampling.max_tokens, "seed": config.seed}
        drawn |= {"machine": config.machine, "choice": config.engine}
        played = partial(final.play, config.env, options, self.folder, **drawn)
        found: dict[str, Any] = {"sampled": asdict(played()), "greedy": asdict(played(greedy=True))}
        found["seconds"] = time.process_time() - began
        if final.world:
            found["curve"] = final.curve(self.folder)
        write_file(self.folder / final.file, json.dumps(found) + "\n")
        self.remove_journals_of_a_world()

    def _watch_own_term(self, prepared: run.PreparedRun, loop: Loop) -> None:
        """Have the run measure the share of its own term in the gradient, if there is a reference to differ from."""
        from .own_term import OwnTerm

        if self.reference is None:
            return
        own_term = OwnTerm(loop, run.control_of(self.reference, prepared.chat))
        if own_term.measurable:
            loop.before_update = own_term.before_update

    def _write_episodes(self) -> None:
        """Write down which episodes the run saw, so that two runs can be compared without their journals."""
        effect = read_effect(self.folder)
        if not effect.episodes:
            replace(effect, episodes=digests(self.folder)).write(self.folder)

    def remove_journals_of_a_world(self) -> None:
        """Remove the journals of a run in a world once it is measured, as they have 15 MB or more."""
        if self.final.world and (self.folder / self.final.file).is_file():
            shutil.rmtree(self.folder / "trees", ignore_errors=True)

    def result(self) -> dict[str, Any]:
        """Return what was measured: `sampled`, `greedy`, `seconds`, and of a world `curve`, step by step."""
        return dict(json.loads((self.folder / self.final.file).read_text("utf-8")))


@dataclass(frozen=True)
class Comparison:
    """A checked comparison. Trials go seed by seed, so that an unfinished one has whole seeds to show."""

    folder: Path
    base: str  # the recipe, or the world
    methods: dict[str, TrainConfig]  # by name, as asked for
    seeds: tuple[int, ...]
    lines: tuple[str, ...] = ()  # what was taken from where
    final: Final = Final()
    against: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)  # of the recipe
    tried: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # by method: what its tuning found
    measures_effect: bool = (
        True  # whether runs measure how much their methods add to the reference's gradient
    )

    def __post_init__(self) -> None:
        """Raise ValueError where the reference does not take part."""
        if self.reference not in self.methods:
            raise ValueError(
                f"--against is {self.reference!r}, which is not among {', '.join(self.methods)}; name it"
            )

    @property
    def reference(self) -> str:
        return self.against or (
            REFERENCE if REFERENCE in self.methods else next(iter(self.methods))
        )

    @property
    def trials(self) -> list[Trial]:
        """Return the trials in the order in which they are made."""
        return [
            self._trial(method, config, seed)
            for seed in self.seeds
            for method, config in self.methods.items()
        ]

    def _trial(self, method: str, config: TrainConfig, seed: int) -> Trial:
        """Return the run of a method with a seed."""
        config = config.changed(seed=seed, out=str(self.folder / method / f"seed-{seed}"))
        if self.final.world:
            config = config.changed(policy=str(self.start(seed)))
        has_reference = self.measures_effect and method != self.reference
        one_of_several_worlds = self.final.world is not None and self.folder.name == self.base
        return Trial(
            method=method,
            config=config,
            final=self.final,
            reference=self.methods[self.reference] if has_reference else None,
            where=self.base if one_of_several_worlds else "",
        )

    def start(self, seed: int) -> Path:
        """Return the folder of the policy that a seed begins with in a world."""
        return self.folder / "start" / f"seed-{seed}"

    def check(self) -> None:
        """Raise ValueError where a run was begun with other settings."""
        for trial in self.trials:
            trial.check_same()

    def described(self) -> dict[str, Any]:
        """Return what is compared: the settings that all methods share, and those of each."""
        configs = {method: flat(config) for method, config in self.methods.items()}
        first = next(iter(configs.values()))
        own = [*OWN, *(key for key in first if key not in (*OWN, "seed", "out", "resume"))]
        own = [
            key
            for key in own
            if key == "method" or any(config[key] != first[key] for config in configs.values())
        ]
        if self.final.world:  # each seed begins with a policy of its own
            first["policy"] = f"{self.start(self.seeds[0]).parent}/seed-SEED"
        return {
            "on": self.base,
            "seeds": list(self.seeds),
            "reference": self.reference,
            "shared": {
                key: value
                for key, value in first.items()
                if key not in (*own, "seed", "out", "resume")
            },
            "methods": {
                name: {key: config[key] for key in own} for name, config in configs.items()
            },
        }

    def write(self) -> None:
        """Write the plan: settings and judged seeds, before the first judged run. Raises OSError."""
        remove_temporary_files(self.folder, (PLAN,))
        data = {
            "version": __version__,
            "revision": revision(),
            **self.described(),
            "episodes": self.final.episodes,
        }
        write_file(
            self.folder / PLAN,
            json.dumps(data | {"tuned": self.tried}, indent=1, ensure_ascii=False) + "\n",
        )


def plan(
    methods: Sequence[str],
    on: str,
    seeds: int,
    changes: dict[str, Any],
    out: str = "",
    resume: bool = False,
    final: Final = Final(),  # noqa: B008 (immutable)
    against: str = "",
) -> Comparison:
    """Check all that can be wrong before the first rollout but the folder; return what is to be done.

    `changes` replace keys of the recipe `on`, whose seed is the first. Raises ValueError, OSError or LevelRefused: what
    is wrong, its value and the fix.
    """
    if not methods:
        raise ValueError(
            "no method is named; name recipes of methods, such as: turngym compare grpo epo"
        )
    if (size := launched().size) > 1:
        raise ValueError(
            f"{size} processes would write one comparison; start it once, without torchrun"
        )
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; a comparison needs at least 1")
    if 0 < final.episodes < SAMPLES or final.episodes < 0:
        raise ValueError(
            f"final is {final.episodes}; give at least {SAMPLES} episodes, or 0 for no final validation"
        )
    allowed = recipes.reserved_of(from_mapping(changes, "the command"))
    allowed += [
        "out=",
        "resume=",
        *(["policy="] if "policy" in changes else []),
    ]  # a comparison has its own
    policy = changes.get("policy", read_recipe(on, allowed=allowed).policy)
    if Path(policy) == WARM / on and not Path(policy).exists():
        what = f"there is no {policy}, from which the recipe {on!r} starts"
        raise FileNotFoundError(f"{what}; make it: turngym warmup {on}")
    find(policy)
    base, lines = recipes.adjusted(on, changes, allowed)
    configs = method_configs(methods, flat(base))
    check_picture("the picture of a comparison")
    first = next(iter(configs.values())).seed
    judged = tuple(range(first, first + seeds))
    comparison = Comparison(
        folder_of("compare", out, resume, (PLAN, *REPORTS)),
        on,
        configs,
        judged,
        lines,
        final,
        against,
        flat(base),
    )
    notes = try_runs(configs)
    return replace(comparison, lines=(*comparison.lines, *notes))


def check_picture(what: str) -> None:
    """Raise ValueError where nothing can draw a picture, which `what` needs."""
    if find_spec("matplotlib") is None:
        raise ValueError(
            f'matplotlib is not installed; {what} needs the report extra: pip install "turngym[report]"'
        )


def try_runs(configs: Mapping[str, TrainConfig], **changes: Any) -> tuple[str, ...]:
    """Check each method, then prepare a run of each, with `changes`, in a folder that goes. ValueError names it.

    Returns what is to be known of the tasks of training and validation, such as that they are the same.
    """
    notes = dict[str, None]()  # in the order in which they came, each once

    def prepare(config: TrainConfig) -> None:
        with (
            TemporaryDirectory() as scratch,
            closing(run.prepare(config.changed(out=scratch, **changes))) as prepared,
        ):
            notes.update(dict.fromkeys((prepared.train.note, prepared.valid.note)))

    for check in (lambda config: check_methods(config.method), prepare):
        for name, config in configs.items():
            try:
                check(config)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    return tuple(note for note in notes if note)


def methods_of(recipes_of_methods: Sequence[str]) -> list[str]:
    """Return the `method` that each name or recipe of a method stands for. Raises ValueError or OSError."""
    configs = method_configs(recipes_of_methods, flat(TrainConfig()))
    return [config.method for config in configs.values()]


def method_configs(methods: Sequence[str], base: dict[str, Any]) -> dict[str, TrainConfig]:
    """Return the config of each method by its name. Raises ValueError or OSError where its recipe cannot be one."""
    configs: dict[str, TrainConfig] = {}
    for recipe in methods:
        name = Path(recipe).stem if recipe.endswith(".toml") else recipe
        if name in configs:
            raise ValueError(
                f"method {name!r} is named twice; name it once, or give a recipe of its own another name"
            )
        if not recipe.endswith(".toml") and {":", ","} & {
            *recipe
        }:  # a method itself, as the command has it
            configs[name] = replace(from_mapping({**base, "method": recipe}, recipe), resume=False)
            continue
        method = recipes.recipe_values(recipe)[0].get("method", "")
        if (
            method
            and foreign(method)
            and f"method={method}" not in recipes.methods_named_by(recipe)
        ):
            fix = f"If you trust its code, name it in place of the recipe: turngym compare {method}"
            what = f"the recipe {recipe!r} has the method {method!r} of another package"
            raise ValueError(f"{what}; a file cannot choose that. {fix}")
        if shared := [key for key in recipes.recipe_keys(recipe) if key not in OWN]:
            what = f"the recipe {recipe!r} sets {', '.join(shared)}, which all methods of a comparison share"
            raise ValueError(
                f"{what}; leave them out there, and name a recipe that sets them with --on"
            )
        configs[name] = replace(read_recipe(recipe, base), resume=False)
    return configs


def folder_of(what: str, out: str, resume: bool, files: Iterable[str]) -> Path:
    """Return the folder that a command is to write into.

    A folder that is resumed loses the temporary copies of `files` which a killed process left in it.

    Args:
        what: The command.
        out: The folder that the user named; if empty, the first free one of runs/WHAT, runs/WHAT-2, … is taken.
        resume: Whether the command continues in `out`.
        files: The names of what the command writes there itself.

    Raises:
        ValueError, OSError: The folder is unfit: what is wrong and the fix.
    """
    there = bool(out) and Path(out).is_dir()
    if resume and not out:
        raise ValueError(
            f"--resume needs the folder of what is to be resumed: turngym {what} … --out FOLDER"
        )
    if resume and not there:
        raise FileNotFoundError(f"{out} holds nothing to resume; leave --resume out to start")
    if there and not resume and any(Path(out).iterdir()):
        raise ValueError(
            f"{out} is not empty; continue with --resume, or choose another folder with --out"
        )
    if resume:
        refuse_links_out_of(Path(out))
        remove_temporary_files(Path(out), files)
    return Path(out) if out else run.free_folder(what, os.path.lexists)


def carry_out(
    trials: Sequence[Trial],
    workers: int,
    say: Callable[[str], object],
    report: Callable[[], object] = lambda: None,
    make: Callable[[Trial], str] | None = None,
    watch: Callable[[], object] = lambda: None,
) -> None:
    """Make the trials that are not finished, with `train` or as `make` does, say how each ended, and `report` then.

    `watch` is called every few seconds meanwhile.
    """
    for trial in trials:
        trial.remove_journals_of_a_world()
    left = [trial for trial in trials if not trial.finished]
    tasks = [partial(make or train, trial) for trial in left]

    def look() -> None:
        work.reach(sum(trial.steps for trial in left))
        watch()

    def died(index: int, why: str) -> None:
        say(f"{left[index]}, step {left[index].steps}: {why}")

    def given_up(index: int, why: str) -> str:
        return f"{left[index]} failed at step {left[index].steps}: {why}"

    with Progress("all steps", sum(trial.config.schedule.steps for trial in left)) as work:
        look()
        # A process for each run: the memory of one that makes several grows by some 100 MB with every run.
        for done, line in enumerate(in_processes(tasks, workers, look, died, given_up), start=1):
            work.text = f"{done} of {len(left)} runs"
            say(line)
            report()


def train(trial: Trial) -> str:
    """Train, or continue, measure the trained policy, and return a line on it."""
    from ..loop.trainer import Refusals

    try:
        for _ in trial.records():
            pass
    except (Refusals, FloatingPointError) as error:
        return f"{trial} failed: {error}"
    if not trial.final.episodes:
        return f"{trial}: {trial.steps} steps"
    result = trial.result()
    found = Measured(**result["sampled"])
    how = "solved" if trial.final.solved(found) else "not solved"
    return f"{trial}: {100 * found.success:.1f} %, {how}; {result['seconds']:.0f} s"
