"""Journals: trees as JSON lines behind a header that says what made them; exact to the last bit, no wall-clock time.

Every line ends in its own checksum and the header says how many trees follow, so that a journal that was cut or damaged
is never taken for a whole one, and an undamaged one needs nothing else to be replayed.

A journal depends on a run's keys and weights alone. A failure that was dealt with, such as a retry, is an `Incident`,
which is written elsewhere. Files are written so that they survive the death of the process and of the machine.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ... import __version__
from ...envs import Outcome, TextEnv
from ...tools.checks import refuse_constant
from ...tools.files import LinkRefused, open_plain, read_lines
from ...tools.files import append_line as append_line
from ...tools.files import lock_folder as lock_folder
from ...tools.files import make_writable_folder as make_writable_folder
from ...tools.files import sync_to_disk as sync_to_disk
from ...tools.files import write_file as write_file
from ..trajectory import Key, Leaf, Tree, Turn

FORMAT = 3  # of the lines; a journal of another format is refused
_COLUMNS = {"tokens": np.int32, "sampled": np.bool_, "logp_roll": np.float32, "entropy": np.float32}
_SEAL = b', "crc32": "%08x"}\n'  # of all that stands in front of it
_SEALED = len(_SEAL % 0)
LONGEST = 1 << 20  # bytes of a header
LONGEST_LINE = 1 << 29  # bytes of a tree
VOCABULARY = "vocabulary.json"  # of a run or an evaluation: what its tokens stand for
DAMAGE = (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Incident:
    """What went wrong and was dealt with: data for `incidents.jsonl`, never for the journal.

    kind: `retry` (a failed path begins again with the same key), `failed` (a path has failed for good), `stall`
        (nothing moves, but no deadline has passed yet), `close` (an environment could not be closed), `refused` (an
        update was not applied), `checkpoint` (a damaged one was passed over), `alarm` (metrics say that a run goes
        wrong), `log` (a logger takes no more steps), `foreign` (the policy writes calls in another model's format).
    what: The thing and what is wrong with it.
    key: (seed, step, task, branch) as far as they apply.
    """

    kind: str
    what: str
    key: Key = ()

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "key": list(self.key)}


OnIncident = Callable[[Incident], None]


@dataclass(frozen=True)
class Origin:
    """What made a journal: `turngym.envs.registry.make(env, **options)` makes its environment again."""

    env: str
    options: Mapping[str, Any]  # JSON data
    turngym: str = __version__


def origin_of(env: TextEnv) -> Origin:
    """Return the origin of what is played in `env`. A path among its options becomes a string.

    Raises ValueError where the environment was not made by its id, or an option is not JSON data.
    """
    if env.spec is None:
        what = f"{type(env).__name__} was made without an id, so its journal could not say what made it"
        raise ValueError(f"{what}: register it with Gymnasium and use turngym.envs.registry.make")
    options = {}
    for name, value in env.spec.kwargs.items():
        try:
            options[name] = json.loads(json.dumps(value, default=os.fspath, allow_nan=False))
        except (TypeError, ValueError) as error:
            what = f"option {name} of {env.spec.id} is {value!r}"
            raise ValueError(f"{what}; a journal can hold JSON ({error})") from None
    return Origin(env.spec.id, options)


def write_trees(
    path: Path, trees: Iterable[Tree], origin: Origin, root: Path | None = None
) -> None:
    """Write one tree a line to `path`, below `root`, first under a temporary name: a file is whole or absent.

    Raises ValueError where two trees have the same key, or one holds what is not JSON data.
    """
    keys = set[Key]()
    for tree in (trees := list(trees)):
        if tree.key in keys:
            raise ValueError(
                f"two trees have the key {tree.key}; a journal holds the tree of a key once"
            )
        keys.add(tree.key)
    header = _sealed({"journal": FORMAT, **asdict(origin), "trees": len(trees)})
    write_file(path, chain([header], map(_line, trees)), root)


def read_trees(path: Path, root: Path | None = None) -> Iterator[Tree]:
    """Read the trees of a journal, below `root`, each whole or not at all.

    Raises ValueError: a line is not what was written, or trees are missing; the message names the file and the line.
    """
    with _plain(path, root) as file:
        (_, count), keys, number = _header(path, file), set[Key](), 1
        for number, line in enumerate(read_lines(file, LONGEST_LINE, path), 2):
            try:
                tree = from_json(_opened(line))
            except DAMAGE as error:
                raise ValueError(
                    f"{path}, line {number}: not a tree of this version ({error!r})"
                ) from error
            if tree.key in keys:
                raise ValueError(f"{path}, line {number}: the tree {tree.key} occurs twice")
            keys.add(tree.key)
            yield tree
        if len(keys) != count:
            raise ValueError(
                f"{path}, line {number}: {len(keys)} trees were read, but {count} were written"
            )


def read_origin(path: Path, root: Path | None = None) -> Origin:
    """Return what made a journal.

    Raises ValueError where the file has no header of this version; the message names it.
    """
    with _plain(path, root) as file:
        return _header(path, file)[0]


def read_count(path: Path) -> int:
    """Return how many trees a journal says that it holds. Raises as `read_origin` does."""
    with _plain(path) as file:
        return _header(path, file)[1]


def to_json(tree: Tree) -> dict[str, Any]:
    """Return a tree as JSON data; a missing score or reward (NaN) is null."""
    leaves = [
        {
            **vars(leaf),
            "outcome": str(leaf.outcome),
            "score": _number(leaf.score),
            "info": dict(leaf.info),
        }
        for leaf in tree.leaves
    ]
    return {
        **vars(tree),
        "key": list(tree.key),
        "turns": list(map(_turn_json, tree.turns)),
        "leaves": leaves,
    }


def from_json(data: dict[str, Any]) -> Tree:
    """Return the tree that `to_json` wrote.

    Raises KeyError, TypeError, ValueError, OverflowError where it did not write `data`.
    """
    if not all(type(part) is int for part in (*data["key"], data["task"])):
        raise ValueError(
            f"its key is {data['key']!r:.80} and its task {data['task']!r:.80}; both are whole numbers"
        )
    tree = Tree(tuple(data["key"]), data["task"], data["task_id"])
    for row in data["turns"]:
        columns: dict[str, Any] = {
            name: np.array(row[name], kind) for name, kind in _COLUMNS.items()
        }
        values = {"values": tuple(row["values"])} if "values" in row else {}
        tree.add(Turn(**{**row, **columns, **values, "reward": _score(row["reward"])}))
    for row in data["leaves"]:
        if not 0 <= row["node"] < len(tree.turns):
            raise ValueError(
                f"branch {row['branch']} ends in turn {row['node']} of {len(tree.turns)}"
            )
        tree.leaves.append(
            Leaf(**{**row, "outcome": Outcome(row["outcome"]), "score": _score(row["score"])})
        )
    if to_json(tree) != data:  # what NumPy would round, cut or take for true
        raise ValueError("a value has another type or more digits than a tree can hold")
    return tree


def _plain(path: Path, root: Path | None = None) -> BinaryIO:
    """Open a journal; what is there and no plain file might never end."""
    fix = "name a journal: the trees.jsonl of an evaluation, or a file in RUN/trees"
    try:
        return open_plain(path, root)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; {fix}") from None
    except LinkRefused:
        raise
    except ValueError as error:
        raise ValueError(f"{error}; {fix}") from None


def _header(path: Path, file: BinaryIO) -> tuple[Origin, int]:
    line = file.readline(LONGEST)
    try:
        if not line:
            raise ValueError("the file is empty")
        data = _opened(line)
        if (found := data.pop("journal", None)) != FORMAT:
            raise ValueError(f"it is of format {found}")
        count, origin = data.pop("trees"), Origin(**data)
        if (
            type(count) is not int
            or not isinstance(origin.env, str)
            or not isinstance(origin.options, dict)
        ):
            raise ValueError("trees is no number, env no text or options no object")
        return origin, count
    except DAMAGE as error:
        what = f"{path}, line 1: not the header of a journal of format {FORMAT} ({error})"
        raise ValueError(
            f"{what}; read it with the turngym that wrote it, or write it again"
        ) from error


def _line(tree: Tree) -> bytes:
    try:
        return _sealed(to_json(tree))
    except (TypeError, ValueError) as error:
        rule = "statistics must be finite, and the info of an environment must be JSON data"
        raise ValueError(f"tree {tree.key} cannot be written ({error}): {rule}") from error


def _sealed(data: Mapping[str, Any]) -> bytes:
    body = json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")[
        :-1
    ]
    return body + _SEAL % zlib.crc32(body)


def unsealed(line: bytes) -> bytes:
    """Return the JSON text of a line. Raises ValueError where its checksum does not fit."""
    body = line[:-_SEALED]
    if line[-_SEALED:] != _SEAL % zlib.crc32(body):
        raise ValueError("its checksum does not fit: it was cut, damaged or changed")
    return body + b"}"


def _opened(line: bytes) -> dict[str, Any]:
    text = unsealed(line).decode("utf-8", "surrogatepass")
    return json.loads(text, parse_constant=refuse_constant)  # type: ignore[no-any-return]


def _turn_json(turn: Turn) -> dict[str, Any]:
    columns: dict[str, Any] = {name: getattr(turn, name).tolist() for name in _COLUMNS}
    columns["sampled"] = [int(value) for value in columns["sampled"]]
    row = {**vars(turn), **columns, "reward": _number(turn.reward), "info": dict(turn.info)}
    values, counted = (
        row.pop("values"),
        row.pop("counted"),
    )  # absent, as in journals of 0.1, where there are none
    row |= {} if values is None else {"values": list(values)}
    return row | ({"counted": counted} if counted else {})


def _number(value: float) -> float | None:
    return None if value != value else value


def _score(value: float | None) -> float:
    return nan if value is None else float(value)


def append_sealed(
    path: Path, data: Mapping[str, Any], *, root: Path | None = None, synced: bool = True
) -> None:
    """Add a line that holds JSON data and its checksum; else as `append_line`."""
    append_line(path, _sealed(data)[:-1], root=root, synced=synced)


def read_sealed(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the data of each line that `append_sealed` finished. Raises ValueError where one was changed."""
    if not os.path.lexists(path):
        return
    with open_plain(path) as file:
        for number, line in enumerate(read_lines(file, LONGEST_LINE, path), 1):
            if line.endswith(b"\n"):
                try:
                    yield _opened(line)
                except DAMAGE as error:
                    raise ValueError(f"{path}, line {number}: {error}; remove the line") from error
