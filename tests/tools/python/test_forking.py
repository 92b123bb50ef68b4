import pytest

from turngym.tools import PythonTool
from turngym.tools.python.session import CannotFork


def test_a_twin_has_a_copy_of_all_files_and_stands_where_its_origin_stood(python: PythonTool, ok):
    ok(python, "import os\nos.makedirs('a/b'); os.symlink('b', 'a/link'); open('a/b/c', 'w').write('1')\nos.chdir('a')")
    twin = python.fork()
    where = "os.path.relpath(os.getcwd(), os.environ['HOME']), os.environ['TMPDIR'] == os.environ['HOME']"
    assert ok(twin, where) == ok(python, where) == "('a', True)\n"
    assert ok(twin, "open('link/c').read(), os.readlink('link')") == "('1', 'b')\n"
    ok(python, "import shutil\nshutil.rmtree('b')")
    assert ok(twin, "open('b/c').read()") == "'1'\n"
    assert ok(python, "os.environ['HOME']") != ok(twin, "os.environ['HOME']")
    twin.close()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, name='poller', daemon=True).start()",
            r"it has live threads \(poller\)",
        ),
        ("import subprocess\np = subprocess.Popen(['sleep', '1000'])", "it has child processes"),
        ("import os\nif not os.fork(): os._exit(0)", "it has child processes"),
        ("f = open('note', 'w')", "it has open for writing: .*/note"),
        ("f = open('note', 'a+')", "it has open for writing: .*/note"),
        ("import socket\npair = socket.socketpair()", "it has open for writing: socket"),
        ("import os\nends = os.pipe()", "it has open for writing: pipe"),
        ("import os\nn = os.dup(1)", "it has open for writing: pipe"),
    ],
)
def test_what_a_fork_would_lose_or_share_is_named(python: PythonTool, code: str, reason: str, ok):
    ok(python, code + "\nx = 1")
    with pytest.raises(CannotFork, match=f"^the Python session cannot be forked: {reason}"):
        python.fork()
    assert ok(python, "x") == "1\n"


def test_what_is_over_does_not_keep_a_session_from_forking(python: PythonTool, ok):
    ok(
        python,
        "import subprocess, threading\nsubprocess.run(['true'])\nthreading.Thread(target=print).start()\n"
        "with open('note', 'w') as f: _ = f.write('1')\nreading = open('note')",
    )
    twin = python.fork()
    assert ok(twin, "reading.read()") == "'1'\n"
    twin.close()


def test_reasons_are_plain_text_whatever_a_session_calls_its_files(python: PythonTool, ok):
    ok(python, "f = open('a\\x1b[2J\\n\"b' + 'c' * 200, 'w')\nx = 1")
    with pytest.raises(CannotFork) as caught:
        python.fork()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert ok(python, "x") == "1\n"


def test_a_twin_whose_files_cannot_be_copied_says_so(python: PythonTool, ok):
    ok(python, "import os\nfor n in range(3):\n    with open(str(n), 'wb') as f: _ = f.write(bytes(15 * 2**20))\nx = 1")
    with pytest.raises(CannotFork, match="No space left on device"):
        python.fork()
    assert ok(python, "x, len(os.listdir('.'))") == "(1, 3)\n"


def test_a_twin_draws_the_numbers_of_its_origin(python: PythonTool, ok):
    ok(python, "import random\nimport numpy as np\nrandom.random(), np.random.rand()")
    twin = python.fork()
    draw = "random.random(), np.random.rand(), hash('text')"
    assert ok(python, draw) == ok(twin, draw)
    twin.close()
