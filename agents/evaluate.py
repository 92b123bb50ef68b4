"""Evaluating a policy or a player on an environment: check, play, report.

`prepare` finds every mistake without importing torch; `run` plays. Players need no package of the training extra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ..envs import TextEnv
from ..envs.question import QuestionEnv
from ..envs.registry import check_levels, make
from .engine import Continued, Cut, Engine, Sampling
from .engines import open_engine
from .journal import origin_of, write_trees
from .players import PLAYERS, play_all
from .scores import Episode, Report, from_trees, summarize
from .settings import EngineChoice, MachineOptions
from .source import Source, find
from .trajectory import Tree

if TYPE_CHECKING:  # they need the training extra, and players do without it
    from .chat.chat import Chat
    from .rollout.path import Actor


@dataclass(frozen=True)
class Evaluation:
    """A checked evaluation: `source` is the policy's, or None where `player` names a player."""

    env: TextEnv
    player: str
    source: Source | None
    tasks: list[int]
    samples: int
    sampling: Sampling
    seed: int
    machine: MachineOptions
    choice: EngineChoice
    out: Path | None


def prepare(
    env_id: str,
    options: Mapping[str, Any],
    policy: str,
    *,
    episodes: int,
    samples: int = 1,
    sampling: Sampling | None = None,
    seed: int = 0,
    machine: MachineOptions = MachineOptions(),  # noqa: B008 (immutable)
    choice: EngineChoice = EngineChoice(),  # noqa: B008 (immutable)
    out: Path | None = None,
) -> Evaluation:
    """Check everything that can be wrong and return what `run` needs.

    Raises:
        ValueError, OSError, LevelRefused: what is wrong, its value and the fix.
    """
    if episodes < 1 or samples < 1:
        raise ValueError(f"episodes is {episodes} and samples is {samples}; both need to be at least 1")
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or more")
    machine.check()
    choice.check()
    env = make(env_id, **options)
    source = None if policy in PLAYERS else find(policy)
    if source is not None:
        checked_chat(source.folder, env)
    check_levels(env)
    if out is not None:
        origin_of(env)
        writable(out)
    return Evaluation(
        env,
        policy,
        source,
        pick_tasks(env, episodes, seed),
        samples,
        sampling or Sampling(max_tokens=96),
        seed,
        machine,
        choice,
        out,
    )


def run(evaluation: Evaluation, on_episode: Callable[[Episode], None] | None = None) -> Report:
    """Play all episodes and return the report; with `out` set, also write their journal `trees.jsonl`."""
    on_tree = None if on_episode is None else partial(_each, on_episode)
    if evaluation.source is None:
        player = PLAYERS[evaluation.player]()
        trees = play_all(evaluation.env, player, evaluation.tasks, evaluation.samples, on_tree)
    else:
        trees = _rolled_out(evaluation, evaluation.source, on_tree)
    if evaluation.out is not None:
        write_trees(evaluation.out / "trees.jsonl", trees, origin_of(evaluation.env))
    return summarize(from_trees(trees))


def _rolled_out(evaluation: Evaluation, source: Source, on_tree: Callable[[Tree], None] | None) -> list[Tree]:
    from .policy import load_policy
    from .rollout.collect import collect

    policy = load_policy(source, **asdict(evaluation.machine))
    chat = checked_chat(source.folder, evaluation.env)
    with TemporaryDirectory() as spare, open_engine(evaluation.choice, policy, evaluation.out or Path(spare)) as engine:
        return collect(
            actor_in(evaluation.env, engine, chat, policy.end_ids),
            evaluation.env,
            evaluation.tasks,
            group=evaluation.samples,
            key=(evaluation.seed, 0),
            sampling=evaluation.sampling,
            on_tree=on_tree,
        )


def _each(on_episode: Callable[[Episode], None], tree: Tree) -> None:
    for episode in from_trees([tree]):
        on_episode(episode)


def checked_chat(folder: Path, env: TextEnv) -> Chat:
    """Return the chat format of a model folder, checked to be able to speak with `env`.

    Raises:
        TemplateError: the template is not prefix-preserving, or cannot carry what the environment says.
    """
    from .chat.chat import Chat, check_fit

    chat = Chat.from_folder(folder)
    check_fit(chat.template, env)
    return chat


def cut(env: TextEnv, chat: Chat) -> Cut | None:
    """Return what ends a turn in `env` before the policy does: its first call; None where there is nothing to call."""
    if not (isinstance(env, QuestionEnv) and len(env.toolbox)):
        return None
    return Continued(env.format, chat.opened) if chat.opened else env.format


def actor_in(env: TextEnv, engine: Engine, chat: Chat, end_ids: frozenset[int]) -> Actor:
    """Return who acts in `env`."""
    from .rollout.path import Actor

    begins = env.format.begins if isinstance(env, QuestionEnv) and len(env.toolbox) else None
    return Actor(engine, chat, end_ids, cut(env, chat), begins)


def pick_tasks(env: TextEnv, count: int, seed: int) -> list[int]:
    """Return `count` different task indices of `env`, drawn by `seed`, all of them in order where there are no more."""
    total = task_count(env)
    if count >= total:
        return list(range(total))
    return sorted(np.random.default_rng((seed, 0xE7A1)).choice(total, count, replace=False).tolist())


def task_count(env: TextEnv) -> int:
    """Return how many tasks an environment has.

    Raises:
        ValueError: it has none that `reset(options={"task": i})` could choose.
    """
    tasks = getattr(env, "tasks", None)
    if tasks is None:
        raise ValueError(
            f"{type(env).__name__} has no `tasks`: rollouts choose episodes by reset(options={{'task': i}})"
        )
    return len(tasks)


def writable(folder: Path) -> None:
    """Make `folder` and make sure that files can be written there.

    Raises:
        PermissionError: they cannot.
    """
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise PermissionError(
            f"cannot write to {folder} ({error.strerror}); choose another folder with --out"
        ) from error
