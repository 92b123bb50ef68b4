"""The functions that `reading.py` shows and counts: of a commit of turngym, and of the wheels of other code bases."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("tools", "envs", "agents", "training")
CODE_BASES = {  # by the package that brings them: the folder of their code
    "httpx": "httpx",
    "tinker-cookbook": "tinker_cookbook",
    "verifiers": "verifiers",
    "trl": "trl",
    "inspect-ai": "inspect_ai",
    "gymnasium": "gymnasium",
    "optax": "optax",
    "rlax": "rlax",
}
FEWEST_STATEMENTS = 6
_TESTS = re.compile(
    r"(?:^|/)(?:tests?|testing|_vendor)/|(?:^|/)(?:test_[^/]*|[^/]*_test|conftest)\.py$"
)


@dataclass(frozen=True)
class SourceFile:
    """A Python file.

    Args:
        origin: `turngym`, or the package it is from.
        room: The part of it: a folder of turngym, or the package once more.
        path: In the repository or in the wheel.
        text: Its source.
    """

    origin: str
    room: str
    path: str
    text: str


@dataclass(frozen=True)
class Function:
    """A function of a file.

    Args:
        file: Where it is.
        name: Its qualified name, `Class.method` for a method.
        text: Its source with decorators, moved to the left.
        statements: How many statements it has, inner ones too, its docstring not.
    """

    file: SourceFile
    name: str
    text: str
    statements: int

    @property
    def identity(self) -> tuple[str, str, str]:
        """Origin, path and name: what a key names."""
        return self.file.origin, self.file.path, self.name


def files_of_commit(commit: str, rooms: Sequence[str]) -> list[SourceFile]:
    """Return the Python files of some folders at a commit; of two named folders a file is in the inner one.

    Raises ValueError if there is no such commit, or a folder holds no Python file.
    """
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True
    )
    if archive.returncode:
        raise ValueError(f"commit {commit!r} cannot be read: {archive.stderr.decode().strip()}")
    files = []
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar:
            room = room_of(member.name, rooms)
            content = tar.extractfile(member) if room and member.name.endswith(".py") else None
            if room and content is not None:
                files.append(
                    SourceFile("turngym", room, member.name, content.read().decode("utf-8"))
                )
    for room in rooms:
        if room not in {file.room for file in files}:
            raise ValueError(
                f"the folder {room!r} holds no Python file at {commit}; name folders such as {ROOMS[0]}"
            )
    return files


def room_of(path: str, rooms: Sequence[str]) -> str | None:
    """Return the innermost of some folders that a file is in; None if it is in none."""
    around = [room for room in rooms if path.startswith(f"{room.rstrip('/')}/")]
    return max(around, key=len, default=None)


def full_hash(commit: str) -> str:
    """Return the whole hash of a commit. Raises ValueError if there is none."""
    done = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True
    )
    if done.returncode:
        raise ValueError(f"there is no commit {commit!r}; name a hash, or HEAD")
    return done.stdout.decode().strip()


def fetch_wheels(folder: Path, packages: Sequence[str] = tuple(CODE_BASES)) -> dict[str, Path]:
    """Return the wheel of each package, downloaded to `folder` unless it is there; print which cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = {}
    for package in packages:
        if find_wheel(folder, package) is None:
            command = [
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
                str(folder),
            ]
            subprocess.run([sys.executable, *command, package], capture_output=True)
        wheel = find_wheel(folder, package)
        if wheel is None:
            print(f"left out: {package}: pip cannot download a wheel of it", file=sys.stderr)
        else:
            wheels[package] = wheel
    return wheels


def find_wheel(folder: Path, package: str) -> Path | None:
    """Return the wheel of a package in a folder; None if it has none."""
    return next(iter(sorted(folder.glob(f"{package.replace('-', '_')}-*.whl"))), None)


def files_of_wheel(package: str, wheel: Path) -> list[SourceFile]:
    """Return the Python files of a package's wheel, without its tests and what it has copied from others."""
    files = []
    with zipfile.ZipFile(wheel) as archive:
        for path in sorted(archive.namelist()):
            inside = PurePosixPath(path).parts[0] == CODE_BASES.get(
                package, package.replace("-", "_")
            )
            if inside and path.endswith(".py") and not _TESTS.search(path):
                files.append(SourceFile(package, package, path, archive.read(path).decode("utf-8")))
    return files


def functions_of(file: SourceFile) -> Iterator[Function]:
    """Yield the functions and methods of a file, without those inside of other functions."""
    lines = file.text.splitlines(keepends=True)
    for name, node in definitions(ast.parse(file.text)):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        yield Function(
            file, name, dedented(lines[first - 1 : node.end_lineno]), count_statements(node)
        )


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the qualified name and the node of each function of a module and of its classes."""
    open_nodes: list[tuple[str, ast.AST]] = [("", tree)]
    while open_nodes:
        prefix, parent = open_nodes.pop(0)
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{node.name}", node
            elif isinstance(node, ast.ClassDef):
                open_nodes.append((f"{prefix}{node.name}.", node))
            elif isinstance(node, ast.If | ast.Try):
                open_nodes.append((prefix, node))


def dedented(lines: Sequence[str]) -> str:
    """Return lines without the blanks that the first one begins with; lines of a string may have fewer."""
    margin = len(lines[0]) - len(lines[0].lstrip(" "))
    return (
        "".join(line[margin:] if line[:margin].isspace() else line for line in lines).rstrip()
        + "\n"
    )


def count_statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of statements in a function, inner ones too, without its docstring."""
    count = sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1
    return count - (ast.get_docstring(function, clean=False) is not None)


PROJECTS = (
    "turngym",
    "tinker[_ -]?cookbook",
    "tinker",
    "httpx",
    "httpcore",
    "prime[_ -]?intellect",
    "verifiers",
    "hugging[_ -]?face",
    "trl",
    "inspect[_-]ai",
    "gymnasium",
    "farama",
    "optax",
    "rlax",
    "deepmind",
)
# Case of letters around a name counts: `TinkerClient` has it, `ctrl` and `optaxes` do not.
_PROJECT = re.compile(rf"(?<![a-z])(?i:{'|'.join(PROJECTS)})(?![a-z])")


def without_projects(text: str) -> str:
    """Return source in which the names of all projects are `project`, in the same case."""
    return _PROJECT.sub(in_same_case, text)


def in_same_case(name: re.Match[str]) -> str:
    """Return `project` in the case of a name that is found."""
    if name[0].isupper():
        return "PROJECT"
    return "Project" if name[0][0].isupper() else "project"


def group_by_room(files: Sequence[SourceFile]) -> Mapping[str, list[SourceFile]]:
    """Return the files of each room."""
    rooms: dict[str, list[SourceFile]] = {}
    for file in files:
        rooms.setdefault(file.room, []).append(file)
    return rooms
