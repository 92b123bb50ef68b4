"""All memory of a session counts, whatever it is made of and whenever it is taken."""

import errno

import pytest

from turngym.tools import PythonTool, Status
from turngym.tools.python.isolation.levels import LEVELS

RESTARTED = "[out of memory; the session was restarted]"
MIB = 2**20

TOUCH = """
import ctypes, mmap, os, socket, time
def touch(block):
    for start in range(0, len(block), 4096): block[start] = 1
def in_processes(count, take):
    for _ in range(count):
        if not os.fork():
            kept = take()
            time.sleep(1000)
    time.sleep(1000)
"""
TAKEN = {
    "shared mappings": """
def take():
    block = mmap.mmap(-1, 20 * 2**20)
    touch(block)
    return block
in_processes(12, take)
""",
    "shared mappings that whoever wrote them has left": """
def take():
    block = mmap.mmap(-1, 20 * 2**20)
    if not os.fork():
        touch(block)
        os._exit(0)
    os.wait()
    return block
in_processes(12, take)
""",
    "shared mappings that are unmapped but for a page": """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for _ in range(60):
    where = libc.mmap(None, ctypes.c_size_t(20 * 2**20), 3, 0x21, -1, ctypes.c_long(0))
    ctypes.memset(where, 1, 20 * 2**20)
    libc.munmap(ctypes.c_void_p(where + 4096), ctypes.c_size_t(20 * 2**20 - 4096))
time.sleep(1000)
""",
    "shared mappings of a device": """
def take():
    with open('/dev/zero', 'r+b') as zero: block = mmap.mmap(zero.fileno(), 20 * 2**20)
    touch(block)
    return block
in_processes(12, take)
""",
    "full sockets": """
def take():
    kept = []
    for _ in range(2):
        kept.append(socket.socketpair())
        for end in kept[-1]:
            end.setblocking(False)
            try: end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
            except OSError: pass
            try:
                while True: end.send(b'x' * 32768)
            except BlockingIOError: pass
    return kept
in_processes(60, take)
""",
    "connections that nobody accepts": """
listener = socket.socket(socket.AF_UNIX)
listener.bind('here'), listener.listen(4096)
while True:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect('here'), one.setblocking(False)
        try:
            while True: one.send(b'x' * 32768)
        except BlockingIOError: pass
""",
    "pipes with names": """
def take():
    kept = []
    for number in range(100):
        os.mkfifo(f"{os.getpid()}-{number}")
        kept.append(os.open(f"{os.getpid()}-{number}", os.O_RDWR | os.O_NONBLOCK))
        try:
            while True: os.write(kept[-1], b'x' * 4096)
        except BlockingIOError: pass
    return kept
in_processes(60, take)
""",
    "processes whose first thread has ended": """
import threading
def take():
    def hold():
        block = bytearray(b'x') * (40 * 2**20)
        time.sleep(1000)
    threading.Thread(target=hold).start()
    libc.syscall(EXIT, 0)
libc, EXIT = ctypes.CDLL(None), {'x86_64': 60, 'aarch64': 93}[os.uname().machine]
in_processes(12, take)
""",
    "connections of the local network": """
def take():
    kept, listener = [], socket.create_server(('127.0.0.1', 0))
    for _ in range(50):
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        for _ in range(20):  # a connection that is read grows
            one.setblocking(False), other.setblocking(False)
            for do in (lambda: one.send(b'x' * 65536), lambda: other.recv(2**20)):
                try: do()
                except BlockingIOError: pass
        kept += [one, other]
        try:
            while True: one.send(b'x' * 65536)
        except BlockingIOError: pass
    return kept
in_processes(20, take)
""",
}
# What the kernel keeps for a process beside its memory; some of it grows by tens of MiB before it is looked for.
KEPT = {
    "mappings": """
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
start = libc.mmap(None, 80 * 2**20, 1, 0x22, -1, 0)
for page in range(0, 80 * 2**20, 8192): libc.mprotect(start + page, 4096, 0)
in_processes(60, lambda: 0)
""",
    "page tables of pages that are nothing but zeros": """
def take():
    for number in range(20_000):
        where = libc.mmap(0x100000000000 + number * 2**30, 4096, 1, 0x100022, -1, 0)
        ctypes.string_at(where, 1)
in_processes(12, take)
""",
    "locks on records": """
import fcntl, struct
def take():
    fd = os.open(f"{os.getpid()}", os.O_RDWR | os.O_CREAT)
    for at in range(2**40, 2**40 - 200_000, -2):
        fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, at, 1, 0))
    return fd
in_processes(40, take)
""",
    "files that epoll watches": """
import select
def take():
    files = [os.pipe()[0] for _ in range(15)]
    polls = [select.epoll() for _ in range(15)]
    for file in files:
        for number in range(70, 120):
            os.dup2(file, number)
            for poll in polls: poll.register(number, 1)
            os.close(number)
    return files, polls
in_processes(60, take)
""",
}
MAP = """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "landlock"])
@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_what_the_kernel_keeps_for_a_session_counts(level: str, kept: str, run, ok, settled):
    tool = PythonTool(timeout=60.0, memory_mb=100, level=level)
    result = run(tool, TOUCH + MAP + "print('begun')\n" + kept)
    assert (result.status, result.text) == (Status.MEMORY, f"begun\n{RESTARTED}")
    assert ok(tool, "6 * 7") == "42\n"
    tool.close()
    assert settled(level)


# The pages of a file that is emptied would live on in a socket or a pipe, one page for each byte.
PASSED_ON = """
import os, socket, mmap
def tried(do, *args):
    try: return do(*args)
    except OSError as error: return error.errno
with open("file", "wb+") as file:
    file.write(b"x" * 2**20), file.flush()
    ours, theirs = os.pipe()
    one, _ = socket.socketpair()
    answer = [tried(os.splice, file.fileno(), theirs, 1, 0), tried(os.sendfile, one.fileno(), file.fileno(), 0, 1),
              tried(os.sendfile, theirs, file.fileno(), 0, 1), tried(os.splice, ours, one.fileno(), 1)]
print(answer)
"""


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_no_page_of_a_file_goes_into_a_socket_or_a_pipe(level: str, ok):
    tool = PythonTool(timeout=30.0, level=level)
    assert ok(tool, PASSED_ON) == f"{[errno.EINVAL] * 4}\n"
    tool.close()


COPIES = """
import asyncio, os, pathlib, shutil, socket, subprocess, threading
text = bytes(range(256)) * 4096
pathlib.Path("file").write_bytes(text)
shutil.copy("file", "copy"), shutil.copyfile("file", "other"), shutil.copytree(".", "../tree", dirs_exist_ok=True)
subprocess.run(["cp", "file", "third"], check=True), shutil.move("third", "fourth")
with open("file", "rb") as source, open("fifth", "wb") as target:
    copied = os.copy_file_range(source.fileno(), target.fileno(), len(text))
same = [pathlib.Path(name).read_bytes() == text for name in ("copy", "other", "../tree/copy", "fourth")]
def received(one):
    parts = []
    while part := one.recv(2**16): parts.append(part)
    got.append(b"".join(parts) == text)
got = []
ours, theirs = socket.socketpair()
reader = threading.Thread(target=received, args=[theirs])
reader.start()
with open("file", "rb") as file: sent = ours.sendfile(file)
ours.close(), reader.join(), theirs.close()
async def over_asyncio():
    ours, theirs = socket.socketpair()
    reader = threading.Thread(target=received, args=[theirs])
    reader.start()
    _, writer = await asyncio.open_connection(sock=ours)
    with open("file", "rb") as file: sent = await asyncio.get_running_loop().sendfile(writer.transport, file)
    writer.close(), await writer.wait_closed(), reader.join(), theirs.close()
    return sent
sent = [sent, asyncio.run(over_asyncio())]
print(all(same), copied == len(text), [one == len(text) for one in sent], got)
"""


@pytest.mark.parametrize("level", LEVELS)
def test_files_are_copied_and_sent_as_ever(level: str, ok):
    tool = PythonTool(timeout=60.0, level=level)
    assert ok(tool, COPIES) == "True True [True, True] [True, True]\n"
    tool.close()


BASES = """
import fcntl, mailbox, multiprocessing, os, sqlite3
def add(number):
    with sqlite3.connect("base", timeout=30) as base: base.execute("insert into numbers values (?)", [number])
counts = []
for mode in ("delete", "wal", "truncate", "persist"):
    one, other = sqlite3.connect("base"), sqlite3.connect("base", timeout=0.01)
    found = one.execute(f"pragma journal_mode={mode}").fetchone()[0]
    one.execute("create table if not exists numbers (number)"), one.commit()
    one.execute("begin immediate")
    try: other.execute("begin immediate")
    except sqlite3.OperationalError as error: refused = str(error)
    one.execute("insert into numbers values (0)"), one.commit()
    counts.append((found == mode, refused, other.execute("select count(*) from numbers").fetchone()[0]))
    one.close(), other.close()
children = [multiprocessing.get_context("fork").Process(target=add, args=[number]) for number in range(8)]
for child in children: child.start()
for child in children: child.join()
total = sqlite3.connect("base").execute("select count(*) from numbers").fetchone()[0]
with open("file", "w") as file: fcntl.lockf(file, fcntl.LOCK_EX), fcntl.flock(file, fcntl.LOCK_EX)
box = mailbox.mbox("box")
box.lock(), box.add("text"), box.flush(), box.unlock()
print(counts, total, len(box))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_data_bases_lock_their_files_as_ever(level: str, ok):
    tool = PythonTool(timeout=60.0, level=level)
    locked = "database is locked"
    assert ok(tool, BASES) == f"{[(True, locked, count) for count in (1, 2, 3, 4)]} 12 1\n"
    tool.close()


@pytest.mark.parametrize("taken", TAKEN.values(), ids=TAKEN)
def test_whatever_it_is_made_of_memory_counts(taken: str, run, settled):
    tool = PythonTool(timeout=30.0, memory_mb=100)
    result = run(tool, TOUCH + "print('begun')\n" + taken)
    assert (result.status, result.text) == (Status.MEMORY, f"begun\n{RESTARTED}")
    tool.close()
    assert settled()


def test_what_processes_share_counts_once(ok):
    tool = PythonTool(timeout=30.0, memory_mb=100)
    code = """
block = mmap.mmap(-1, 30 * 2**20)
touch(block)
for _ in range(8):
    if not os.fork():
        touch(block)
        time.sleep(0.1)
        os._exit(0)
pairs = [socket.socketpair() for _ in range(10)]
for _ in range(8): os.wait()
"""
    assert ok(tool, TOUCH + code + "print(sum(block[::4096]))") == f"{30 * MIB // 4096}\n"
    tool.close()


BEHIND = """
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(0.2)
        {work}
    os._exit(0)
_ = os.wait()
print('returned')
"""


MEMORY = "in_processes(12, lambda: bytearray(b'x') * (20 * 2**20))"
PROCESSES = """try: in_processes(150, lambda: 0)
        except OSError: kept = bytearray(b'x') * (95 * 2**20)  # there cannot be more
        time.sleep(1000)"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespaces", "landlock"])
@pytest.mark.parametrize("work", [MEMORY, PROCESSES], ids=["memory", "processes"])
def test_what_a_call_leaves_behind_is_limited_between_calls(
    level: str, work: str, run, ok, gone, host_pid
):
    tool = PythonTool(timeout=30.0, memory_mb=100, level=level)
    assert ok(tool, TOUCH + BEHIND.format(work=work)) == "returned\n"
    assert gone(host_pid(tool))
    result = run(tool, "print('next')")
    assert (result.status, result.text) == (Status.MEMORY, RESTARTED)
    assert ok(tool, "print('next')") == "next\n"
    tool.close()
