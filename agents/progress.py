"""How far an evaluation is: the episodes that have a score, kept in its folder, so that none is played twice.

`settings.json` says what is evaluated. While it is played, `episodes.jsonl` gets a line for each episode that is over.
At the end they become `trees.jsonl`, and `eval.json` is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from .journal import Origin, append_sealed, from_json, read_sealed, read_trees, to_json, write_file, write_trees
from .trajectory import Key, Tree

SETTINGS, EPISODES, TREES, REPORT = "settings.json", "episodes.jsonl", "trees.jsonl", "eval.json"
REQUESTS = "requests.jsonl"  # of a model behind a URL
FILES = (SETTINGS, EPISODES, TREES, REPORT, REQUESTS)


def check(folder: Path, settings: Mapping[str, Any], resume: bool) -> None:
    """Check that an evaluation with these settings can begin in `folder`, or go on there.

    Raises:
        ValueError: there is one and `resume` is not set, or it has other settings.
    """
    used = [name for name in FILES if (folder / name).exists()]
    if not used:
        return
    if not resume:
        raise ValueError(
            f"{folder} holds an evaluation ({used[0]}); add --resume to finish it, or choose another folder with --out"
        )
    try:
        before = dict(json.loads((folder / SETTINGS).read_text()))
        names = dict.fromkeys([*settings, *before])
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{folder} cannot be resumed: {SETTINGS} cannot be read ({error}); choose another folder with --out"
        ) from None
    for name in names:
        if before.get(name) != settings.get(name):
            raise ValueError(
                f"{name} is {settings.get(name)!r}, but the evaluation in {folder} was begun with "
                f"{before.get(name)!r}; resume it with that, or choose another folder with --out"
            )


@dataclass
class Progress:
    """The episodes of an evaluation that are over, each as a tree of one path, by key and branch.

    `wanted` are all keys and branches, in order. Without a folder nothing is kept.
    """

    wanted: Sequence[Key]
    folder: Path | None
    on_path: Callable[[Tree], None]
    over: dict[Key, Tree] = field(default_factory=dict)

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write the settings, and read the episodes that have a score.

        Raises:
            ValueError: a file is damaged.
        """
        if self.folder is None:
            return
        write_file(self.folder / SETTINGS, json.dumps(settings, indent=1) + "\n")
        finished = read_trees(self.folder / TREES) if (self.folder / TREES).exists() else ()
        paths = [replace(tree, leaves=[leaf]) for tree in finished for leaf in tree.leaves]
        paths += [from_json(data) for data in read_sealed(self.folder / EPISODES)]
        for path in paths:
            if path.leaves[0].rewarded:
                self.over[_key(path)] = path
                self.on_path(path)

    @property
    def missing(self) -> list[Key]:
        """The keys and branches of the episodes that are still to be played."""
        return [key for key in self.wanted if key not in self.over]

    def add(self, path: Tree) -> None:
        """Take an episode; one without an end is none."""
        if not path.leaves:
            return
        self.over[_key(path)] = path
        if self.folder is not None:
            append_sealed(self.folder / EPISODES, to_json(path))
        self.on_path(path)

    def trees(self) -> list[Tree]:
        """Return all episodes that are over, those of a key as one tree, in order."""
        keys = [key for key in self.wanted if key in self.over]
        return [_joined([self.over[key] for key in group]) for _, group in groupby(keys, lambda key: key[:-1])]

    def finish(self, trees: Iterable[Tree], origin: Origin) -> None:
        """Write the journal of all episodes."""
        if self.folder is not None:
            write_trees(self.folder / TREES, trees, origin)
            (self.folder / EPISODES).unlink(missing_ok=True)


def _key(path: Tree) -> Key:
    return (*path.key, path.leaves[0].branch)


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
