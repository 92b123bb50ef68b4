"""A grammar of hostile programs: random system calls, processes, descriptors, sockets, memory, files and signals.

A program is a prelude and a few functions whose statements are drawn from `STATEMENTS`; each statement may fail. A name
in angle brackets stands for a value out of `POOLS`, `<body>` for a function drawn in the same way. `{{…}}` is filled in
where the program runs, so a seed gives the same program in every world.
"""

from __future__ import annotations

import random
import re

DEPTH = 3  # functions within functions
PRELUDE = r"""
import atexit, ctypes, fcntl, gc, mmap, os, resource, select, shutil, signal, socket, stat, struct
import subprocess, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
block = ctypes.create_string_buffer(1 << 16)
POINTER, HERE, THERE = ctypes.addressof(block), ctypes.c_char_p(b'here'), ctypes.c_char_p(b'{{OUTSIDE_DIR}}/notes.txt')
kept = []
def keep(value):
    kept.append(value)
    return value
def call(*values):
    return libc.syscall(*(v if isinstance(v, ctypes.c_char_p) else ctypes.c_long(v) for v in values))
def fork(body, daemon=False):
    if not os.fork():
        try:
            if daemon:
                os.setsid()
                if os.fork():
                    os._exit(0)
            body()
        finally:
            os._exit(0)
def thread(body, daemon=True):
    threading.Thread(target=body, daemon=daemon).start()
def again(body, times):
    for _ in range(times):
        body()
def forever(work):
    while True:
        try:
            work()
        except BaseException:
            pass
def every(work):
    for fd in range(130):
        try:
            work(fd)
        except Exception:
            pass
def socks():
    found = []
    for fd in range(130):
        try:
            found += [fd] * stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            pass
    return found
def flood(data):
    for fd in socks() or range(130):
        forever(lambda: os.write(fd, data))
def sock(fd):
    return keep(socket.socket(fileno=os.dup(fd)))
def touch(area):
    for at in range(0, len(area), 4096):
        area[at] = 1
def fill(fd, data=b'x' * 65536):
    os.set_blocking(fd, False)
    try:
        while True:
            os.write(fd, data)
    except BlockingIOError:
        pass
def write(name, data=b'x'):
    with open(name, 'wb') as file:
        file.write(data)
def tcp(family, address):
    peer = keep(socket.socket(family))
    peer.settimeout(0.2)
    peer.connect(address)
    peer.send(b'fuzz')
"""
POOLS = {
    "number": (
        *range(470),
        *(9, 16, 41, 42, 46, 49, 53, 56, 57, 61, 62, 72, 101, 109, 112, 157, 160, 234, 302) * 4,
    ),
    "value": (
        *(
            0,
            1,
            2,
            3,
            4,
            5,
            7,
            8,
            17,
            64,
            126,
            127,
            128,
            255,
            1000,
            4095,
            4096,
            65536,
            1 << 20,
            1 << 30,
        ),
        *(
            -1,
            -2,
            -100,
            (1 << 31) - 1,
            1 << 31,
            -(1 << 31),
            (1 << 32) - 1,
            (1 << 63) - 1,
            0x80000,
            0x10000000,
        ),
        *(
            "POINTER",
            "POINTER + 64",
            "HERE",
            "THERE",
            "os.getpid()",
            "os.getppid()",
            "{{VICTIM_PID}}",
        )
        * 4,
        "id(kept)",
    ),
    "fd": (0, 1, 2, 3, 4, 5, 6, 61, 62, 63, 64, 124, 125, 126, 127, 128),
    "few": (1, 2, 3, 5, 8),
    "many": (20, 60, 200, 1000, 100000),
    "mib": (1, 4, 16, 40, 100, 300, 3000),
    "family": (*range(48), 1, 2, 10, 16, 40),
    "kind": (1, 2, 3, 5, 0x80001, 0x801),
    "signal": (*range(1, 32), 34, 64, 9, 15, 19, 19, 18, 2, 11),
    "pid": (
        "0",
        "os.getpid()",
        "os.getppid()",
        "1",
        "2",
        "3",
        "{{VICTIM_PID}}",
        "-os.getpgrp()",
        "-os.getppid()",
    ),
    "junk": (
        *(
            "b''",
            "b'x'",
            "b'{'",
            "b'[' * 1500",
            "b'\\xff' * 4096",
            "b'\\0' * 5",
            "b'\\0\\0\\0\\5ab'",
            "b'null'",
        ),
        *('b\'{"status": "ok"}\'', 'b\'{"key": "0", "status": "o\'', "b'{\"ready\": true}'"),
        *('b\'{"failed": "no"}\'', "b'{\"key\": 1e999}'", "os.urandom(64)", "b'x' * 200000"),
        *("b'{\"refused\": 7}'", "struct.pack('=Bi', 1, 0)", "struct.pack('=Bi', 0, 9)"),
    ),
    "path": (
        *(
            "'here'",
            "'.'",
            "'..'",
            "os.environ['HOME']",
            "'/tmp/fuzz'",
            "'{{OUTSIDE_DIR}}'",
            "'{{CANARY_FILE}}'",
        ),
        *(
            "'{{OUTSIDE_DIR}}/deep/data.bin'",
            "'{{OUTSIDE_DIR}}/notes.txt'",
            "'{{OUTSIDE_DIR}}/link'",
            "'/proc/self'",
        ),
        *(
            "'{{OUTSIDE_DIR}}/new'",
            "'{{OUTSIDE_DIR}}/../outside/deep'",
            "'a' * 300",
            "'/dev/shm/{{ABSTRACT}}'",
        ),
    ),
    "command": (
        "'sleep 30'",
        "'while :; do :; done'",
        "':'",
        "'yes'",
        "'sleep 30 & sleep 30 & echo'",
        "'kill -9 $PPID'",
    ),
}
# Where a program is drawn from: a kind of statement, then one of it.
STATEMENTS: dict[str, tuple[str, ...]] = {
    "system call": (
        "call(<number>, <value>, <value>, <value>, <value>, <value>, <value>)",
        "call(<number>, <fd>, <value>, <value>)",
        "call(<number>, HERE, <value>, <value>)",
        "call(<number>, THERE, <value>, <value>)",
        "again(lambda: call(<number>, <value>, <value>, <value>), <few>)",
        "thread(lambda: call(<number>, <value>, <value>, <value>))",
    ),
    "processes": (
        "fork(<body>)",
        "again(lambda: fork(<body>), <few>)",
        "again(lambda: fork(<body>), <many>)",
        "fork(<body>, daemon=True)",
        "again(lambda: fork(<body>, daemon=True), <few>)",
        "fork(lambda: forever(<body>), daemon=True)",
        "fork(lambda: time.sleep(30), daemon=True)",
        "fork(lambda: again(lambda: fork(lambda: time.sleep(30)), <many>))",
        "thread(<body>)",
        "thread(<body>, daemon=False)",
        "again(lambda: thread(lambda: time.sleep(30)), <many>)",
        "thread(lambda: forever(<body>))",
        "keep(subprocess.Popen(['sh', '-c', <command>]))",
        "keep(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)'], start_new_session=True))",
        "os.execvp('sh', ['sh', '-c', <command>])",
        "os.execv(sys.executable, ['python', '-c', 'print(1)'])",
        "os.setsid()",
        "os.setpgid(0, <pid>)",
        "os.wait()",
        "libc.prctl(<few>, <value>, 0, 0, 0)",
        "libc.prctl(36, 1, 0, 0, 0)",
        "os.posix_spawn('/bin/sh', ['sh', '-c', <command>], {})",
    ),
    "descriptors": (
        "os.dup2(<fd>, <fd>)",
        "os.close(<fd>)",
        "os.closerange(<fd>, <fd>)",
        "os.closerange(0, 200)",
        "os.write(<fd>, <junk>)",
        "every(lambda fd: os.write(fd, <junk>))",
        "every(lambda fd: (os.set_blocking(fd, False), os.write(fd, <junk>)))",
        "thread(lambda: forever(lambda: every(lambda fd: os.write(fd, <junk>))))",
        "fork(lambda: forever(lambda: every(lambda fd: os.write(fd, <junk>))), daemon=True)",
        "every(lambda fd: again(lambda: sock(fd).send(<junk>), <many>))",
        "every(lambda fd: forever(lambda: os.write(fd, <junk>)) if fd == <fd> else None)",
        "flood(<junk>)",
        "thread(lambda: flood(<junk>))",
        "fork(lambda: flood(<junk>), daemon=True)",
        "again(lambda: fork(lambda: flood(<junk>)), <few> * 10)",
        "every(lambda fd: sock(fd).shutdown(<few> % 3))",
        "every(lambda fd: sock(fd).setsockopt(1, <few> * 7 % 50, <value>))",
        "every(lambda fd: socket.send_fds(sock(fd), [<junk>], [<fd>] * <few>))",
        "thread(lambda: every(lambda fd: os.read(fd, 65536)))",
        "thread(lambda: forever(lambda: sock(<fd>).recv(65536)))",
        "every(lambda fd: os.set_blocking(fd, False))",
        "every(lambda fd: fcntl.fcntl(fd, <value> % 20, <value>))",
        "every(lambda fd: fcntl.fcntl(fd, 1031, 1 << 20))",
        "every(lambda fd: os.lseek(fd, <value>, 0))",
        "every(lambda fd: os.ftruncate(fd, <value>))",
        "again(lambda: keep(os.open('/dev/null', 2)), <many>)",
        "os.dup2(os.open('/dev/null', 2), <fd>)",
        "every(lambda fd: os.dup2(os.pipe()[<few> % 2], fd) if fd > 2 else None)",
    ),
    "sockets": (
        "keep(socket.socket(<family>, <kind>))",
        "again(lambda: keep(socket.socket(<family>, <kind>)), <many>)",
        "[keep(socket.socket(family, <kind>)) for family in range(48)]",
        "keep(socket.socket(1)).bind('\\0{{ABSTRACT}}')",
        "keep(socket.socket(1)).bind('/tmp/fuzz')",
        "keep(socket.socket(1)).bind('{{OUTSIDE_DIR}}/new')",
        "tcp(1, '\\0{{HOST_ABSTRACT}}')",
        "tcp(1, '{{OUTSIDE_DIR}}/s.sock')",
        "tcp(2, ('127.0.0.1', {{HOST_PORT}}))",
        "tcp(2, ('{{HOST}}', {{HOST_PORT}}))",
        "keep(socket.socket(2, 2)).sendto(b'fuzz', ('127.0.0.1', {{HOST_PORT}}))",
        "keep(socket.socket(2)).bind(('0.0.0.0', {{FREE_PORT}}))",
        "again(lambda: [fill(end.fileno()) for end in keep(socket.socketpair())], <many>)",
        "again(lambda: (lambda a, b: socket.send_fds(a, [b'x'], [a.fileno(), b.fileno()]))(*socket.socketpair()), 60)",
        "again(lambda: fork(lambda: again(lambda: fill(keep(socket.socketpair())[0].fileno()), 60)), <few>)",
    ),
    "pipes": (
        "again(lambda: fill(keep(os.pipe())[1]), <many>)",
        "fcntl.fcntl(keep(os.pipe())[1], 1031, 1 << 20)",
        "os.splice(<fd>, <fd>, 4096)",
        "os.mkfifo('fifo') or open('fifo')",
        "select.select([<fd>], [<fd>], [<fd>])",
        "os.eventfd(0)",
    ),
    "memory": (
        "touch(keep(mmap.mmap(-1, <mib> << 20)))",
        "again(lambda: touch(keep(mmap.mmap(-1, <mib> << 20))), <few>)",
        "again(lambda: fork(lambda: (touch(keep(mmap.mmap(-1, <mib> << 20))), time.sleep(30))), <few>)",
        "again(lambda: fork(lambda: (time.sleep(0.3), touch(keep(mmap.mmap(-1, 100 << 20))), <body>())), <few>)",
        "touch(keep(mmap.mmap(-1, <mib> << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)))",
        "keep(bytearray(<mib> << 20))",
        "os.write(keep(os.memfd_create('fuzz')), bytes(<mib> << 20))",
        "write('/dev/shm/{{ABSTRACT}}', bytes(<mib> << 20))",
        "call(29, <value>, <mib> << 20, 0o1666)",
        "call(68, <value>, 0o1666)",
        "call(64, <value>, 1, 0o1666)",
        "os.posix_fallocate(os.open('big', 66), 0, <mib> << 20)",
        "libc.mlockall(3)",
        "thread(lambda: forever(lambda: keep(bytes(1 << 20))))",
        "fork(lambda: forever(lambda: keep(bytes(1 << 20))), daemon=True)",
        "ctypes.string_at(<value>)",
    ),
    "files": (
        "again(lambda: write(tempfile.mktemp()), <many>)",
        "write(<path>, bytes(<mib> << 20))",
        "print(open(<path>).read())",
        "print(os.listdir(<path>))",
        "os.chmod(<path>, 0o777)",
        "os.chown(<path>, 1000, 1000)",
        "os.utime(<path>, (1, 1))",
        "os.setxattr(<path>, 'user.fuzz', b'x')",
        "os.truncate(<path>, 0)",
        "os.rename(<path>, <path>)",
        "os.symlink(<path>, <path>)",
        "os.link(<path>, <path>)",
        "os.unlink(<path>)",
        "os.mkdir(<path>)",
        "os.mknod(<path>)",
        "shutil.rmtree('.', ignore_errors=True)",
        "os.chdir(<path>)",
        "os.rmdir(os.getcwd())",
        "os.chroot(<path>)",
        "again(lambda: (os.mkdir('d'), os.chdir('d')), <many>)",
        "fcntl.flock(keep(open('here', 'w')), 2)",
        "os.umask(<few> * 70)",
        "keep(os.open(<path>, <value> & 0o17777777))",
        "again(lambda: libc.inotify_init1(0), <many>)",
        "call(206, <many>, POINTER)",
        "call(248, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'fuzz'), POINTER, 64, -3)",
    ),
    "signals": (
        "os.kill(<pid>, <signal>)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "os.kill(os.getpid(), <signal>)",
        "signal.signal(<signal>, lambda *_: time.sleep(30))",
        "[signal.signal(n, signal.SIG_IGN) for n in range(1, 32) if n not in (9, 19)]",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)",
        "signal.signal(14, lambda *_: <body>()) and signal.setitimer(0, 0.01, 0.01)",
        "signal.pidfd_send_signal(os.pidfd_open(<pid>), <signal>)",
        "os.killpg(0, <signal>)",
        "os.sched_setaffinity(<pid>, [0])",
        "os.setpriority(0, <pid>, 19)",
        "os.nice(19)",
        "resource.prlimit(<pid>, <few> * 7 % 16, (0, 0))",
        "resource.setrlimit(<few> * 7 % 16, (0, 0))",
        "resource.setrlimit(<few> * 7 % 16, (<many>, <many>))",
        "os.abort()",
    ),
    "interpreter": (
        "atexit.register(<body>)",
        "atexit.register(lambda: forever(lambda: None))",
        "sys.exit(<few>)",
        "os._exit(<few>)",
        "sys.stdout.close()",
        "sys.settrace(lambda *_: <body>())",
        "sys.setrecursionlimit(1 << 30) or (lambda f: f(f))(lambda f: f(f))",
        "sys.modules.clear()",
        "__builtins__.clear() if isinstance(__builtins__, dict) else vars(__builtins__).clear()",
        "print('x' * (<mib> << 20))",
        "forever(lambda: print('x' * 4096))",
        "thread(lambda: forever(lambda: print('x')))",
        "forever(<body>)",
        "time.sleep(30)",
        "[vars(o).clear() for o in gc.get_objects() if type(o).__name__ == 'Interpreter']",
        "[o.close() for o in gc.get_objects() if isinstance(o, socket.socket)]",
        "[o.control.send(<junk>) for o in gc.get_objects() if type(o).__name__ == 'Interpreter']",
        "[f.f_globals.clear() for f in (sys._getframe(1), sys._getframe(2))]",
        "threading.current_thread().join()",
        "type('X', (), {'__del__': lambda self: <body>()})()",
        "sys.stdout.buffer.write(os.urandom(1 << 16))",
        "setattr(os, '_exit', <body>)",
        "(_ for _ in ()).throw(<few> % 2 and KeyboardInterrupt or SystemExit)",
    ),
}
_HOLE = re.compile(r"<(\w+)>")


def draw(seed: int) -> str:
    """Return the program of a seed, with its placeholders still in it."""
    writer = _Writer(random.Random(f"fuzz {seed}"))
    main = writer.body(0)
    return f"{PRELUDE}{''.join(writer.functions)}{main}()\nprint('at the end')\n"


class _Writer:
    """Draws functions, each before the one that uses it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.functions: list[str] = []

    def body(self, depth: int) -> str:
        """Draw a function of a few statements; return its name."""
        lines = [
            self._statement(depth)
            for _ in range(self._rng.randint(2, 9) if depth == 0 else self._rng.randint(1, 3))
        ]
        name = f"work{len(self.functions)}"
        tries = "".join(
            f"    try:\n        {line}\n    except Exception:\n        pass\n" for line in lines
        )
        self.functions.append(f"def {name}():\n{tries}")
        return name

    def _statement(self, depth: int) -> str:
        while True:
            statement = self._rng.choice(STATEMENTS[self._rng.choice(list(STATEMENTS))])
            if "<body>" not in statement or depth < DEPTH:
                return _HOLE.sub(lambda hole: self._value(hole[1], depth), statement)

    def _value(self, name: str, depth: int) -> str:
        return self.body(depth + 1) if name == "body" else str(self._rng.choice(POOLS[name]))
