"""Mistakes on the command line: one line that names the thing and the fix, exit status 2, nothing left behind.

`benchmarks/mistakes.py` measures the seconds of each.
"""

import shlex
import subprocess
import sys

import pytest

from turngym import __main__ as cli
from turngym.tests.support.mistakes import MISTAKES, OF_OWN_QUESTIONS, OF_VALUES, write_files

EXTRA = (
    "torch",
    "transformers",
    "tokenizers",
    "jinja2",
    "peft",
    "safetensors",
    "accelerate",
    "datasets",
)
# What needs no package of an extra, in one process that has none of them.
FREE = f"""
import contextlib, io, sys
from importlib.machinery import PathFinder

class Rest(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRA} else super().find_spec(name, path, target)

sys.meta_path[:] = [Rest if one is PathFinder else one for one in sys.meta_path]
from turngym.__main__ import main

for line in sys.stdin.read().splitlines():
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(line.split())
    except SystemExit as left:
        print(left.code, " ".join(said.getvalue().split()))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the files that mistakes name; what they import is forgotten afterwards."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("NOT_SET", raising=False)
    yield tmp_path
    for name in ("plain", "raises", "own", "broken"):
        sys.modules.pop(name, None)


# Only the first request shows that nobody answers: by then the command has said what it begins.
BEGUN = {
    "eval --model gpt --base-url http://127.0.0.1:9/v1 --retries 0 --episodes 1": (
        "evaluating gpt on turngym/MathPython-v0\n"
    )
}


@pytest.mark.parametrize("line", [*MISTAKES, *OF_VALUES, *OF_OWN_QUESTIONS])
def test_a_mistake_is_one_line_that_names_the_fix_and_leaves_nothing(line, folder, capfd):
    before = sorted(folder.rglob("*"))
    with pytest.raises(SystemExit) as left:
        cli.main(shlex.split(line))
    out, err = capfd.readouterr()
    assert (left.value.code, out) == (2, BEGUN.get(line, ""))
    assert (
        err.startswith("error: ")
        and (MISTAKES | OF_VALUES | OF_OWN_QUESTIONS)[line] in err
        and err.count("\n") == 1
    )
    assert sorted(folder.rglob("*")) == before


def test_the_table_has_what_was_promised():
    assert len(MISTAKES) >= 40 and len(OF_OWN_QUESTIONS) >= 20


def free(lines, folder):
    """Exit status and output of each command line, where no package of an extra can be imported."""
    done = subprocess.run(
        [sys.executable, "-c", FREE],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return [(int(line.split()[0]), line) for line in done.stdout.splitlines()]


def test_what_needs_no_model_needs_no_package_of_an_extra(folder):
    lines = {
        "eval --policy expert --episodes 3 --out e": "3 tasks, 0 failed",
        "eval turngym/Math-v0 --tasks good.jsonl --policy expert": "1 tasks, 0 failed",
        "replay e/trees.jsonl": "3 episodes of e/trees.jsonl were replayed without a difference",
        "methods": "turn-floor",
        "methods epo": "alpha=0.1 (0 or more)",
        "envs": "turngym/Search-v0",
        "play turngym/Math-v0": "stopped before the end of the episode",
    }
    for (status, said), (line, part) in zip(free(lines, folder), lines.items(), strict=True):
        assert status == 0 and part in said, line


def test_what_needs_a_package_names_its_extra(folder):
    lines = {
        "eval --policy expert --tasks gsm8k": "gsm8k needs the package datasets: pip install 'turngym[tasks]'",
        "eval --policy tiny": "policies need the training extra: pip install 'turngym[train]'",
        "train": "policies need the training extra: pip install 'turngym[train]'",
        "warmup turngym/Math-v0": "policies need the training extra: pip install 'turngym[train]'",
        "compare grpo": "policies need the training extra: pip install 'turngym[train]'",
        "train --method grpo,rloo": "grpo and rloo both set credit",
    }
    before = sorted(folder.rglob("*"))
    for (status, said), (line, part) in zip(free(lines, folder), lines.items(), strict=True):
        assert status == 2 and part in said, line
    assert sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts) == before


@pytest.mark.slow
def test_a_check_and_the_doctor_need_no_package_of_an_extra(folder):
    (checked, said), (_, found) = free(["check turngym/Math-v0", "doctor"], folder)
    assert checked == 0 and "keeps the contract" in said
    assert "accelerator" in found and "math-verify" in found


def test_the_command_line_imports_no_torch_for_a_mistake(folder):
    lines = [
        "methods epo",
        "train --method grpo,rloo",
        "train --method grpo,arpo,aepo",
        "compare grop",
    ]
    code = "import sys, shlex\nfrom turngym.__main__ import main\nfor line in sys.argv[1:]:\n"
    code += "    try:\n        main(shlex.split(line))\n    except SystemExit:\n        pass\n"
    code += "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code, *lines], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]"
