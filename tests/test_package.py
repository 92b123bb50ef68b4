"""The root is the package: nothing stray, imports downwards, light to import."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import turngym

ROOT = Path(turngym.__file__).parent
ROOMS = {"tools": 0, "envs": 1, "agents": 2, "training": 3}


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_packages_list_equals_the_tree():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = config["tool"]["setuptools"]["packages"]
    found = ["turngym"] + [
        ".".join(("turngym", *path.parent.relative_to(ROOT).parts))
        for room in ROOMS
        for path in (ROOT / room).rglob("__init__.py")
    ]
    assert sorted(listed) == sorted(found)


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_root_holds_no_stray_modules():
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_tests_are_no_packages():
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a file imports, absolutely or relatively."""
    depth = len(path.relative_to(ROOT).parts) - 1
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level > depth:
            names |= {(node.module or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turngym."):
            names.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {
                alias.name.split(".")[1]
                for alias in node.names
                if alias.name.startswith("turngym.")
            }
    return names & set(ROOMS)


def test_imports_point_downwards():
    upward = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room, floor in ROOMS.items()
        for path in (ROOT / room).rglob("*.py")
        for name in imported_rooms(path)
        if ROOMS[name] > floor
    ]
    assert upward == []


def test_an_upward_import_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "tools").mkdir()
    bad = tmp_path / "tools" / "bad.py"
    bad.write_text(
        "from ..training import loop\nimport turngym.agents.chat\nfrom turngym.envs import text_env as core\n"
    )
    assert imported_rooms(bad) == {"training", "agents", "envs"}


def test_tools_and_environments_do_not_import_torch():
    heavy = "[m for m in ('torch', 'transformers', 'peft', 'sympy') if m in sys.modules]"
    code = f"import sys, turngym, turngym.envs.math, gymnasium; gymnasium.make('turngym/MathPython-v0'); print({heavy})"
    assert run(code) == "[]"


def test_the_command_line_starts_without_what_the_training_extra_brings():
    heavy = "[m for m in ('torch', 'transformers', 'tokenizers', 'jinja2') if m in sys.modules]"
    assert run(f"import sys, turngym.__main__; print({heavy})") == "[]"


def test_import_costs_little_more_than_gymnasium():
    """Half a second more is allowed; modules are counted rather than timed, because a busy machine is slow."""
    code = "import sys, gymnasium; before = len(sys.modules); import turngym; print(len(sys.modules) - before)"
    assert int(run(code)) < 150


def test_rooms_are_not_importable_by_their_bare_names():
    rooms = "('tools', 'envs', 'agents', 'training')"
    code = f"import sys, turngym.envs.math, turngym.agents; print([r for r in {rooms} if r in sys.modules])"
    assert run(code) == "[]"


def test_public_names_exist():
    assert sorted(turngym.__all__) == turngym.__all__ or set(turngym.__all__) <= set(dir(turngym))
    assert all(getattr(turngym, name) is not None for name in turngym.__all__)


def test_a_clone_under_another_name_imports_the_package_once(tmp_path):
    """Tests collected from an oddly named checkout must meet one `turngym`, not a second copy by folder name."""
    clone = tmp_path / "odd-name"
    clone.mkdir()
    for name in ("__init__.py", "__main__.py", "py.typed", "pyproject.toml", "tools", "envs"):
        (clone / name).symlink_to(ROOT / name)
    (clone / "tests").mkdir()
    (clone / "tests" / "test_once.py").write_text(
        "import sys\n\ndef test_once():\n    import turngym.envs.text_env as core\n"
        "    modules = list(sys.modules.values())\n"
        "    copies = [m for m in modules if hasattr(m, 'TextEnv') and m.__name__.endswith('text_env')]\n"
        "    assert copies == [core]\n    assert 'odd-name' not in sys.modules and '__init__' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- the rooms


def modules() -> dict[str, Path]:
    """The modules of the rooms, by their names below `turngym`."""
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files
    }


def imported_modules(name: str, known: dict[str, Path]) -> set[str]:
    """The modules that one imports anywhere in it; a package for what the package itself defines."""
    found = set()
    for node in ast.walk(parsed(known[name])):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = name.split(".") if known[name].name == "__init__.py" else name.split(".")[:-1]
            base = [*package[: len(package) - node.level + 1], *filter(None, [node.module])]
            targets = {".".join([*base, alias.name]) for alias in node.names}
            found |= {target if target in known else ".".join(base) for target in targets}
    return (found & known.keys()) - {name}


def test_there_is_no_circle_of_imports():
    known = modules()
    imports = {name: imported_modules(name, known) for name in known}
    while free := [
        name for name, targets in imports.items() if not targets
    ]:  # what imports nothing is on no circle
        for name in free:
            del imports[name]
        imports = {name: targets & imports.keys() for name, targets in imports.items()}
    assert imports == {}


def test_a_class_name_has_one_meaning():
    nodes = (
        node
        for path in modules().values()
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in Counter(node.name for node in nodes).items() if count > 1] == []


@pytest.mark.parametrize(
    "folder", sorted({str(path.parent.relative_to(ROOT)) for path in modules().values()})
)
def test_a_folder_begins_with_its_table_of_contents(folder):
    contents = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
    parts = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
    parts |= {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    assert [part for part in sorted(parts) if not re.search(rf"\b{part}\b", contents)] == []
