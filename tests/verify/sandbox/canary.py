"""A program that looks for what makes or grades tasks or trains, told every place and file that this process knows."""

from __future__ import annotations

import ast
import base64
import json
import os
import site
import sys
from importlib import metadata
from pathlib import Path

import turngym
from turngym.tests.verify.rows import Row, first
from turngym.tools import PythonTool
from turngym.tools.python.isolation import levels as isolation

_CANARY = r"""
import base64, glob, importlib, importlib.util, json, os, subprocess, sys, zipimport
names, places, files = json.loads(base64.b64decode(b'{told}'))
found = []
for name in names:
    try:
        importlib.import_module(name)
        found.append(name)
    except ImportError:
        pass
for place in places:
    for name in names:
        for file in (place + '/' + name + '/__init__.py', place + '/' + name + '.py'):
            try:
                spec = importlib.util.spec_from_file_location(name, file)
                spec.loader.get_code(name)
                found.append(file)
            except (OSError, ImportError):
                pass
        try:
            zipimport.zipimporter(place).load_module(name)
            found.append(place)
        except (OSError, ImportError):
            pass
for file in files:
    try:
        open(file).close()
        found.append(file)
    except OSError:
        pass
tried = 'import sys; sys.path[:0] = ' + repr(places) + '''
for name in %r:
    try:
        if getattr(__import__(name), '__file__', None):  # else an empty folder, above the interpreter
            print(name)
    except (ImportError, OSError):
        pass
''' % (names,)
pythons = [sys.executable, os.path.realpath(sys.executable), *glob.glob('/usr/bin/python3*[0-9]')]
for python in dict.fromkeys(pythons):
    for flags in ([], ['-S'], ['-I']):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(places))
        done = subprocess.run([python, *flags, '-c', tried], env=env, capture_output=True, text=True)
        found += [python + ' ' + name for name in done.stdout.split()]
print((len(found), found[:9]))
"""
_FORBIDDEN = (
    "turngym",
    "gymnasium",
    "reasoning_gym",
    "datasets",
    "math_verify",
    "latex2sympy2_extended",
    "transformers",
    "peft",
    "torch",
    "accelerate",
    "trl",
    "vllm",
    "safetensors",
    "tokenizers",
)


def canary_row(tool: PythonTool) -> Row:
    """Count what is out of reach of the programs of a tool."""
    code, tried = canary([])
    result = tool.call({"code": code})
    tool.close()
    count, some = (
        ast.literal_eval(result.text)
        if result.status == "ok"
        else (tried, [f"{result.status}: {result.text}"])
    )
    return Row(
        "what makes, grades or trains is neither importable nor readable",
        tried - count,
        tried,
        first(some),
    )


def canary(extra: list[str]) -> tuple[str, int]:
    """Return a program that prints what it finds, told all that this process knows, and how many things it tries."""
    places = {
        *filter(os.path.isabs, sys.path),
        *site.getsitepackages(),
        str(Path(turngym.__file__).parents[1]),
        *extra,
    }
    files = {
        turngym.__file__,
        str(Path(turngym.__file__).parent / "pyproject.toml"),
        isolation.__file__,
    }
    for distribution in metadata.distributions():
        if distribution.name not in ("turngym", "transformers", "reasoning_gym", "math-verify"):
            continue
        some = [
            file
            for file in distribution.files or ()
            if file.suffix in (".py", ".pth", "") or "info" in str(file)
        ]
        files |= {str(distribution.locate_file(file)) for file in some[:40]}
    told = base64.b64encode(
        json.dumps([_FORBIDDEN, sorted(places), sorted(files)]).encode()
    ).decode()
    return _CANARY.replace("{told}", told), len(_FORBIDDEN) * (1 + len(places)) + len(files)
