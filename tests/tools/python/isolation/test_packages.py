"""Programs see the packages made for them; what makes or grades tasks, or trains, is neither importable nor readable.

However it is installed: the reasons why each place is hidden are those of `packages`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import turngym
from turngym.envs.registry import make
from turngym.envs.reserved_choices import refuse_unnamed, reserved_choices
from turngym.tests.verify.sandbox.canary import canary, canary_row
from turngym.tools import PythonTool
from turngym.tools.python.isolation import packages


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_nothing_that_makes_grades_or_trains_is_found(level: str, ok):
    tool = PythonTool(timeout=60.0, level=level)
    held = canary_row(tool)
    assert held.good and held.of > 100, held
    tool.close()


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_a_program_imports_what_it_was_given(level: str, ok):
    tool = PythonTool(timeout=60.0, level=level)
    assert (
        ok(tool, "import networkx, mpmath, sympy, dateutil\nprint(networkx.path_graph(3).size())")
        == "2\n"
    )
    assert (
        ok(tool, "import importlib.metadata as m, numpy\nm.version('numpy') == numpy.__version__")
        == "True\n"
    )
    assert (
        ok(tool, "import sys\n[p for p in sys.meta_path if 'editable' in repr(p).lower()]")
        == "[]\n"
    )
    code = "import gc, sys\nsorted({m for m in sys.modules if m.startswith(('turngym', '__editable__', 'site-'))})"
    assert ok(tool, code) == "[]\n"
    seen = "[o.__name__ for o in gc.get_objects() if isinstance(o, type(sys)) and o.__name__.startswith('turngym.envs')]"
    assert ok(tool, seen) == "[]\n"
    for name in ("turngym", "pytest", "gymnasium"):
        assert f"No module named '{name}'" in tool.call({"code": f"import {name}"}).text
    tool.close()


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_packages_are_added_by_name(level: str, ok):
    tool = PythonTool(timeout=60.0, level=level, packages="regex,  PyYAML")
    assert tool.packages == ("pyyaml", "regex")
    assert ok(tool, "import regex, yaml\nprint(yaml.safe_load('[1]'))") == "[1]\n"
    twin = tool.fork()
    assert twin.packages == tool.packages
    twin.close()
    tool.close()


def test_a_package_that_cannot_be_given_is_named():
    for name, reason in (
        ("no-such-thing", "is not installed"),
        ("turngym", "would see turngym itself"),
    ):
        with pytest.raises(ValueError, match=f"packages has '{name}'.*{reason}"):
            PythonTool(packages=[name])
        with pytest.raises(ValueError, match=name):
            make("turngym/MathPython-v0", packages=name)


def test_a_file_cannot_add_a_package():
    for value in ("regex", ["regex"]):
        with pytest.raises(
            ValueError, match=r"the journal asks for 'packages=regex'.*--option packages=regex"
        ):
            refuse_unnamed(reserved_choices({"packages": value}), [], "the journal")
        asked, allowed = (reserved_choices({"packages": one}) for one in (value, "regex,pyyaml"))
        refuse_unnamed(asked, allowed, "the journal")
    refuse_unnamed(reserved_choices({"packages": []}), [], "the journal")


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """`distribution(name, files, **metadata)` installs one in a folder that is searched."""

    def distribution(
        name: str, files: dict[str, str], needs: tuple[str, ...] = (), origin: str = ""
    ) -> Path:
        info = tmp_path / f"{name}-1.0.dist-info"
        lines = "".join(f"Requires-Dist: {need}\n" for need in needs)
        files = {
            **files,
            f"{info.name}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{lines}",
        }
        if origin:
            files[f"{info.name}/direct_url.json"] = origin
        for file, text in files.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        return tmp_path

    monkeypatch.syspath_prepend(str(tmp_path))
    return distribution


def test_a_package_comes_with_what_it_needs_and_nothing_beside(distribution):
    distribution(
        "needed", {"needed.py": "", "shared/needed/__init__.py": "", "needed.pth": "import os"}
    )
    distribution("extra", {"extra.py": "", "shared/extra/__init__.py": ""})
    folder = distribution(
        "wanted",
        {
            "wanted/__init__.py": "",
            "wanted.libs/lib.so": "",
            "../bin/wanted": "",
            "sitecustomize.py": "",
        },
        ("needed>=1; python_version > '3'", 'extra; extra == "more"', "absent"),
    )
    assert packages.find_importable_entries.__wrapped__(("wanted",))[str(folder)] == (
        "needed-1.0.dist-info",
        "needed.py",
        "shared/needed",
        "wanted",
        "wanted-1.0.dist-info",
        "wanted.libs",
    )


def test_a_package_that_needs_turngym_or_is_a_checkout_cannot_be_given(distribution, tmp_path):
    distribution("plugin", {"plugin.py": ""}, ("turngym",))
    with pytest.raises(ValueError, match="'plugin', with which programs would see turngym itself"):
        packages.check_packages(["plugin"])
    source = tmp_path / "checkout of it"
    origin = json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}})
    distribution("edited", {"__editable__.edited.pth": str(source)}, origin=origin)
    with pytest.raises(ValueError, match="'edited', an editable install"):
        packages.check_packages(["edited"])
    assert {str(source), str(tmp_path)} <= packages.find_import_locations()


def test_what_is_not_python_s_own_is_hidden_below_what_is_shown(monkeypatch, tmp_path):
    """A checkout, another environment and other versions' packages below the folders of the interpreter."""
    library = tmp_path / "lib"
    for name in (
        "python3.11/site-packages",
        "python3.12/dist-packages",
        "project/.venv/lib",
        "x86_64-linux-gnu/gconv",
    ):
        (library / name).mkdir(parents=True)
    for name in ("libpython.so", "libssl.so", "libz.so", "python3.11/os.py", "python3.12/os.py"):
        (library / name).touch()
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(library / "python3.11/given")])
    seen = packages.make_view()
    (library / "python3.11/given").mkdir()
    hidden = {
        path.removeprefix(f"{library}/") for path in seen.hidden if path.startswith(str(library))
    }
    assert hidden == {
        "python3.11/site-packages",
        "python3.12/dist-packages",
        "project",
        "python3.11/given",
    }
    readable = {
        path.removeprefix(f"{library}/") for path in seen.readable if path.startswith(str(library))
    }
    assert readable == {
        "libpython.so",
        "libssl.so",
        "libz.so",
        "python3.11/os.py",
        "python3.12/os.py",
        "x86_64-linux-gnu",
    }
    assert {f"{library}/python3.11", f"{library}/python3.12"} <= {*seen.listed}


WHEEL = """
import json, sys
from turngym.envs.registry import make
assert "site-packages/turngym/" in sys.modules["turngym"].__file__
for level in ("namespaces", "landlock"):
    env = make("turngym/MathPython-v0", format="tags", timeout=60, max_turns=3, level=level)
    question, _ = env.reset(seed=77)
    seen = env.step(f"<python>{open(sys.argv[1]).read()}</python>")[0]
    gold = env.step('''<python>
from turngym.envs.registry import make
env = make("turngym/MathPython-v0")
print("GOLD", [task.gold for task in (env.tasks[i] for i in range(9))])
</python>''')[0]
    print(json.dumps([level, seen, gold]))
    env.close()
"""


@pytest.mark.slow
def test_the_gold_of_an_installed_wheel_is_out_of_reach(tmp_path):
    root = Path(turngym.__file__).parent
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(root),
    ]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True
    )
    python = tmp_path / "venv/bin/python"
    [installed] = (tmp_path / "venv/lib").glob("python*/site-packages")
    subprocess.run(
        ["unzip", "-q", *(tmp_path / "dist").glob("*.whl"), "-d", str(installed)], check=True
    )
    others = [path for path in sys.path if path.endswith("site-packages")]
    (installed / "others.pth").write_text("\n".join(others))
    (tmp_path / "canary.py").write_text(canary([str(installed)])[0])
    command = [str(python), "-c", WHEEL, str(tmp_path / "canary.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert not done.returncode, done.stderr
    for line in done.stdout.splitlines():
        level, seen, gold = json.loads(line)
        assert "(0, [])" in seen, (level, seen)
        assert "GOLD" not in gold and "No module named 'turngym'" in gold, (level, gold)
