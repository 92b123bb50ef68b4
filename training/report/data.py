"""What the folder of a run, an evaluation or a comparison holds, as plain data.

Everything that shows a run reads it here. What cannot be read (a damaged line, a file of a later version, one that is
being written) becomes a line of `notes`, and the rest is there. Nothing is taken from a file but data.
"""

import io
import json
import math
import os
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...agents.journal.trees import LONGEST_LINE, VOCABULARY, read_origin, unsealed
from ...tools.files import LinkRefused, list_names, open_plain, read_bytes, read_lines, read_toml
from ..runs.folder import CONFIG, INCIDENTS, METRICS, MOST_METRICS, SUMMARY

EVAL, SETTINGS, TREES, EPISODES, COMPARE = (
    "eval.json",
    "settings.json",
    "trees.jsonl",
    "episodes.jsonl",
    "compare.json",
)
T = TypeVar("T")
UPDATES = "updates"
MOST_NOTES = 20
MOST_PATHS = 1 << 20  # of a step
MOST_SLOTS = 1 << 30  # bytes of what the learner computed in a step, packed or not
DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    OSError,
)
_START = re.compile(rb'\{"key": \[([-\d, ]+)\], "task": (\d+), ')
_LEAVES, _CUT = b', "leaves": [', b'"ended": "length"'


@dataclass(frozen=True)
class Ending:
    """How an episode ended."""

    step: int  # 0 in an evaluation
    task: int
    branch: int
    outcome: str
    stop: str
    score: float | None  # None after a failure
    parent: int = -1  # the branch that it was forked from
    trained: bool = True
    cut: bool = False  # whether one of its turns ended at the token limit

    @property
    def failed(self) -> bool:
        return self.score is None or self.score < 1


@dataclass(frozen=True)
class Slots:
    """What the learner computed of the drawn tokens of a path, from the root on: each `(n,)`."""

    advantage: NDArray[np.float32]
    weight: NDArray[np.float32]  # of the policy term
    logp: NDArray[np.float32]  # nats, the learner's own; NaN where nothing was to be learned


@dataclass(frozen=True)
class Run:
    """A training run, or an evaluation, which has the one step 0 and no lines."""

    name: str
    folder: Path
    kind: Literal["run", "evaluation"]
    settings: dict[str, Any]
    record: dict[str, Any]  # what made it
    lines: list[dict[str, Any]]  # of metrics, by step; None for a number that could not be computed
    incidents: list[dict[str, Any]]
    summary: dict[str, Any]  # of summary.json or eval.json; empty before the end
    journals: dict[int, Path]  # by step
    notes: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return self.lines[-1]["step"] if self.lines else max(self.journals, default=0)

    @property
    def played(self) -> list[int]:
        """Return the steps that are over and have a journal; that of a later step is under way."""
        return [step for step in self.journals if step <= self.steps]

    @property
    def finished(self) -> bool:
        return bool(self.summary) and (
            self.kind == "evaluation" or self.summary.get("steps") == self.steps
        )

    @property
    def age(self) -> float:
        """Return the seconds since anything was written."""
        files = (METRICS, INCIDENTS, EPISODES, SUMMARY, EVAL, CONFIG, SETTINGS)
        times = [
            path.lstat().st_mtime for name in files if os.path.lexists(path := self.folder / name)
        ]
        return max(time.time() - max(times, default=0.0), 0.0)

    def note(self, text: str) -> None:
        """Keep what could not be read; of very much only how it begins."""
        if text not in self.notes and len(self.notes) <= MOST_NOTES:
            self.notes.append(
                text if len(self.notes) < MOST_NOTES else "and more that could not be read"
            )

    def series(self, name: str) -> dict[int, float]:
        found = {line["step"]: number(line.get(name)) for line in self.lines}
        return {step: value for step, value in found.items() if value is not None}

    def family(self, name: str) -> dict[int, dict[int, float]]:
        """Return the values of the metrics NAME/T by T (a turn) and step."""
        names = {
            key
            for line in self.lines
            for key in line
            if re.fullmatch(rf"{re.escape(name)}/\d{{1,6}}", key)
        }
        turns = sorted(int(key.rpartition("/")[2]) for key in names)
        return {turn: self.series(f"{name}/{turn}") for turn in turns}

    def endings(self, step: int) -> Iterator[Ending]:
        """Return how the episodes of a step ended, in the order of the journal, without reading what was said."""
        return chain.from_iterable(self._read(step, lambda text: list(_endings(step, text))))

    def trees(self, step: int) -> Iterator[dict[str, Any]]:
        return self._read(step, _tree)

    def _read(self, step: int, parse: Callable[[bytes], T]) -> Iterator[T]:
        for where, text in self.rows(step):
            try:
                found = parse(text)
            except DAMAGE as error:
                self.note(f"{where}: not a tree of this version ({type(error).__name__})")
            else:
                yield found

    def slots(self, step: int) -> dict[tuple[int, ...], Slots]:
        """Return what the learner computed in a step, by the key of a path; nothing where it was not kept."""
        path = self.folder / UPDATES / f"step-{step:06d}.npz"
        if not os.path.lexists(path):
            return {}
        try:
            data = _arrays(
                read_bytes(path, MOST_SLOTS, self.folder),
                ("advantage", "weight", "logp", "count", "key"),
            )
            columns = [
                np.asarray(data[name], np.float32) for name in ("advantage", "weight", "logp")
            ]
            if len(data["count"]) > MOST_PATHS:
                raise ValueError(
                    f"it has {len(data['count'])} paths; a step has at most {MOST_PATHS}"
                )
            ends = np.cumsum(data["count"])[:-1]
            cut = zip(*(np.split(column, ends) for column in columns), strict=True)
            return {
                tuple(key): Slots(*of) for key, of in zip(data["key"].tolist(), cut, strict=True)
            }
        except (*DAMAGE, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            self.note(f"{UPDATES}/{path.name}: cannot be read ({_short(error)})")
            return {}

    def vocabulary(self) -> list[bytes]:
        """Return the bytes of each token; nothing where they were not kept."""
        data = _json(self.folder / VOCABULARY, self.note, list)
        try:
            return [piece.encode("utf-8", "surrogateescape") for piece in data]
        except DAMAGE:
            self.note(f"{VOCABULARY}: not a list of texts")
            return []

    def rows(self, step: int) -> Iterator[tuple[str, bytes]]:
        """Yield the place and the JSON text of each tree of a journal."""
        path = self.journals.get(step)
        if path is None:
            return
        name = path.relative_to(self.folder)
        try:
            if headed := path.name != EPISODES:
                read_origin(path, self.folder)
            with open_plain(path, self.folder) as file:
                for number, line in islice(
                    enumerate(read_lines(file, LONGEST_LINE, path), 1), headed, None
                ):
                    try:
                        yield f"{name}, line {number}", unsealed(line)
                    except ValueError as error:
                        self.note(f"{name}, line {number}: {error}")
        except DAMAGE as error:
            self.note(_short(error).replace(f"{self.folder}/", ""))


@dataclass(frozen=True)
class Found:
    """What folders hold: runs and evaluations, and the numbers of a comparison if one of them is one."""

    runs: list[Run]
    comparison: dict[str, Any] = field(default_factory=dict)


def read(folders: list[Path]) -> Found:
    """Read runs, evaluations and comparisons. Raises ValueError or OSError where a folder is none of them."""
    runs: list[Run] = []
    comparison: dict[str, Any] = {}
    for folder in folders:
        if not folder.is_dir():
            kind, what = (
                (ValueError, "is a file")
                if folder.exists()
                else (FileNotFoundError, "does not exist")
            )
            raise kind(
                f"{folder} {what}; name the folder of a run, of an evaluation or of a comparison"
            )
        trials = _trials(folder)
        if any(os.path.lexists(folder / name) for name in (CONFIG, METRICS)):
            runs.append(_run(folder, folder.resolve().name))
        elif any(os.path.lexists(folder / name) for name in (EVAL, SETTINGS, TREES, EPISODES)):
            runs.append(_evaluation(folder))
        elif trials or os.path.lexists(folder / COMPARE):
            found = [_run(trial, str(trial.relative_to(folder))) for trial in trials]
            if not found:
                raise ValueError(
                    f"{folder} is a comparison without a run; name its runs where they are now"
                )
            comparison = comparison or _json(folder / COMPARE, found[0].note, dict)
            runs += found
        else:
            fix = "name a folder that `turngym train`, `eval --out` or `compare` wrote"
            what = f"is no run, evaluation or comparison: it has no {CONFIG}, {EVAL} or {COMPARE}"
            raise ValueError(f"{folder} {what}; {fix}")
    names = [run.name for run in runs]
    return Found(
        [replace(run, name=str(run.folder)) if names.count(run.name) > 1 else run for run in runs],
        comparison,
    )


def number(value: Any) -> float | None:
    """Return a value as a number; None where it is none or not finite."""
    with suppress(OverflowError):  # of a whole number
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
    return None


def _run(folder: Path, name: str) -> Run:
    run = Run(name, folder, "run", {}, {}, [], [], {}, {})
    try:
        steps = (
            re.fullmatch(r"step-(\d{1,12})\.jsonl", name)
            for name in list_names(folder / "trees", folder)
        )
        run.journals.update(
            sorted((int(step[1]), folder / "trees" / step[0]) for step in steps if step)
        )
    except (OSError, LinkRefused) as error:
        run.note(f"trees: cannot be read ({_short(error)})")
    try:
        config = read_toml(folder / CONFIG)
        run.settings.update(config.get("train", {}))
        run.record.update(config.get("record", {}))
    except FileNotFoundError:
        run.note(f"{CONFIG} is missing")
    except DAMAGE as error:
        run.note(f"{CONFIG}: cannot be read ({_short(error)})")
    _newer(run, run.record.get("version"))
    by_step: dict[int, dict[str, Any]] = {}
    for where, line in _jsonl(folder / METRICS, run.note):
        if type(step := line.get("step")) is not int or not 0 <= step < 1 << 53:
            run.note(f"{where}: it has no step")
            continue
        if step in by_step:
            run.note(f"{where}: step {step} again; the later line is shown")
        by_step[step] = line
    run.lines.extend(by_step[step] for step in sorted(by_step))
    run.incidents.extend(line for _, line in _jsonl(folder / INCIDENTS, run.note))
    run.summary.update(_json(folder / SUMMARY, run.note, dict))
    return run


def _evaluation(folder: Path) -> Run:
    journal = next(
        (path for name in (TREES, EPISODES) if os.path.lexists(path := folder / name)), None
    )
    run = Run(
        folder.resolve().name,
        folder,
        "evaluation",
        {},
        {},
        [],
        [],
        {},
        {0: journal} if journal else {},
    )
    run.settings.update(_json(folder / SETTINGS, run.note, dict))
    run.summary.update(_json(folder / EVAL, run.note, dict))
    _newer(run, run.settings.get("turngym"))
    if journal is None:
        run.note(f"{TREES} is missing: there is nothing to show of single episodes")
    return run


def _newer(run: Run, version: Any) -> None:
    """Note a version that is later than this one."""
    parts = [
        tuple(map(int, re.findall(r"\d{1,9}", text)[:3]))
        for text in (f"{version or ''}", __version__)
    ]
    if parts[0] > parts[1]:
        run.note(
            f"written by turngym {version}, read by {__version__}: what is new in it may be missing here"
        )


def _jsonl(path: Path, note: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and object of each line; an unfinished last line is being written and left out."""
    try:
        data = read_bytes(path, MOST_METRICS) if os.path.lexists(path) else b""
    except (OSError, ValueError) as error:
        note(f"{path.name}: cannot be read ({_short(error)})")
        return
    for at, line in enumerate(data.split(b"\n")[:-1], 1):
        where = f"{path.name}, line {at}"
        try:
            found = json.loads(line.decode("utf-8", "replace"))
            if not isinstance(found, dict):
                raise ValueError("no object")
        except DAMAGE as error:
            note(f"{where}: damaged ({_short(error)})")
        else:
            yield where, found


def _json(path: Path, note: Callable[[str], None], kind: type) -> Any:
    """Return what a file holds; an empty value where it is missing, or damaged, which is noted."""
    if os.path.lexists(path):
        try:
            found = json.loads(read_bytes(path).decode("utf-8", "replace"))
            if isinstance(found, kind):
                return found
            note(f"{path.name}: holds a {type(found).__name__} in place of a {kind.__name__}")
        except DAMAGE as error:
            note(f"{path.name}: cannot be read ({_short(error)})")
    return kind()


def _trials(folder: Path) -> list[Path]:
    """Return the folders METHOD/seed-S of a comparison; behind a link there is none."""
    found = []
    for method in sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()
    ):
        for trial in sorted(
            path for path in method.iterdir() if re.fullmatch("seed-.*", path.name)
        ):
            files = (trial / CONFIG, trial / METRICS)
            if not trial.is_symlink() and any(map(os.path.lexists, files)):
                found.append(trial)
    return found


def _arrays(data: bytes, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file that are asked for. Raises ValueError where one says that it is larger than it
    is, or all together are larger than `MOST_SLOTS`: NumPy would make room for what a header says.
    """
    found: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        left = MOST_SLOTS
        for name in names:
            with packed.open(f"{name}.npy") as file:
                text = file.read(left + 1)
            left -= len(text)
            if left < 0:
                raise ValueError(f"its arrays have more than {MOST_SLOTS >> 20} MiB")
            stream = io.BytesIO(text)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            shape, _, kind = read[np.lib.format.read_magic(stream)](stream)
            if math.prod(shape) * kind.itemsize > len(text):
                raise ValueError(
                    f"{name} would have the shape {shape}, which its {len(text)} bytes do not fill"
                )
            found[name] = np.lib.format.read_array(io.BytesIO(text), allow_pickle=False)
    return found


def _tree(text: bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    if not (isinstance(data["turns"], list) and isinstance(data["leaves"], list)):
        raise TypeError("turns or leaves is no list")
    return data


def _endings(step: int, text: bytes) -> Iterator[Ending]:
    task, leaves, turns = _leaves(text)
    for leaf in leaves:
        how = (int(leaf["branch"]), str(leaf["outcome"]), str(leaf["stop"]), number(leaf["score"]))
        cut = bool(turns) and any(
            turns[node]["ended"] == "length" for node in path_of(turns, leaf["node"])
        )
        yield Ending(
            step, int(task), *how, int(leaf.get("parent", -1)), bool(leaf.get("trained", True)), cut
        )


def path_of(turns: Sequence[Mapping[str, Any]], node: int) -> list[int]:
    """Return the indices of the turns from the root to `node`. Raises ValueError where they make a circle."""
    nodes = [node]
    while (parent := turns[nodes[-1]]["parent"]) >= 0:
        if not parent < nodes[-1]:
            raise ValueError(f"turn {nodes[-1]} stands before its parent {parent}")
        nodes.append(parent)
    return nodes[::-1]


def _leaves(text: bytes) -> tuple[int, list[dict[str, Any]], list[dict[str, Any]]]:
    """Return task and leaves, and turns if one was cut; leaves end the line, so turns of other trees are not read."""
    start, at = _START.match(text), text.rfind(_LEAVES)
    if start and at > 0 and _CUT not in text:
        with suppress(*DAMAGE):  # the words may stand elsewhere in the line
            leaves = json.loads(b"{" + text[at + 2 :])["leaves"]
            if leaves and all("outcome" in leaf and "node" in leaf for leaf in leaves):
                return int(start[2]), leaves, []
    data = json.loads(text)
    return data["task"], data["leaves"], data["turns"]


def _short(error: BaseException) -> str:
    text = " ".join(f"{error}".split()) or type(error).__name__
    return text if len(text) <= 240 else f"{text[:80]}…{text[-160:]}"  # the path, and what is wrong
