"""The folder of an evaluation: the episodes that are over, and the result, `eval.json`, with its version and schema.

A result stands beside an earlier one: the difference in success, paired by task, so that samples of a task are one.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from ...envs import TextEnv
from ...envs.split_episodes import begin
from ..journal.trees import (
    DAMAGE,
    append_sealed,
    from_json,
    origin_of,
    read_origin,
    read_sealed,
    read_trees,
    to_json,
    write_file,
)
from ..models.folder import read_json, sha256_of
from ..trajectory import Key, Tree
from .scores import Episode, Report, from_trees, grouped
from .statistics import mean_of, t_test

SETTINGS, EPISODES, TREES, REPORT = "settings.json", "episodes.jsonl", "trees.jsonl", "eval.json"
REQUESTS = "requests.jsonl"  # of a model behind a URL
FILES = (SETTINGS, EPISODES, TREES, REPORT, REQUESTS)
FORMAT = 1  # of `eval.json`, which is of another version without it
SCHEMA = Path(__file__).with_name("eval.schema.json")
MIXED = "holds files of several evaluations"
_KINDS = {
    "string": str,
    "integer": int,
    "number": float,
    "object": dict,
    "array": list,
    "null": type(None),
}
SAME_TASKS = {
    "system",
    "format",
    "answers",
    "shots",
    "max_turns",
}  # options that leave the tasks as they are
Row = dict[str, Any]


@dataclass
class PlayedEpisodes:
    """The episodes of an evaluation that are over, each as a tree of one path, by key and branch."""

    wanted: Sequence[Key]  # all keys and branches, in order
    folder: Path | None  # where they are kept
    on_path: Callable[[Tree], None]
    settings: Mapping[str, Any] = field(
        default_factory=dict
    )  # a journal in the folder has to be of its `env`
    over: dict[Key, Tree] = field(default_factory=dict)

    def read(self, folder: Path) -> None:
        """Read the episodes that have a score. Raises ValueError where a file is damaged, or another evaluation's."""
        journal, known = folder / TREES, set(self.wanted)
        if os.path.lexists(journal):
            self._check(folder)
        finished = read_trees(journal) if os.path.lexists(journal) else ()
        paths = [replace(tree, leaves=[leaf]) for tree in finished for leaf in tree.leaves]
        for path in (*paths, *read_episodes(folder / EPISODES)):
            if (key := (*path.key, path.leaves[0].branch)) not in known:
                raise ValueError(f"{folder} {MIXED}: {SETTINGS} asks for no episode {key}")
            if path.leaves[0].rewarded and key not in self.over:
                self._take(path)

    def _check(self, folder: Path) -> None:
        found = read_origin(folder / TREES)
        if self.settings and (found.env, found.options) != (
            self.settings["env"],
            self.settings["options"],
        ):
            raise ValueError(f"{folder} {MIXED}: {TREES} is of {found.env} with {found.options}")
        try:
            result = read_json(folder / REPORT, follow=False)
        except (ValueError, OSError):  # it is written again
            return
        if not (folder / EPISODES).exists():
            check_journal(folder, result)

    @property
    def missing(self) -> list[Key]:
        return [key for key in self.wanted if key not in self.over]

    def add(self, path: Tree) -> None:
        """Take an episode; one without an end is none."""
        if path.leaves:
            if self.folder is not None:
                append_sealed(self.folder / EPISODES, to_json(path))
            self._take(path)

    def _take(self, path: Tree) -> None:
        self.over[(*path.key, path.leaves[0].branch)] = path
        self.on_path(path)

    def trees(self) -> list[Tree]:
        """Return all episodes that are over, those of a key as one tree, in order."""
        keys = [key for key in self.wanted if key in self.over]
        return [
            _joined([self.over[key] for key in group])
            for _, group in groupby(keys, lambda key: key[:-1])
        ]


def read_episodes(file: Path) -> Iterator[Tree]:
    """Yield the episodes of a file that grows. Raises ValueError that names a line that is none."""
    for number, data in enumerate(read_sealed(file), 1):
        try:
            path = from_json(data)
            if len(path.leaves) != 1:
                raise ValueError(f"it has {len(path.leaves)} ends, and an episode has one")
        except DAMAGE as error:
            raise ValueError(
                f"{file}, line {number}: not an episode of this version ({error!r})"
            ) from error
        yield path


def _joined(paths: Sequence[Tree]) -> Tree:
    """Return the tree of several paths that share the prompt alone; one that failed there may not have it."""
    first = next((path for path in paths if path.turns[0].info), paths[0])
    whole = replace(first, turns=[first.turns[0]], leaves=[])
    for path in paths:
        at = {0: 0}
        for node in path.path(path.leaves[0])[1:]:
            turn = path.turns[node]
            at[node] = whole.add(replace(turn, parent=at[turn.parent]))
        whole.leaves.append(replace(path.leaves[0], node=at[path.leaves[0].node]))
    return whole


def write_result(
    folder: Path, report: Report, levels: Mapping[str, str], options: Mapping[str, Any]
) -> None:
    found = {"eval": FORMAT, "journal": sha256_of(folder / TREES, follow=False), **report.to_json()}
    found |= {"levels": levels, "options": options}
    write_file(folder / REPORT, json.dumps(found, indent=1, allow_nan=False) + "\n")


def read_result(folder: Path, what: str) -> dict[str, Any]:
    """Return the result of a finished evaluation. Raises ValueError, OSError: there is none; `what` says for whom."""
    if not os.path.lexists(folder / REPORT):
        raise ValueError(
            f"{what} is {folder}, which holds no finished evaluation: it has no {REPORT}"
        )
    result = read_json(folder / REPORT, follow=False)
    if (found := result.get("eval")) != FORMAT:
        fix = "the command of that evaluation with --resume plays nothing and writes it again"
        raise ValueError(f"{folder / REPORT} is of format {found}, not {FORMAT}; {fix}")
    schema = read_json(SCHEMA)
    for name in schema["required"]:
        kinds = schema["properties"][name]["type"]
        if type(result.get(name)) not in [
            _KINDS[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)
        ]:
            raise ValueError(
                f"{folder / REPORT} is damaged: {name} is {result.get(name)!r:.60}; add --resume"
            )
    check_journal(folder, result)
    return result


def check_journal(folder: Path, result: Mapping[str, Any]) -> None:
    """Raise ValueError where a result is not that of the journal beside it; OSError where there is none."""
    if result.get("journal", digest := sha256_of(folder / TREES, follow=False)) != digest:
        raise ValueError(f"{folder} {MIXED}: {REPORT} is not the result of the {TREES} beside it")


def read_against(folder: Path, env: TextEnv, tasks: Collection[int]) -> list[Episode]:
    """Return the episodes of an earlier evaluation of `tasks`, played in `env`. Raises ValueError, OSError."""
    read_result(folder, "against")
    journal, ours = folder / TREES, origin_of(env)
    theirs, what = read_origin(journal), f"the evaluation in {folder}, against which to compare,"
    if theirs.env != ours.env:
        raise ValueError(
            f"{what} is one of {theirs.env}, this one of {ours.env}; choose one of that"
        )
    for name in sorted((theirs.options.keys() | ours.options.keys()) - SAME_TASKS):
        if (other := theirs.options.get(name)) != (own := ours.options.get(name)):
            raise ValueError(
                f"{what} has {name} {other!r}, this one {own!r}; compare evaluations of the same tasks"
            )
    trees = [tree for tree in read_trees(journal) if tree.task in tasks]
    episodes = [one for one in from_trees(trees) if one.rewarded]
    if (shared := len({one.task for one in episodes})) < 2:
        raise ValueError(
            f"{what} shares {shared} of {len(tasks)} tasks with this one; at least 2 are needed"
        )
    with closing(env.fork()) as twin:
        for tree in trees:
            if tree.turns[0].info and begin(twin, tree.task, tree.key[0])[0] != tree.turns[0].text:
                asked = f"asked task {tree.task} ({tree.task_id}) in another text"
                raise ValueError(f"{what} {asked}; evaluate that one again")
    return episodes


def difference(ours: Iterable[Episode], theirs: Iterable[Episode]) -> str:
    """Return the mean difference of success (points) over shared tasks, its 95 % interval, and p of Student's t."""
    own, other = _by_task(ours), _by_task(theirs)
    shared = sorted(own.keys() & other.keys())
    mean = mean_of(100 * (own[task] - other[task]) for task in shared)
    if mean is None or mean.half is None:
        return f"{len(shared)} tasks have a score in both; at least 2 are needed"
    low, high, p = mean.value - mean.half, mean.value + mean.half, t_test(mean)
    chance = "p < 0.001" if p is not None and p < 0.001 else f"p {p:.3f}"
    return f"{mean.value:+.1f} points [{low:+.1f}, {high:+.1f}], {chance} ({len(shared)} tasks)"


def _by_task(episodes: Iterable[Episode]) -> Mapping[int, float]:
    scored = grouped((one for one in episodes if one.rewarded), lambda one: one.task)
    return {task: fmean(one.won for one in own) for task, own in scored.items()}
