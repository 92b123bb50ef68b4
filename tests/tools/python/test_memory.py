"""All memory of a session counts, whatever it is made of and whenever it is taken."""

import pytest

from turngym.tools import PythonTool, Status

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
}


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
def test_what_a_call_leaves_behind_is_limited_between_calls(level: str, work: str, run, ok, gone, host_pid):
    tool = PythonTool(timeout=30.0, memory_mb=100, level=level)
    assert ok(tool, TOUCH + BEHIND.format(work=work)) == "returned\n"
    assert gone(host_pid(tool))
    result = run(tool, "print('next')")
    assert (result.status, result.text) == (Status.MEMORY, RESTARTED)
    assert ok(tool, "print('next')") == "next\n"
    tool.close()
