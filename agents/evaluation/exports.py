"""Episodes of an evaluation in the forms that others read: JSON lines, Parquet, Inspect's log.

For other programs there are Parquet, JSONL of conversations, and the log of Inspect AI in the JSON format of
`inspect_ai` 0.3, version 2, whose viewer and data frames read it.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..journal.trees import read_origin, read_trees, write_file
from ..models.folder import read_json
from ..trajectory import Leaf, Tree
from .results import REPORT, SETTINGS, TREES, Row, read_result
from .scores import from_trees

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
