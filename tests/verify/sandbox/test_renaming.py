"""Programs under other names: they do what they did, and nothing that has a meaning elsewhere is renamed."""

import contextlib
import io
import random
import re

import pytest

from turngym.tests.verify.sandbox.renaming import renamed

PROGRAMS = {
    "functions": "def area(width, height=2):\n    size = width * height\n    return size\nprint(area(3), area(4, 5))\n",
    "keywords": "def area(width, height):\n    return width * height\nprint(area(width=3, height=4))\n",
    "classes": "class Box:\n    size = 3\n    def grow(self, by):\n        self.size += by\n        return self\n"
    "box = Box().grow(2)\nprint(box.size)\n",
    "texts": "value = 3\nprint(eval('value'), globals()['value'], f'{value}')\nother = 4\nprint(f'{other + 1}')\n",
    "modules": "import math as m, json\nfrom os import path as where\nprint(m.pi, json.dumps({'m': 1}), where.sep)\n",
    "errors": "try:\n    1 / 0\nexcept ZeroDivisionError as problem:\n    print(type(problem).__name__)\n",
    "attributes": "append = 3\nitems = []\nitems.append(append)\nprint(items)\n",
    "scopes": "count = 0\ndef add():\n    global count\n    count += 1\n    def deep():\n        nonlocal_ = count\n"
    "        return [count for count in range(nonlocal_)]\n    return deep()\nprint(add(), add(), count)\n",
    "widths": "名 = 'é'; print(名 * 2); x = 1; print(x)\n",
    "crlf": "a = 1\r\nif a:\r\n    print(a)\r\n",
}


def output(code):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        exec(compile(code, "program", "exec"), {"__name__": "__main__"})
    return text.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_renamed_program_does_the_same(name):
    code = PROGRAMS[name]
    for seed in range(3):
        assert output(renamed(code, random.Random(seed))) == output(code)


def test_own_names_are_changed():
    other = renamed(PROGRAMS["functions"], random.Random(0))
    assert not re.search(r"\b(area|width|size)\b", other) and "print" in other
    assert renamed(PROGRAMS["functions"], random.Random(1)) != other
