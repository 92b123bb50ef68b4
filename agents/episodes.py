"""The folder of an evaluation: the episodes that are over, and the result, `eval.json`, with its version and schema.

A result stands beside an earlier one: the difference in success, paired by task, so that samples of a task are one.
For other programs there are Parquet, JSONL of conversations, and the log of Inspect AI in the JSON format of
`inspect_ai` 0.3, version 2, whose viewer and data frames read it.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from ..envs import TextEnv
from ..envs.splits import begin
from .journal import (
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
from .model_folder import read_json, sha256_of
from .scores import Episode, Report, from_trees, grouped
from .significance import mean_of, t_test
from .trajectory import Key, Leaf, Tree

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
NESTED = ("search", "rewards", "weights", "tools")  # which Parquet holds as JSON
_TYPES = {
    **dict.fromkeys(
        ("task", "sample", "turns", "drawn", "cut", "calls", "errors", "tokens"), "int64"
    ),
    **dict.fromkeys(
        ("task_id", "category", "outcome", "stop", "answer", "error", *NESTED), "string"
    ),
    "score": "double",
    **dict.fromkeys(("success", "used_tool"), "bool"),
}


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


def export(folder: Path, to: str, out: Path | None = None) -> Path:
    """Write an evaluation as `to`, one of `FORMATS`; return the file. Raises FileExistsError, ValueError, OSError."""
    result = read_result(folder, "export")
    name, content = FORMATS[to]
    if os.path.lexists(path := out or folder / name.format(_when(folder).replace(":", "-"))):
        raise FileExistsError(f"{path} is there already; choose another file with --out")
    write_file(path, content(folder, result))
    return path


def rows(folder: Path) -> Iterator[Row]:
    """Yield a row of each episode: what it came to, as `Episode` has it, and its conversation as `messages`."""
    samples = Counter[int]()
    for tree in read_trees(folder / TREES):
        for leaf in tree.leaves:
            yield {"sample": samples[tree.task], **_row(tree, leaf)}
            samples[tree.task] += 1


def _row(tree: Tree, leaf: Leaf) -> Row:
    (one,) = from_trees([replace(tree, leaves=[leaf])])
    opening, turns = tree.turns[0].info, (tree.turns[node] for node in tree.path(leaf)[1:])
    said = [
        *opening.get("messages", ()),
        *({"role": turn.role, "content": turn.text} for turn in turns),
    ]
    return {
        **asdict(one),
        "outcome": str(one.outcome),
        "task_id": one.task_id or str(one.task),
        "score": one.score if one.rewarded else None,
        "success": one.won if one.rewarded else None,
        "answer": None if one.answer is None else _clean(one.answer),
        "error": None if one.rewarded else _clean(str(leaf.info.get("error", one.stop))),
        "tools": opening.get("tools", []),
        "messages": [{"role": part["role"], "content": _clean(part["content"])} for part in said],
    }


def _clean(text: str) -> str:
    """Return `text` with `?` for halves of characters (lone surrogates): a model may draw what UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _when(folder: Path) -> str:
    return datetime.fromtimestamp((folder / REPORT).lstat().st_mtime, UTC).isoformat(
        timespec="seconds"
    )


def _jsonl(folder: Path, result: Mapping[str, Any]) -> Iterable[bytes]:
    return (
        json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        for row in rows(folder)
    )


def _parquet(folder: Path, result: Mapping[str, Any]) -> Iterable[bytes]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            "Parquet needs the package pyarrow: pip install 'turngym[parquet]'"
        ) from None
    message = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    fields = [
        *((name, pa.type_for_alias(kind)) for name, kind in _TYPES.items()),
        ("messages", message),
    ]
    found = [{**row, **{name: json.dumps(row[name]) for name in NESTED}} for row in rows(folder)]
    parquet.write_table(
        pa.Table.from_pylist(found, pa.schema(fields)), sink := pa.BufferOutputStream()
    )
    return [sink.getvalue().to_pybytes()]


def _inspect(folder: Path, result: Mapping[str, Any]) -> str:
    settings, origin = read_json(folder / SETTINGS, follow=False), read_origin(folder / TREES)
    model, done = f"turngym/{settings['policy']}", result["episodes"] - result["failed"]
    samples = [_sample(row, model) for row in rows(folder)]
    ids = list(dict.fromkeys(sample["id"] for sample in samples))
    means = {"accuracy": result["success"]["value"], "mean": result["reward"]}
    means |= {f"pass@{k}": one["value"] for k, one in result["pass_at"].items()}
    metrics = {name: {"name": name, "value": value} for name, value in means.items()}
    spec = {"created": _when(folder), "task": origin.env, "task_args": origin.options}
    spec |= {"model": model, "metadata": settings}
    spec |= {"dataset": {"name": origin.env, "samples": len(ids), "sample_ids": ids}}
    spec |= {"config": {"epochs": settings["samples"]}, "packages": {"turngym": origin.turngym}}
    score = {"name": "reward", "scorer": "turngym", "scored_samples": done, "metrics": metrics}
    found = {"total_samples": result["episodes"], "completed_samples": done, "scores": [score]}
    head = {
        "version": 2,
        "status": "success",
        "eval": spec,
        "plan": {},
        "results": found,
        "stats": {},
    }
    return json.dumps({**head, "samples": samples}, allow_nan=False) + "\n"


def _sample(row: Row, model: str) -> Row:
    said: list[Row] = row.pop("messages")
    first = next((place for place, one in enumerate(said) if one["role"] == "assistant"), len(said))
    last = (
        [{"message": said[-1], "stop_reason": "stop"}]
        if said and said[-1]["role"] == "assistant"
        else []
    )
    sample = {
        "id": row["task_id"],
        "epoch": row["sample"] + 1,
        "target": "",
        "input": said[:first],
        "messages": said,
    }
    sample |= {"output": {"model": model, "choices": last}, "metadata": row}
    if row["error"] is not None:
        return sample | {"error": {"message": row["error"], "traceback": "", "traceback_ansi": ""}}
    return sample | {"scores": {"reward": {"value": row["score"], "answer": row["answer"]}}}


FORMATS: Mapping[str, tuple[str, Callable[[Path, Mapping[str, Any]], str | Iterable[bytes]]]] = {
    "parquet": ("episodes.parquet", _parquet),
    "jsonl": ("conversations.jsonl", _jsonl),
    "inspect": ("{}_turngym_inspect.json", _inspect),  # Inspect lists what has a time in front
}
"""What there is to write: the name of the file, and what makes its content."""
