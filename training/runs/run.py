"""A training run from its config: check everything first, then load, train, and write the run folder."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...agents.chat.chat import Chat, vocabulary
from ...agents.cli.settings import Deadlines, EngineChoice, check_device, flat
from ...agents.engine import Sampling
from ...agents.engines import open_engine
from ...agents.evaluation.run import actor_in, checked_chat, pick_tasks
from ...agents.journal.checkpoint import latest, steps
from ...agents.journal.trees import (
    VOCABULARY,
    Incident,
    lock_folder,
    make_writable_folder,
    write_file,
)
from ...agents.models.architecture import check_architecture
from ...agents.models.folder import TEMPLATE_FILE
from ...agents.models.resolve import FITTED, Source, find, max_tokens, suited
from ...envs import TextEnv
from ...envs.options import check_levels, levels_of
from ...envs.registry import flag_of, takes_option
from ...envs.reserved_choices import refuse_unnamed, reserved_choices
from ...envs.sources import is_file
from ...envs.split_episodes import Split, begin, open_training
from ...tools.files import open_plain, refuse_links_out_of
from ..methods import check_group, parse_methods
from .config import TrainConfig, from_run, recorded, reserved_anew, reserved_of, revision, to_toml
from .folder import CONFIG, METRICS, RunState, read_boundary, summarized, write_summary
from .launch import Launch, launched
from .loggers import following, parse_loggers

if TYPE_CHECKING:
    from ...agents.engine import Engine
    from ...agents.policy import Policy
    from ..control.control import Control
    from ..loop.distributed import Team
    from ..loop.trainer import Loop

log = logging.getLogger(__name__)
HOLDOUT = 0.05  # share of a task file's problems that is kept for validation
LENGTH = ("steps", "token_budget")
SERVING = ("server", "server_option")
# What may differ when a run is resumed.
FREE = (
    *LENGTH,
    *SERVING,
    *flat(Deadlines()),
    "threads",
    "slow_dtype",
    "micro_tokens",
    "log",
    "out",
    "resume",
)


@dataclass(frozen=True)
class PreparedRun:
    """A checked run."""

    config: TrainConfig
    folder: Path
    train: Split
    valid: Split
    source: Source
    chat: Chat
    fitted: dict[str, Any]  # options that were chosen to suit the policy
    checkpoint: Path | None  # to go on from
    incidents: tuple[Incident, ...] = ()  # checkpoints that were passed over
    launch: Launch = Launch()

    @property
    def env(self) -> TextEnv:
        return self.train.env

    def close(self) -> None:
        self.env.close()
        self.valid.env.close()


def prepare(config: TrainConfig) -> PreparedRun:
    """Check all, methods last as they import torch, for `execute`. Raises ValueError, OSError or LevelRefused."""
    config.check()
    config.engine.check_installed()
    check_group(config.method, config.group)
    parse_loggers(config.log)
    launch = launched()
    check_device(launch.device(config.machine.device))
    config.machine.check_dtype()
    options = task_options(config)
    source, asked = _suited(config, options)
    check_architecture(source.folder, trains=True, engine=config.engine.engine)
    train, valid = open_splits(config, {**asked, **options})
    env = train.env
    config = config.changed(max_tokens=config.sampling.max_tokens or max_tokens(source))
    source.check_targets(config.lora.targets)
    if config.from_optimizer and not source.adapter:
        raise ValueError(
            f"from_optimizer needs a policy that is a run folder, and policy is {config.policy!r}"
        )
    chat = checked_chat(source, env)
    name = re.split("[/:]", config.env)[-1].partition("-v")[0].lower()
    taken = (lambda folder: False) if config.resume else (lambda folder: (folder / CONFIG).exists())
    folder = Path(config.out) if config.out else free_folder(name, taken)
    incidents: list[Incident] = []
    if config.resume:
        refuse_links_out_of(folder)
    checkpoint = _resumable(config, folder, incidents)
    # A run whose tools were isolated otherwise does not go on; one that did not record it may.
    before = recorded(folder).get("levels") if config.resume else None
    if before is not None and before != (now := levels_of(env)):
        what = f"the levels of the tools are {now}, but the run in {folder} was made with {before}"
        raise ValueError(f"{what}; begin another")
    check_levels(env)
    new = [path for path in (folder, *folder.parents) if launch.first and not path.exists()]
    if launch.first:
        make_writable_folder(folder)
    try:
        check_fit(config, chat, env)
    except ValueError:
        for path in new:
            path.rmdir()
        raise
    config = replace(config, out=str(folder))
    return PreparedRun(
        config, folder, train, valid, source, chat, asked, checkpoint, tuple(incidents), launch
    )


def task_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options that the environment is made with. Raises ValueError for a split among them."""
    named = config.environment
    if named.tasks is not None:  # a recipe's difficulty is for its generator; a file has its own
        named = replace(named, difficulty=None)
    options = named.kwargs()
    # Sources other than files know their own split or share.
    is_task_file = named.tasks is not None and is_file(named.tasks)
    if is_task_file and takes_option(config.env, "holdout"):
        options.setdefault("holdout", HOLDOUT)
    if "split" in options:
        raise ValueError(
            f"option split is {options['split']!r}; training takes `train` and `valid`: leave it out"
        )
    return options


def open_splits(config: TrainConfig, options: Mapping[str, Any]) -> tuple[Split, Split]:
    """Return the tasks to train on and those held out. Raises as `open_split` does, and where they are too few."""
    train, valid = open_training(config.env, options)
    if (total := len(train.tasks)) < config.prompts:
        fix = f"use fewer prompts: --prompts {total}"
        raise ValueError(f"prompts is {config.prompts}, but the task set has {total} tasks; {fix}")
    return train, valid


def _suited(config: TrainConfig, options: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """Return the policy, and the options that suit it besides `options`; of a resumed run, what it was begun with."""
    folder = Path(config.out) if config.resume and config.out else None
    if folder is None or not (folder / CONFIG).is_file():
        source = find(config.policy, template=config.chat_template)
        return source, suited(config.env, options, source)
    kept, before = folder / TEMPLATE_FILE, recorded(folder).get("fitted")
    if os.path.lexists(kept):
        open_plain(kept).close()  # a link is refused
    source = find(
        config.policy, template=str(kept) if os.path.lexists(kept) else config.chat_template
    )
    # The folder is data: it chooses nothing else in this place.
    fitted = (
        {name: before[name] for name in FITTED if name in before}
        if isinstance(before, dict)
        else {}
    )
    refuse_unnamed(reserved_choices(fitted), (), str(folder / CONFIG))
    return source, fitted


def execute(
    prepared: PreparedRun, watch: Callable[[Loop], object] = lambda loop: None
) -> Iterator[Any]:
    """Train, yielding a `Record` a step; `watch` is called with the loop before it takes its first step.

    Raises BlockingIOError where another process trains in the folder.
    """
    from ..loop.distributed import joined

    config, launch, began = prepared.config, prepared.launch, time.monotonic()
    device = launch.device(config.machine.device)
    growers = (
        launch.size if config.engine.engine == "torch" else 1
    )  # servers draw as much for one as for many
    with joined(launch, device, config.deadlines.step_deadline, growers) as team:
        begins = {
            "version": __version__,
            "checkpoint": prepared.checkpoint.name if prepared.checkpoint else "",
        }
        team.agree("the run", lambda: to_toml(config, begins))
        with lock_folder(prepared.folder) if team.first else nullcontext():
            choice = config.engine if team.rank < growers else EngineChoice()
            yield from _train(prepared, team, device, choice, watch)
            if team.first:
                write_summary(prepared.folder, time.monotonic() - began)


def _train(
    prepared: PreparedRun,
    team: Team,
    device: str,
    choice: EngineChoice,
    watch: Callable[[Loop], object],
) -> Iterator[Any]:
    from ...agents.policy import load_policy
    from ..loop.optimizer_state import load_moments

    config = prepared.config
    own = {name: getattr(config, name) for name in ("lora", "seed", "checkpointing", "compile")}
    policy = load_policy(prepared.source, **{**config.machine.loading(), "device": device}, **own)
    how: dict[str, Any] = {
        "deadline": config.deadlines.turn_deadline,
        "threads": config.machine.threads,
    }
    with open_engine(choice, policy, prepared.folder, **how) as engine:
        loop = _loop(prepared, policy, engine, team)
        record: dict[str, Any] = {
            "version": __version__,
            "revision": revision(),
            "engine": engine.mode,
        }
        record |= {
            "forward": engine.forward,
            "draw_threads": engine.threads,
            "levels": levels_of(prepared.env),
        }
        record |= {"processes": team.size} if team.size > 1 else {}
        record |= {"fitted": prepared.fitted, "chat_template": prepared.chat.template.origin}
        if engine.mode == "batch-dependent":
            log.warning(
                "rollouts depend on what else is in the batch on this machine: %s",
                engine.mode_reason,
            )
        if team.first:
            write_file(prepared.folder / CONFIG, to_toml(config, record))
            write_file(prepared.folder / VOCABULARY, vocabulary(prepared.chat.tokenizer))
            if config.chat_template:
                write_file(prepared.folder / TEMPLATE_FILE, prepared.chat.template.source)
        if prepared.checkpoint is not None:
            loop.load(prepared.checkpoint, prepared.incidents)
        elif config.from_optimizer and prepared.source.adapter:
            begun = prepared.source.adapter.parent
            load_moments(loop.learner.optimizer, policy.trainable_parameters(), begun, others=True)
        watch(loop)
        names = parse_loggers(config.log) if team.first else ()
        with following(names, prepared.folder, loop.logbook.add_incident) as poll:
            for step in loop.run():
                poll(step.step)
                yield step


def resume_hint(folder: Path, config: TrainConfig | None = None) -> str:
    """Return how to continue a run that was interrupted, with what only a command may choose."""
    if (folder / CONFIG).is_file():
        flags = " ".join(["", *map(flag_of, reserved_anew(config))]) if config else ""
        return f"continue with: turngym train --resume --out {folder}{flags}"
    return "the run had not started; use the same command again"


def _loop(prepared: PreparedRun, policy: Policy, engine: Engine, team: Team) -> Loop:
    from ..loop.learner import Learner
    from ..loop.rollouts import Rollouts
    from ..loop.trainer import Loop

    config = prepared.config
    control = control_of(config, prepared.chat)
    rollouts = Rollouts(
        actor=actor_in(prepared.env, engine, prepared.chat, policy.end_ids),
        env=prepared.env,
        tasks=prepared.train.tasks,
        valid_env=prepared.valid.env,
        valid_tasks=pick_tasks(prepared.valid.tasks, config.eval_tasks, config.seed),
        sampling=Sampling(**asdict(config.sampling)),
        **{
            name: getattr(config, name)
            for name in ("seed", "prompts", "group", "shuffle_rewards", "deadlines")
        },
    )
    learner = Learner(policy, control, config.lr, config.clip_norm, config.micro_tokens, team)
    return Loop(prepared.folder, rollouts, learner, config.schedule)


def free_folder(name: str, taken: Callable[[Path], bool]) -> Path:
    """Return the first of runs/NAME, runs/NAME-2, … that is not taken."""
    folders = (Path("runs") / (name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(folder for folder in folders if not taken(folder))


def _resumable(config: TrainConfig, folder: Path, incidents: list[Incident]) -> Path | None:
    """Return the checkpoint to continue from; None for a new run. Damaged ones that are skipped become incidents."""
    held = os.path.lexists(folder / CONFIG)
    if not config.resume:
        if held or steps(folder / "checkpoints") or (folder / METRICS).exists():
            fix = "continue with --resume, or choose another folder with --out"
            raise ValueError(f"{folder} already holds a run; {fix}")
        return None
    if not held:
        raise FileNotFoundError(f"{folder} holds no run to resume; leave --resume out to start one")
    check_same(config, folder, FREE, "leave it out to resume")
    checkpoint = latest(folder / "checkpoints", incidents.append, read_boundary)
    if checkpoint is not None and _finished(config, folder, at := read_boundary(checkpoint)):
        more = "its method ended it there" if at.stop else "ask for more to go on"
        spent = not at.stop and at.step < config.schedule.steps
        limit = (
            f"token_budget is {config.schedule.token_budget}"
            if spent
            else f"steps is {config.schedule.steps}"
        )
        got = f"drawn {at.tokens} tokens" if spent else f"taken {at.step}"
        raise ValueError(f"{limit}, and the run in {folder} has {got}; {more}")
    return checkpoint


def check_same(config: TrainConfig, folder: Path, free: Collection[str], fix: str) -> None:
    """Raise ValueError where the run of a folder was made with another value of a setting that is not `free`."""
    before = flat(from_run(folder, allowed=reserved_of(config)))
    for name, new in flat(config).items():
        if name not in free and new != before[name]:
            raise ValueError(
                f"{name} is {new!r}, but the run in {folder} was made with {before[name]!r}; {fix}"
            )


def finished(config: TrainConfig) -> bool:
    """Return whether a run has ended and has its summary. Raises CheckpointError where its checkpoints are damaged."""
    folder = Path(config.out)
    checkpoint = latest(folder / "checkpoints", check=read_boundary)
    return checkpoint is not None and _finished(config, folder, read_boundary(checkpoint))


def _finished(config: TrainConfig, folder: Path, at: RunState) -> bool:
    return at.over(config.schedule) and summarized(folder) == at.step


def control_of(config: TrainConfig, chat: Chat) -> Control:
    """Return the methods of a config as one control. Raises ValueError where they contradict each other."""
    from ..control.chain import chain

    run = {
        "steps": max(config.schedule.steps, 2),
        "group": config.group,
        "vocabulary": chat.tokenizer.get_vocab_size(),
    }
    return chain(*parse_methods(config.method, run))


def check_fit(config: TrainConfig, chat: Chat, env: TextEnv) -> None:
    """Raise ValueError where the methods do not fit each other, the run or the environment."""
    if control_of(config, chat).plan is None:
        return
    try:
        with closing(env.fork()) as twin:
            begin(twin, 0, 0)
            twin.fork().close()
    except Exception as error:
        what = f"method {config.method} forks environments, and {config.env} cannot be forked ({error})"
        raise ValueError(f"{what}; choose a method without branches") from error
