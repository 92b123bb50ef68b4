"""A warm interpreter: it has imported what programs of one kind import, and forks a worker for each order.

Kinds keep small programs from carrying numpy and sympy, whose memory would double the cost of every fork.
"""

import contextlib
import gc
import importlib
import os
import random
import select
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from . import linux, packets, seccomp
from .keeper import keep
from .seeding import seed_numpy
from .worker import Order, work

LIBRARIES = ("numpy", "sympy")
"""What a kind of program may have preloaded."""

_STANDARD = (
    "bisect cmath collections contextlib copy csv dataclasses datetime decimal enum fractions functools heapq io "
    "itertools json math operator random re statistics string textwrap threading time typing warnings"
)
# The first use of sympy fills its caches, which costs more than most programs do, and the first few let the interpreter
# adapt its bytecode.
_EXERCISE = """
from sympy import *
x, y, n = symbols("x y n")
for f in (x**2 - 5*x + 6, x**3 - 6*x**2 + 11*x - 6, sqrt(x + 1) - 2, Eq(x / 3 + Rational(1, 2), 2)):
    str(solve(f, x))
for a, b in ((1, 4), (5, 2), (-1, 3), (7, -2), (3, 8), (1, 9), (4, -5), (2, 3)):
    str(solve(x**2 - (a + b)*x + a*b, x))
str(solve([x + y - 3, 2*x - y], [x, y]))
e = (x + 1)**3 * sin(x) / (x**2 - 1) + exp(-x) * log(x + 2)
for f in (expand, factor, simplify, together, lambda e: diff(e, x), lambda e: e.subs(x, 2).evalf(), latex, str):
    f(e)
for f in (integrate(x**2 * exp(x), x), integrate(sin(x), (x, 0, pi)), limit(sin(x) / x, x, 0), series(cos(x), x, 0, 4)):
    str(f)
str(summation(n**2, (n, 1, 10))), str(Matrix([[1, 2], [3, 4]]).inv()), str(Matrix([[2, 1], [1, 2]]).eigenvals())
str(nsimplify(0.75)), str(sqrt(8)), str(Rational(3, 4) + Rational(1, 6)), str(N(pi, 20))
str(simplify(sin(x)**2 + cos(x)**2))
factorint(360), isprime(97), gcd(48, 36), binomial(10, 3), factorial(10), divisors(28), prime(10), sympify("x**2 + 1")
"""


_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "USER": "agent",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def found(level: str, kind: str) -> tuple[int, socket.socket]:
    """Start a warm interpreter; return it and the socket for its orders."""
    ours, theirs = packets.pair()
    own, pid = os.getpid(), os.fork()
    if not pid:
        orders = os.dup2(theirs.fileno(), 3)
        os.closerange(4, 1 << 16)
        main(socket.socket(fileno=orders), level, kind, own)
    theirs.close()
    return pid, ours


class Zygote:
    """The serving loop. `workers` maps the processes that it forked to the obituaries of their boundaries."""

    def __init__(self, orders: socket.socket, level: str, kind: str) -> None:
        self.orders, self.level, self.kind = orders, level, kind
        self.workers: dict[int, int] = {}
        self.mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    def serve(self) -> None:
        """Fork workers and report their deaths until the server goes away."""
        poll = select.poll()
        poll.register(self.orders, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.orders.fileno():
                    pidfd = self.order()
                    if pidfd is not None:
                        poll.register(pidfd, select.POLLIN)
                else:
                    poll.unregister(fd)
                    os.close(fd)
            self.bury()

    def order(self) -> int | None:
        """Carry out an order, and return a pidfd of the worker whose death is to be awaited, if any."""
        message, fds = packets.receive(self.orders)
        control, output, obituary, *keeper = fds
        reply = {"serial": message["serial"]}
        try:
            kind = "" if message["urgent"] else self.kind  # who waits is better served by a worker that begins at once
            order = Order(self.level, kind, message["folder"], self.mapped, *keeper)
            pid = self.fork(order, control, output, obituary)
            packets.send(self.orders, {**reply, "pid": pid}, [pidfd := os.pidfd_open(pid)])
        except OSError as error:
            packets.send(self.orders, {**reply, "error": str(error)})
            packets.close(*fds)
            return None
        packets.close(control, output, *keeper)
        self.workers[pid] = obituary
        return pidfd

    def fork(self, order: Order, control: int, output: int, obituary: int) -> int:
        """Fork a worker into the namespaces of its keeper, or with a keeper of its own where there are none."""
        if order.keeper >= 0:
            linux.setns(order.keeper, linux.NEWPID)  # for the next child
        own, pid = os.getpid(), os.fork()
        if not pid:
            if order.keeper >= 0:
                work(order, control, output)
            keep(order, control, output, obituary, own)
        return pid

    def bury(self) -> None:
        """Reap the dead, and say how each worker ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                obituary = self.workers.pop(ended[0], None)
                if obituary is not None:
                    if self.level == "namespaces":  # else it was a keeper, which has said how its worker ended
                        packets.record(obituary, packets.EXIT, ended[1])
                    os.close(obituary)


def main(orders: socket.socket, level: str, kind: str, parent: int) -> NoReturn:
    """Preload the libraries of `kind` and serve the orders of the server, which is `parent`; never returns."""
    own = os.getpid()
    try:
        linux.die_with(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it has to know how its workers end
        _warm(kind)
        if level == "namespaces":
            # Its workers have the filter without an install of their own, which costs as much as their fork.
            seccomp.install(seccomp.build_filter(network=True, joining=True))
        Zygote(orders, level, kind).serve()
    except BaseException as error:
        if own == os.getpid():
            packets.send(orders, {"failed": f"{type(error).__name__}: {error}"[:500]})
    finally:
        os._exit(1)  # also in its forks: nothing may come back to the server's code


def _warm(kind: str) -> None:
    os.environ.clear()
    os.environ.update(_ENVIRONMENT, PATH=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin")
    for name in _STANDARD.split():
        importlib.import_module(name)
    for name in filter(None, kind.split("+")):
        with contextlib.suppress(ImportError):  # the program will be told
            importlib.import_module(name)
    if "sympy" in sys.modules:
        exec(_EXERCISE, {})
    seed_numpy()
    random.seed(0)
    # The agent finds a plain interpreter; this package's functions live on without their entries.
    for name in [name for name in sys.modules if name.split(".")[0] == __name__.split(".")[0]]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
