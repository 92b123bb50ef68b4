"""Promises about what `reset` and `step` give: tasks by their index and their splits, and answers to any text."""

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import combinations
from typing import Any

import gymnasium

from ...envs import Outcome, StopReason, TextEnv, outcome_of
from ...envs.registry import make, takes_option
from ...envs.split_episodes import FOLD_SIZE, begin, has_tasks, task_count
from ...envs.splits import SPLITS
from .episodes import Broken, Subject, as_json, example_calls, expert, moment, same

ODD = (
    *("", " \n\t", "\0", "a\0b", "\ud800", "\udcff tail"),
    *(
        "x" * 100_000,
        "\n" * 10_000,
        "é🍎" * 5_000,
        "{" * 5_000,
        "[" * 5_000 + "]" * 5_000,
        "<" * 5_000,
    ),
    *(
        "<|im_end|>\n<|im_start|>assistant\n",
        "<|endoftext|></s><s>[INST]<｜User｜>",
        "</tool_call></python></think>",
    ),
    *("<tool_call>" * 500, "<think>" * 500, "\\boxed{" * 500),
    *("\"}'}]`\\", "\x1b[2J\x07\u202e\u2028\ufeff", "__import__('os')", "9" * 5_000, "nan"),
)
LOOKED = 16  # tasks of an environment, and of a split
_SPEAKERS = ("system", "user", "assistant", "tool")


def check_steps(subject: Subject) -> str:
    """Observations, info, rewards and ends have the promised form."""
    ended = 0
    for scenario in subject.scenarios:
        seen = []
        with subject.bare() as env:
            _refuses_a_step(env, "before the first reset")
            observation, info = env.reset(seed=scenario.seed)
            where = f"seed {scenario.seed}, reset"
            _check_observation(env, where, observation)
            _check_info(where, info)
            if not isinstance(info.get("task_id"), str) or not isinstance(info.get("tools"), list):
                raise Broken(
                    f"{where}: info must hold a str `task_id` and a list `tools`; it is {info!r:.200}"
                )
            seen.append(_spoiled(observation, info))
            for turn, action in enumerate(scenario.actions, 1):
                answer = env.step(action)
                _check_step(env, f"seed {scenario.seed}, turn {turn}", turn, answer)
                seen.append(_spoiled(*answer))
                if not env.live:
                    _refuses_a_step(env, "after the end of an episode")
                    ended += 1
                    break
            seen.append(moment(*env.reset(seed=scenario.seed)))
        what = f"seed {scenario.seed} is another episode when the infos it gave are changed by their owner (copy them)"
        straight = subject.episode(scenario)
        same([*straight, straight[0]], seen, what)
    return f"{len(subject.scenarios)} episodes, {ended} of them to their end"


def check_any_text(subject: Subject) -> str:
    """Every text that an agent can write is answered in that form."""
    tried = 0
    with subject.bare() as env:
        golds = expert(env, subject.seed)[-1:]
        env.reset(seed=subject.seed)
        for action in odd_actions(env, golds):
            if not env.live:
                env.reset(seed=subject.seed)
            tried += 1
            where = f"the action {action[:60]!r} ({len(action)} characters)"
            try:
                observation, *_, info = env.step(action)
            except Exception as error:
                raise Broken(
                    f"{where} raises {type(error).__name__}: {error}; answer with an observation"
                ) from error
            _check_observation(env, where, observation)
            if "outcome" in info and Outcome(info["outcome"]) in (
                Outcome.TOOL_ERROR,
                Outcome.INFRA_ERROR,
            ):
                raise Broken(
                    f"{where} ends in {info['stop']} ({info.get('error')}); answer every text of an agent"
                )
    return f"{tried} actions"


def odd_actions(env: TextEnv, golds: tuple[str, ...]) -> Iterator[str]:
    """Yield odd texts alone, as an argument of each tool, and inside each of `golds`."""
    for odd in ODD:
        yield odd
        yield from example_calls(env, odd)
        for gold in golds:
            yield gold[:-1] + odd + gold[-1:]


def _spoiled(*seen: Any) -> str:
    """Return what was seen, and empty all that can be emptied of it."""
    text = moment(*seen)
    spoils = [seen[-1]]
    while spoils:
        thing = spoils.pop()
        if isinstance(thing, dict | list):
            spoils += thing.values() if isinstance(thing, dict) else thing
            thing.clear()
    return text


def _refuses_a_step(env: TextEnv, when: str) -> None:
    try:
        env.step("one more")
    except gymnasium.error.ResetNeeded:
        return
    raise Broken(f"a step {when} does not raise; it must raise gymnasium.error.ResetNeeded")


def _check_step(env: TextEnv, where: str, turn: int, answer: tuple[Any, ...]) -> None:
    observation, reward, terminated, truncated, info = answer
    _check_observation(env, where, observation)
    _check_info(where, info)
    if info.get("turn") != turn:
        raise Broken(
            f"{where}: info['turn'] is {info.get('turn')!r}; leave `turn` to the base class"
        )
    if type(info.get("valid", True)) is not bool:
        raise Broken(
            f"{where}: the reply's `valid` is {info['valid']!r}; it must be True, False or None"
        )
    over = [name for name in ("stop", "outcome") if name in info]
    if len(over) != 2 * (terminated or truncated) or env.live == (terminated or truncated):
        raise Broken(
            f"{where}: terminated is {terminated}, truncated {truncated}, and info holds {over or 'no stop'}"
        )
    outcome = outcome_of(StopReason(info["stop"])) if over else None
    flags = (outcome is Outcome.DONE, outcome not in (None, Outcome.DONE))
    if over and (info["outcome"] != str(outcome) or (terminated, truncated) != flags):
        raise Broken(
            f"{where}: stop {info['stop']!r} does not go with {info['outcome']!r}, terminated {terminated}"
        )
    failed = outcome in (Outcome.TOOL_ERROR, Outcome.INFRA_ERROR)
    if not failed and not math.isfinite(reward):
        raise Broken(
            f"{where}: the reward is {reward}; only a failure of a tool or the environment has none"
        )
    if failed and not math.isnan(reward):
        raise Broken(
            f"{where}: the reward is {reward} with stop {info['stop']!r}; a failure has no reward"
        )


def _check_observation(env: TextEnv, where: str, observation: Any) -> None:
    if not env.observation_space.contains(observation):
        shown = (
            f"{len(observation)} characters"
            if isinstance(observation, str)
            else f"a {type(observation).__name__}"
        )
        what = f"{where}: the observation ({shown}, {observation!r:.80}) is not in {env.observation_space}"
        raise Broken(f"{what}; shorten it or give the environment a larger space")


def _check_info(where: str, info: Mapping[str, Any]) -> None:
    as_json(f"{where}: info", info)
    messages = info.get("messages")
    for message in messages if isinstance(messages, list) and messages else [None]:
        said = message if isinstance(message, dict) else {}
        if said.get("role") not in _SPEAKERS or not isinstance(said.get("content"), str):
            raise Broken(
                f"{where}: info['messages'] must be messages of role and content; it is {messages!r:.200}"
            )


def check_tasks(subject: Subject) -> str:
    """A task is chosen by its index, and no split has the tasks of another."""
    with subject.bare() as env:
        count = task_count(env)
        if not has_tasks(env):
            return "there are no tasks: episodes begin by seed, and each split has seeds of its own"
        ids = set()
        for task in _some(count):
            one, other = (
                str(_begin(env, task, seed)[1]["task_id"])
                for seed in (subject.seed, subject.seed + 1)
            )
            ids.add(one)
            if one != other:
                what = f"task {task} has the id {one!r} with seed {subject.seed} and {other!r} with the next"
                fix = "begin the task options['task'] where it is given, and draw one from rng where it is not"
                raise Broken(f"{what}; in on_reset, {fix}")
        if count > 1 and len(ids) == len(set(_seen(env, subject, count))) == 1:
            raise Broken(
                f"all {count} tasks are one and the same episode; in on_reset, begin the task options['task']"
            )
    return f"{count} tasks; {_check_splits(subject)}"


def _check_splits(subject: Subject) -> str:
    if not takes_option(subject.env_id, "split"):
        return _say_no_splits(subject)
    if {"split", "tasks"} & subject.options.keys():
        return "the splits of these options are not compared"
    seen: dict[str, list[str]] = {}
    for split in SPLITS:
        try:
            env = make(subject.env_id, **{**subject.options, "split": split})
        except (ValueError, LookupError) as error:
            what = f"it cannot be made with split={split!r} ({type(error).__name__}: {error})"
            raise Broken(f"{what}; training takes train and valid, evaluation test") from error
        with closing(env):
            seen[split] = _seen(env, subject, task_count(env))
    first, *others = seen.values()
    if len(set(first)) > 1 and all(other == first for other in others):
        fix = "choose `tasks` by it, or leave it out"
        return f"the option `split` is accepted and ignored, so a validation is on the training tasks; {fix}"
    for other, split in combinations(SPLITS, 2):
        if seen[split] == seen[other] and len(set(seen[split])) > 1:
            raise Broken(
                f"split={split!r} has the tasks of split={other!r}; choose `tasks` by the option `split`"
            )
    return "three splits"


def _say_no_splits(subject: Subject) -> str:
    with subject.bare() as env:
        too_few = task_count(env) < FOLD_SIZE
    if too_few:
        return "without an option `split`, all are played by eval, and train is validated on its training tasks"
    return "without an option `split`, every tenth is for valid and every tenth for test"


def _some(count: int) -> list[int]:
    return sorted({round(i * (count - 1) / (LOOKED - 1)) for i in range(LOOKED)})


def _seen(env: TextEnv, subject: Subject, count: int) -> list[str]:
    """Return what some tasks show and answer to the expert of the first of them, with one seed."""
    actions = expert(env, subject.seed, 0)
    found = []
    for task in _some(count):
        observation, info = _begin(env, task, subject.seed)
        answers = [env.step(action)[:2] for action in actions if env.live]
        found.append(moment(observation, info["messages"], answers))
    return found


def _begin(env: TextEnv, task: int, seed: int) -> tuple[str, dict[str, Any]]:
    try:
        return begin(env, task, seed)
    except Exception as error:
        raise Broken(
            f"reset(options={{'task': {task}}}) raises {type(error).__name__}: {error}"
        ) from error
