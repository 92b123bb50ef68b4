"""Evaluating a policy or a player on an environment: check, play, report.

`prepare` finds every mistake without importing torch; `run` plays. Players need no package of the training extra.

The folder of an evaluation keeps how far it is. `settings.json` says what is evaluated. While it is played,
`episodes.jsonl` gets a line for each episode that is over. At the end they become `trees.jsonl`, and `eval.json` is
written. An episode that has a score is never played twice. `vocabulary.json` says what a policy's tokens stand for.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ...envs import TextEnv
from ...envs.options import check_levels, levels_of
from ...envs.question.env import QuestionEnv
from ...envs.registry import module_id, takes_option
from ...envs.split_episodes import Split, open_split
from ...tools import Format
from ...tools.files import refuse_links_out_of, remove_temporary_files
from ...tools.formats import text_format
from ..cli.settings import (
    EndpointOptions,
    EngineChoice,
    MachineOptions,
    SamplingOptions,
    check_device,
)
from ..engine import Continued, Cut, Engine, Sampling
from ..engines import open_engine
from ..journal.trees import (
    VOCABULARY,
    lock_folder,
    make_writable_folder,
    origin_of,
    write_file,
    write_trees,
)
from ..models.architecture import check_architecture
from ..models.folder import read_json
from ..models.resolve import Source, find, max_tokens, setting_of, suited
from ..players import PLAYERS, check_player, play_all
from ..trajectory import Key, Tree
from .results import EPISODES, FILES, REQUESTS, SETTINGS, TREES, PlayedEpisodes, write_result
from .scores import Episode, Report, first_failure, foreign_calls, from_trees, summarize_trees
from .votes import same_in

if TYPE_CHECKING:  # players do without what these need
    from ..chat.chat import Chat
    from ..rollout.path import Actor


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
    resume: bool
    endpoint: EndpointOptions | None = None  # in place of a policy
    ks: tuple[int, ...] = ()  # of pass@k and pass^k; the powers of two where there are none
    note: str = ""  # how the tasks were chosen, where the environment did not

    @property
    def keys(self) -> list[Key]:
        """Key and branch of each episode: those of a player differ in their seed, those of a policy in their branch."""
        each = product(self.tasks, range(self.samples))
        return [
            (sample, 0, task, 0) if self.source is None else (self.seed, 0, task, sample)
            for task, sample in each
        ]

    @property
    def begins(self) -> str:
        """What is evaluated, and where; of a policy that was trained elsewhere also how to evaluate it there."""
        env_id = self.env.spec.id if self.env.spec is not None else type(self.env).__name__
        policy = self.player if self.endpoint is None else self.endpoint.model
        line = f"evaluating {policy} on {env_id}"
        trained = self._trained_on()
        if trained in ("", env_id):
            return line
        there = shlex.join(["turngym", "eval", trained, "--policy", policy])
        return f"{line}; it was trained on {trained}, where it is evaluated by: {there}"

    def _trained_on(self) -> str:
        """Return the environment that the policy's run names; "" if the policy is of no run, or the run names none."""
        if self.source is None or self.source.run is None:
            return ""
        try:
            trained = str(setting_of(self.source.run, "env"))
            return module_id(trained)
        except ValueError:  # it is only a hint, and the policy itself is whole
            return ""

    def settings(self) -> dict[str, Any]:
        """Return all that the episodes depend on, as JSON data."""
        found = {**asdict(origin_of(self.env)), "policy": self.player, "episodes": len(self.tasks)}
        found |= {"samples": self.samples, "seed": self.seed, "first_task": self.tasks[0]}
        if self.source is not None:
            folders = {name: path and str(path) for name, path in asdict(self.source).items()}
            found |= {
                **folders,
                **asdict(self.sampling),
                "engine": self.choice.engine,
                **self.machine.loading(),
            }
        if self.endpoint is not None:
            asked = self.endpoint
            found |= {
                "policy": asked.model,
                "base_url": asked.base_url,
                "tool_calls": asked.tool_calls,
            }
            found |= {"request": asked.request, **asdict(self.sampling)}
            other = {
                "return_reasoning": asked.return_reasoning,
                "finish_reason": asked.finish_reason,
            }
            defaults = asdict(
                EndpointOptions()
            )  # absent, as in evaluations from before there were these options
            found |= {name: value for name, value in other.items() if value != defaults[name]}
        return dict(json.loads(json.dumps(found)))

    def check_folder(self) -> None:
        """Check that the evaluation can begin in its folder, or go on there.

        Raises ValueError: there is one and `resume` is not set, or it has other settings.
        """
        out, settings = self.out, self.settings()
        if out is None or not (used := [name for name in FILES if os.path.lexists(out / name)]):
            return
        if not self.resume:
            what = f"{out} holds an evaluation ({used[0]})"
            raise ValueError(
                f"{what}; add --resume to finish it, or choose another folder with --out"
            )
        try:
            before = read_json(out / SETTINGS, follow=False)
        except (OSError, ValueError, TypeError) as error:
            what = f"{out} cannot be resumed: {SETTINGS} cannot be read ({error})"
            raise ValueError(f"{what}; choose another folder with --out") from None
        for name in {**settings, **before}:
            if before.get(name) != settings.get(name):
                what = (
                    f"{name} is {settings.get(name)!r}, but the evaluation in {out} was begun with"
                )
                fix = "resume it with that, or choose another folder with --out"
                raise ValueError(f"{what} {before.get(name)!r}; {fix}")


def prepare(
    env_id: str,
    options: Mapping[str, Any],
    policy: str = "",
    *,
    episodes: int,
    samples: int = 1,
    ks: tuple[int, ...] = (),
    sampling: SamplingOptions = SamplingOptions(),  # noqa: B008 (immutable)
    top_p: float = 1.0,
    seed: int = 0,
    machine: MachineOptions = MachineOptions(),  # noqa: B008 (immutable)
    choice: EngineChoice = EngineChoice(),  # noqa: B008 (immutable)
    out: Path | None = None,
    resume: bool = False,
    endpoint: EndpointOptions = EndpointOptions(),  # noqa: B008 (immutable)
    chat_template: str = "",
) -> Evaluation:
    """Check everything that can be wrong and return what `run` needs.

    Raises ValueError, TypeError, OSError, LevelRefused: what is wrong, its value and the fix.
    """
    if policy and endpoint.model:
        raise ValueError(
            f"--policy is {policy!r} and --model {endpoint.model!r}; give one of the two"
        )
    if episodes < 1 or samples < 1:
        raise ValueError(
            f"episodes is {episodes} and samples is {samples}; both need to be at least 1"
        )
    if wrong := [k for k in ks if not 1 <= k <= samples]:
        what = f"k is {wrong[0]}, and a task has {samples} samples"
        raise ValueError(f"{what}; take one from 1 to {samples}, or more --samples")
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be 0 or more")
    for settings in (sampling, machine, choice, endpoint):
        settings.check()
    choice.check_installed()
    source = None
    if not (policy in PLAYERS or endpoint.model):
        check_device(machine.device)
        machine.check_dtype()
        source = find(policy or "tiny", template=chat_template)
        check_architecture(source.folder, trains=False, engine=choice.engine)
    elif chat_template:
        raise ValueError(
            f"chat_template is {chat_template!r}, but {endpoint.model or policy} takes none; leave it out"
        )
    if source is not None or endpoint.model:
        options = {**options, **suited(env_id, options, source)}
    split = open_split(env_id, options)
    drawn = Sampling(
        sampling.temperature, top_p, max_tokens=sampling.max_tokens or max_tokens(source)
    )
    if endpoint.model:
        from ..endpoint import Endpoint

        Endpoint(endpoint, drawn, seed)  # which finds mistakes
        split = _taught(split, env_id, options, endpoint)
    env = split.env
    if source is not None:
        checked_chat(source, env)
    check_player(policy, env)
    check_levels(env)
    tasks, name = pick_tasks(split.tasks, episodes, seed), policy or "tiny"
    checked = (env, name, source, tasks, samples, drawn, seed, machine, choice, out, resume)
    evaluation = Evaluation(*checked, endpoint if endpoint.model else None, ks, split.note)
    if out is not None:
        evaluation.check_folder()
        if resume:
            refuse_links_out_of(out)
        make_writable_folder(out)
    elif resume:
        raise ValueError(
            "--resume needs the folder of the evaluation: turngym eval … --out FOLDER --resume"
        )
    return evaluation


def run(
    evaluation: Evaluation, on_episode: Callable[[Episode], None] = lambda episode: None
) -> Report:
    """Play the episodes that are not over yet and return the report of all; with `out` set, also write the files.

    `on_episode` is called with each episode: first with those that were over before, then with the others as they end.
    Raises BlockingIOError: another process plays it; ValueError: no episode has a score (NoScore), or the folder holds
    files of another evaluation.
    """
    out, usage = evaluation.out, dict[str, Any]()
    settings = evaluation.settings() if out is not None else {}
    done = PlayedEpisodes(
        evaluation.keys, out, lambda path: on_episode(from_trees([path])[0]), settings
    )
    with ExitStack() as stack:
        if out is not None:
            stack.enter_context(lock_folder(out))
            evaluation.check_folder()
            remove_temporary_files(out, (*FILES, VOCABULARY))
            write_file(out / SETTINGS, json.dumps(settings, indent=1) + "\n")
            done.read(out)
        if evaluation.source is None:
            usage = _play(evaluation, done)
        elif done.missing:
            _roll_out(evaluation, done)
        trees = done.trees()
        if out is not None:
            write_trees(out / TREES, trees, origin_of(evaluation.env))
        report = _report(evaluation, done, trees, usage)
        if out is not None:
            write_result(out, report, levels_of(evaluation.env), settings["options"])
            (out / EPISODES).unlink(
                missing_ok=True
            )  # last: where there are none, the result is that of the journal
        return report


def _taught(
    split: Split, env_id: str, options: Mapping[str, Any], endpoint: EndpointOptions
) -> Split:
    """Return the split with calls in a format that suits the endpoint: taught in text, or of the chat's own tools.

    Raises ValueError: the format is named by the command, or in the environment's code, and is of the other kind.
    """
    env, text = split.env, endpoint.tool_calls == "text"
    if not isinstance(env, QuestionEnv) or not len(env.toolbox) or text != env.format.native:
        return split
    suitable = text_format(env.toolbox.schemas).name if text else "hermes"
    unfit = f"{env.format.name}, which is not for {endpoint.tool_calls} tool calls"
    if "format" in options:
        other = "" if text else ", or --tool-calls text"
        raise ValueError(f"format is {unfit}; take {suitable}{other}")
    try:
        return open_split(env_id, {**options, "format": suitable})
    except ValueError as error:
        if takes_option(env_id, "format"):
            raise
        made = f"{type(env).__name__}(…, format={suitable!r})"
        raise ValueError(
            f"{env_id} has calls in the format {unfit}; name another one in its code: {made}"
        ) from error


def _report(
    evaluation: Evaluation, done: PlayedEpisodes, trees: Sequence[Tree], usage: dict[str, Any]
) -> Report:
    """Return the report; ValueError where no episode was over, or none has a score (NoScore)."""
    missing = len(done.missing)
    if missing == len(done.wanted):
        what = "no episode was over when the token budget was spent"
        raise ValueError(f"{what}; add --resume and a larger --token-budget")
    report = summarize_trees(trees, evaluation.ks, same_in(evaluation.env))
    return replace(
        report,
        foreign_calls=foreign_calls(trees, evaluation.env),
        usage=usage,
        not_played=missing,
        failure=first_failure(trees),
    )


def _play(evaluation: Evaluation, done: PlayedEpisodes) -> dict[str, Any]:
    episodes = [(task, sample) for sample, _, task, _ in done.missing]
    if evaluation.endpoint is None:
        player = PLAYERS[evaluation.player]()
        play_all(evaluation.env, lambda task, sample: player, episodes, done.add)
        return {}
    from ..endpoint import Endpoint, EndpointPlayer

    with closing(Endpoint(evaluation.endpoint, evaluation.sampling, evaluation.seed)) as endpoint:
        if evaluation.out is not None:
            endpoint.open(evaluation.out / REQUESTS)
        speaker, threads = partial(EndpointPlayer, endpoint), evaluation.endpoint.concurrency
        play_all(evaluation.env, speaker, episodes, done.add, threads, endpoint.close)
    return asdict(endpoint.usage) | ({"reasoning": endpoint.learned} if endpoint.learned else {})


def _roll_out(evaluation: Evaluation, done: PlayedEpisodes) -> None:
    from ..chat.chat import vocabulary
    from ..policy import load_policy
    from ..rollout.collect import collect

    assert evaluation.source is not None
    policy = load_policy(evaluation.source, **evaluation.machine.loading())
    chat = checked_chat(evaluation.source, evaluation.env)
    if evaluation.out is not None:
        write_file(evaluation.out / VOCABULARY, vocabulary(chat.tokenizer))
    skipped: dict[int, set[int]] = {}
    for _, _, task, branch in done.over:
        skipped.setdefault(task, set()).add(branch)
    out, choice, threads = evaluation.out, evaluation.choice, evaluation.machine.threads
    with (
        TemporaryDirectory() as spare,
        open_engine(choice, policy, out or Path(spare), threads=threads) as engine,
    ):
        collect(
            actor_in(evaluation.env, engine, chat, policy.end_ids),
            evaluation.env,
            list(dict.fromkeys(task for _, _, task, _ in done.missing)),
            group=evaluation.samples,
            key=(evaluation.seed, 0),
            sampling=evaluation.sampling,
            skipped=skipped,
            on_path=done.add,
        )


def checked_chat(source: Source, env: TextEnv) -> "Chat":
    """Return the chat format of a policy; TemplateError where its template cannot speak with `env`."""
    from ..chat.chat import Chat, check_fit

    chat = Chat.from_folder(source.folder, source.template)
    check_fit(chat.template, env)
    return chat


def _format(env: TextEnv) -> Format | None:
    return env.format if isinstance(env, QuestionEnv) and len(env.toolbox) else None


def cut(env: TextEnv, chat: "Chat") -> Cut | None:
    """Return what ends a turn in `env` before the policy does: its first call; None where there is nothing to call."""
    style = _format(env)
    return Continued(style, chat.opened) if style is not None and chat.opened else style


def actor_in(env: TextEnv, engine: Engine, chat: "Chat", end_ids: frozenset[int]) -> "Actor":
    from ..rollout.path import Actor

    return Actor(engine, chat, end_ids, cut(env, chat), _format(env))


def pick_tasks(tasks: Sequence[int], count: int, seed: int) -> list[int]:
    """Return `count` different ones of `tasks`, drawn by `seed`, all of them in order where there are no more."""
    if count >= len(tasks):
        return list(tasks)
    places = np.random.default_rng((seed, 0xE7A1)).choice(len(tasks), count, replace=False)
    return [tasks[place] for place in sorted(places.tolist())]
