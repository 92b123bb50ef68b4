"""Journals: trees as JSON lines behind a header that says what made them; exact to the last bit, no wall-clock time.

Every line ends in its own checksum and the header says how many trees follow, so that a journal that was cut or damaged
is never taken for a whole one, and an undamaged one needs nothing else to be replayed.

A journal depends on a run's keys and weights alone. A failure that was dealt with, such as a retry, is an `Incident`,
which is written elsewhere. Files are written so that they survive the death of the process and of the machine.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from math import nan
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .. import __version__
from ..envs import Outcome, TextEnv
from ..tools.core import refuse_constant
from .trajectory import Key, Leaf, Tree, Turn

FORMAT = 3  # of the lines; a journal of another format is refused
_COLUMNS = {"tokens": np.int32, "sampled": np.bool_, "logp_roll": np.float32, "entropy": np.float32}
_SEAL = b', "crc32": "%08x"}\n'  # of all that stands in front of it
_SEALED = len(_SEAL % 0)
LONGEST = 1 << 20  # bytes of a header
VOCABULARY = "vocabulary.json"  # of a run or an evaluation: what its tokens stand for
_DAMAGE = (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)


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


def write_trees(path: Path, trees: Iterable[Tree], origin: Origin) -> None:
    """Write one tree a line to `path`, first under a temporary name, so that a file is whole or absent.

    Raises ValueError where two trees have the same key, or one holds what is not JSON data.
    """
    keys = set[Key]()
    for tree in (trees := list(trees)):
        if tree.key in keys:
            raise ValueError(f"two trees have the key {tree.key}; a journal holds the tree of a key once")
        keys.add(tree.key)
    header = _sealed({"journal": FORMAT, **asdict(origin), "trees": len(trees)})
    write_file(path, chain([header], map(_line, trees)))


def read_trees(path: Path) -> Iterator[Tree]:
    """Read the trees of a journal, each whole or not at all.

    Raises ValueError: a line is not what was written, or trees are missing; the message names the file and the line.
    """
    with _plain(path) as file:
        (_, count), keys, number = _header(path, file), set[Key](), 1
        for number, line in enumerate(file, 2):
            try:
                tree = from_json(_opened(line))
            except _DAMAGE as error:
                raise ValueError(f"{path}, line {number}: not a tree of this version ({error!r})") from error
            if tree.key in keys:
                raise ValueError(f"{path}, line {number}: the tree {tree.key} occurs twice")
            keys.add(tree.key)
            yield tree
        if len(keys) != count:
            raise ValueError(f"{path}, line {number}: {len(keys)} trees were read, but {count} were written")


def read_origin(path: Path) -> Origin:
    """Return what made a journal.

    Raises ValueError where the file has no header of this version; the message names it.
    """
    with _plain(path) as file:
        return _header(path, file)[0]


def read_count(path: Path) -> int:
    """Return how many trees a journal says that it holds. Raises as `read_origin` does."""
    with _plain(path) as file:
        return _header(path, file)[1]


def to_json(tree: Tree) -> dict[str, Any]:
    """Return a tree as JSON data; a missing score or reward (NaN) is null."""
    leaves = [
        {**vars(leaf), "outcome": str(leaf.outcome), "score": _number(leaf.score), "info": dict(leaf.info)}
        for leaf in tree.leaves
    ]
    return {**vars(tree), "key": list(tree.key), "turns": list(map(_turn_json, tree.turns)), "leaves": leaves}


def from_json(data: dict[str, Any]) -> Tree:
    """Return the tree that `to_json` wrote.

    Raises KeyError, TypeError, ValueError, OverflowError where it did not write `data`.
    """
    tree = Tree(tuple(data["key"]), data["task"], data["task_id"])
    for row in data["turns"]:
        columns: dict[str, Any] = {name: np.array(row[name], kind) for name, kind in _COLUMNS.items()}
        values = {"values": tuple(row["values"])} if "values" in row else {}
        tree.add(Turn(**{**row, **columns, **values, "reward": _score(row["reward"])}))
    for row in data["leaves"]:
        if not 0 <= row["node"] < len(tree.turns):
            raise ValueError(f"branch {row['branch']} ends in turn {row['node']} of {len(tree.turns)}")
        tree.leaves.append(Leaf(**{**row, "outcome": Outcome(row["outcome"]), "score": _score(row["score"])}))
    if to_json(tree) != data:  # what NumPy would round, cut or take for true
        raise ValueError("a value has another type or more digits than a tree can hold")
    return tree


def _plain(path: Path) -> BinaryIO:
    """Open a journal; what is there and no plain file might never end."""
    if not path.is_file():
        kind, what = (ValueError, "is no plain file") if path.exists() else (FileNotFoundError, "does not exist")
        raise kind(f"{path} {what}; name a journal: the trees.jsonl of an evaluation, or a file in RUN/trees")
    return path.open("rb")


def _header(path: Path, file: BinaryIO) -> tuple[Origin, int]:
    line = file.readline(LONGEST)
    try:
        if not line:
            raise ValueError("the file is empty")
        data = _opened(line)
        if (found := data.pop("journal", None)) != FORMAT:
            raise ValueError(f"it is of format {found}")
        count, origin = data.pop("trees"), Origin(**data)
        if type(count) is not int or not isinstance(origin.env, str) or not isinstance(origin.options, dict):
            raise ValueError("trees is no number, env no text or options no object")
        return origin, count
    except _DAMAGE as error:
        what = f"{path}, line 1: not the header of a journal of format {FORMAT} ({error})"
        raise ValueError(f"{what}; read it with the turngym that wrote it, or write it again") from error


def _line(tree: Tree) -> bytes:
    try:
        return _sealed(to_json(tree))
    except (TypeError, ValueError) as error:
        rule = "statistics must be finite, and the info of an environment must be JSON data"
        raise ValueError(f"tree {tree.key} cannot be written ({error}): {rule}") from error


def _sealed(data: Mapping[str, Any]) -> bytes:
    body = json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")[:-1]
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
    values, counted = row.pop("values"), row.pop("counted")  # absent, as in journals of 0.1, where there are none
    row |= {} if values is None else {"values": list(values)}
    return row | ({"counted": counted} if counted else {})


def _number(value: float) -> float | None:
    return None if value != value else value


def _score(value: float | None) -> float:
    return nan if value is None else float(value)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; nothing is left behind. Raises BlockingIOError where one is in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "wait until it has ended, or choose another folder with --out"
            raise BlockingIOError(f"another process is writing {folder}; {fix}") from None
        yield
    finally:
        os.close(handle)


def writable(folder: Path) -> None:
    """Make `folder` and make sure that files can be written there; raises PermissionError where they cannot."""
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        what = f"cannot write to {folder} ({error.strerror})"
        raise PermissionError(f"{what}; choose another folder with --out") from error


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, content: str | Iterable[bytes]) -> None:
    """Write a file under a temporary name first: it is complete, or (OSError) what it was before."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines([content.encode()] if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def append_sealed(path: Path, data: Mapping[str, Any], *, synced: bool = True) -> None:
    """Add a line that holds JSON data and its checksum; else as `append_line`."""
    append_line(path, _sealed(data)[:-1], synced=synced)


def read_sealed(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the data of each line that `append_sealed` finished. Raises ValueError where one was changed."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    yield _opened(line)
                except _DAMAGE as error:
                    raise ValueError(f"{path}, line {number}: {error}; remove the line") from error


def append_line(path: Path, line: str | bytes, *, synced: bool = True) -> None:
    """Add a line, in place of a last one that a process left unfinished when it died.

    With `synced` it is on the disk then, else soon: the death of the process does not take it away.

    Raises OSError where it cannot be written; what is there of it counts as unfinished.
    """
    new = not path.exists()
    with path.open("ab+") as file:
        if path.stat().st_size:  # nothing cannot be mapped
            with mmap(file.fileno(), 0, access=ACCESS_READ) as lines:
                whole = lines.rfind(b"\n") + 1
            file.truncate(whole)
        file.write((line.encode() if isinstance(line, str) else line) + b"\n")
        file.flush()
        if synced:
            os.fsync(file.fileno())
    if new:
        sync(path.parent)
