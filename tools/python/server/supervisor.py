"""The server process of the Python tool: it keeps confined workers ready and watches what those in use take.

A boundary is made before it is needed: init, namespaces, file systems, a forked and confined worker. A caller takes one
from a queue with all its descriptors and talks to the worker directly; this process is only told when a call begins and
ends. It looks at what boundaries hold as long as they live, and ends one whose call has not ended in time.
"""

import contextlib
import math
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable

from ...subprocesses import messages
from ..isolation import landlock, linux
from ..isolation.cgroups import Groups
from ..isolation.file_view import HOME, FileView, take_packages
from ..isolation.levels import KINDS, remove_folder
from ..isolation.namespaces import enter_namespaces
from .boundary import Boundary, Stock
from .guard import start_guard, take_mark
from .worker_factory import Zygote, start_zygote

# What ends a boundary, sent to its init.
STOP = {"namespaces": signal.SIGKILL, "landlock": signal.SIGTERM, "rlimits-only": signal.SIGTERM}
_QUERY = 0xFFFFFFFF  # asks `linux.personality` for the present one
_REST, _AFTER = (
    0.05,
    0.002,
)  # seconds for which no boundary is begun after a call began, and after one ended
LOOK, GLANCE = (
    0.05,
    0.25,
)  # seconds between two looks at the boundaries that work, and at the others
_GRACE = 0.5  # seconds after the end of its call's time in which the parent has ended a boundary itself, if it can
LEAVING = (
    16  # folders of ended sessions that may wait for their removal before no other session is begun
)
_STRAYS, _STRAY = (
    1000,
    0.001,
)  # searches for processes that an init left behind, and seconds between two
_ENDING = 1.0  # seconds in which an init, and what it has to end, have ended
_DYING = 0.02  # seconds in which a process that was killed, and cannot be used any more, has ended


def main(level: str, folder: str) -> None:
    """Serve the parent on the inherited socket; without namespaces, sessions work in directories under `folder`."""
    _fix_addresses()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    notes, *queues, life = messages.inherited_sockets(len(KINDS) + 2)
    # The number before those of the sockets.
    lock = int(sys.argv[-len(KINDS) - 3]) if folder else -1
    view = FileView(**messages.read_frame(life))
    groups, counted = None, "counted twenty times a second"
    try:
        groups = Groups()  # first, since there are none in the file tree of programs
    except OSError as error:
        counted += f"; no control groups: {error}"
    try:
        _prepare(level, view)
        take_packages(view, folder)
    except OSError as error:
        messages.write_frame(life, {"refused": str(error)})
        if groups:
            groups.close()
        return
    if folder:
        take_mark(folder)
    supervisor = Supervisor(life, level, folder, groups, lock)
    if folder:
        supervisor.watch()
    memory = f"limited by the kernel, and {counted}" if groups else counted
    messages.write_frame(
        life, {"stop": STOP[level], "memory": memory, "guard": supervisor.guard_pid}
    )
    try:
        supervisor.serve(notes, dict(zip(KINDS, queues)))
    finally:
        supervisor.stop()


def _fix_addresses() -> None:
    """Start this process anew without address randomisation: what programs print is then the same from run to run."""
    with contextlib.suppress(OSError):  # some containers forbid it, and do without
        if not linux.personality(_QUERY) & linux.ADDR_NO_RANDOMIZE:
            linux.personality(linux.ADDR_NO_RANDOMIZE)
            if linux.personality(_QUERY) & linux.ADDR_NO_RANDOMIZE:
                os.execv(sys.executable, sys.orig_argv)


def _prepare(level: str, view: FileView) -> None:
    """Find out whether this machine can give a level, and prepare for it; OSError with the reason where it cannot."""
    if level == "landlock" and landlock.landlock_version() < 3:
        raise OSError("the kernel has no Landlock of version 3 (Linux 6.2), or it is switched off")
    if level == "namespaces":
        enter_namespaces(view)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The kernel reaps ended processes, also workers of a dead zygote: till then their boundaries would not end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if level == "namespaces":
        boundary = Boundary("", HOME)
        message, _ = messages.receive(boundary.start_init())
        boundary.signal(signal.SIGKILL)
        boundary.close()
        if "failed" in message:
            raise OSError(message["failed"])


class Poller(selectors.DefaultSelector):
    """Calls functions when descriptors become readable."""

    def on(self, fd: int, then: Callable[[], None]) -> None:
        self.register(fd, selectors.EVENT_READ, then)

    def forget(self, fd: int) -> None:
        """Wait for `fd`, which is still open, no more; harmless if nobody did."""
        with contextlib.suppress(KeyError, ValueError):
            self.unregister(fd)

    def wait(self, until: float) -> None:
        """Wait until a time of `time.monotonic` for descriptors, and call their functions."""
        for key, _ in self.select(None if until == math.inf else until - time.monotonic()):
            if (
                self.get_map().get(key.fd) is key
            ):  # one before may have closed it, and its number be that of a new one
                key.data()


class Supervisor:
    def __init__(
        self,
        life: socket.socket,
        level: str,
        folder: str,
        groups: Groups | None = None,
        lock: int = -1,
    ) -> None:
        self.life, self.level, self.folder, self.groups, self.lock = (
            life,
            level,
            folder,
            groups,
            lock,
        )
        self.guard: socket.socket | None = None
        self.guard_pid = 0
        self.leaving: set[int] = set()  # boundaries whose folders the guard has yet to remove
        self.poller = Poller()
        self.queues: dict[str, socket.socket] = {}
        self.stocks: dict[str, Stock] = {}
        self.zygotes: dict[str, Zygote] = {}
        self.boundaries: dict[int, Boundary] = {}
        self.serial = 0
        self.restock_at = math.inf
        self.kernel, self.kernel_read = 0, -math.inf

    def serve(self, notes: socket.socket, queues: dict[str, socket.socket]) -> None:
        """Serve until the parent goes away; `queues` has one for each kind."""
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self.queues, self.stocks = queues, {kind: Stock() for kind in queues}
        for queue in queues.values():
            queue.setblocking(False)
        self.poller.on(notes.fileno(), lambda: self.note(notes))
        self.poller.on(self.life.fileno(), lambda: None)  # it only ends the wait
        looked = time.monotonic()
        while not messages.wait(self.life, 0):
            used = [boundary.active for boundary in self.boundaries.values() if boundary.memory]
            next_look = looked + (LOOK if any(used) else GLANCE) if used else math.inf
            self.poller.wait(min(self.restock_at, next_look))
            if (now := time.monotonic()) >= self.restock_at:
                self.restock()
            if now >= next_look:
                self.look(now)
                looked = time.monotonic()

    def note(self, notes: socket.socket) -> None:
        message, _ = messages.receive(notes)
        if "want" in message:
            stock = self.stocks[message["want"]]
            stock.asked += 1
            if stock.handed <= stock.asked:
                self.restock()
            else:  # what is in stock serves the call that begins; making more would only slow it down
                self.restock_at = time.monotonic() + _REST
        elif boundary := self.boundaries.get(message["serial"]):
            if self.groups and boundary.memory != message["memory"]:
                self.groups.limit(message["serial"], message["memory"])
            boundary.until, boundary.memory = message["until"], message["memory"]
            boundary.members, boundary.active = (
                message["members"],
                True,
            )  # also after a call, until a look says no

    def watch(self) -> None:
        """Start a guard, and ask it again for what the one before may not have done."""
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 0)  # it is to be no child of this process
        guard, self.guard_pid = start_guard(self.folder, self.lock)
        self.guard = guard
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self.poller.on(guard.fileno(), self.on_removed)
        for serial in self.leaving:
            guard.send(b"%d" % serial)

    def on_removed(self) -> None:
        """Note that the guard has removed a folder, or start another one if it was killed."""
        assert self.guard is not None
        name = b""
        with contextlib.suppress(OSError):
            name = self.guard.recv(messages.PACKET)
        if name:
            self.leaving.discard(int(name))
            self.restock_after(0)
            return
        self.poller.forget(self.guard.fileno())
        self.guard.close()
        self.watch()

    def remove(self, serial: int) -> None:
        """Have the folder of a boundary removed, all of whose processes have ended."""
        if self.guard:
            self.leaving.add(serial)
            with contextlib.suppress(OSError):  # it was killed, which is found out at once
                self.guard.send(b"%d" % serial)

    def end_strays(self) -> None:
        """Kill what outlived an init that was killed itself: such processes become children of this one."""
        for _ in range(_STRAYS):
            known = {zygote.pid for zygote in self.zygotes.values()}
            children = map(int, linux.read(f"/proc/self/task/{os.getpid()}/children").split())
            if not (strays := [pid for pid in children if pid not in known]):
                return
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_STRAY)

    def restock(self) -> None:
        """Begin as many boundaries as are missing, of the kinds that were ever asked for."""
        self.restock_at = math.inf
        if len(self.leaving) >= LEAVING:  # files would be made faster than they are removed
            return
        for kind, stock in self.stocks.items():
            while stock.missing:
                self.begin(kind)

    def restock_after(self, seconds: float) -> None:
        self.restock_at = min(self.restock_at, time.monotonic() + seconds)

    def begin(self, kind: str) -> None:
        """Make a boundary's descriptors and its init, and request its worker."""
        serial = self.serial = self.serial + 1
        inner = HOME if self.level == "namespaces" else f"{self.folder}/{serial}/home"
        boundary = self.boundaries[serial] = Boundary(kind, inner)
        self.stocks[kind].begun += 1
        try:
            boundary.connect()
            if self.groups:
                join, events = self.groups.make(serial)
                boundary.theirs.append(join)
                boundary.ours.append(events)
            prepared = boundary.start_init() if self.level == "namespaces" else None
        except OSError as error:  # of which two say that its init was killed at once
            self.fail(
                serial,
                str(error),
                known=not isinstance(error, BrokenPipeError | ProcessLookupError),
            )
            return
        if prepared:
            self.poller.on(prepared.fileno(), lambda: self.on_prepared(serial, prepared))
            self.poller.on(boundary.pidfd, lambda: self.end(serial))
        else:
            self.request_worker(serial)

    def on_prepared(self, serial: int, sock: socket.socket) -> None:
        self.poller.forget(sock.fileno())
        try:
            message, _ = messages.receive(sock)
        except (EOFError, OSError):
            sock.close()
            return  # its init was killed, which is found out at once
        if "failed" in message:
            self.fail(serial, message["failed"])
        else:
            self.request_worker(serial)

    def request_worker(self, serial: int) -> None:
        boundary = self.boundaries[serial]
        fds = [*boundary.theirs, boundary.exit_pipe]
        if boundary.prepared:
            fds += [boundary.pidfd, boundary.prepared.fileno()]
        urgent, group = self.stocks[boundary.kind].waiting > 0, self.groups is not None
        message = {"serial": serial, "folder": boundary.folder, "urgent": urgent, "group": group}
        try:
            messages.send(self.zygote(boundary.kind).requests, message, fds)
        except (BrokenPipeError, ConnectionResetError):
            return  # the zygote has just died, which is found out at once, and takes this boundary along
        except OSError as error:
            self.fail(serial, str(error))
            return
        messages.close(*boundary.theirs)
        boundary.theirs = []
        if boundary.prepared:
            boundary.prepared.close()
            boundary.prepared = None

    def zygote(self, kind: str) -> Zygote:
        if kind not in self.zygotes:
            self.zygotes[kind] = start_zygote(self.level, kind)
            self.poller.on(self.zygotes[kind].requests.fileno(), lambda: self.on_forked(kind))
        return self.zygotes[kind]

    def on_forked(self, kind: str) -> None:
        """Hand out a boundary whose worker is forked."""
        zygote = self.zygotes[kind]
        try:
            message, fds = messages.receive(zygote.requests)
        except (EOFError, OSError):
            self.lose(kind)
            return
        if "failed" in message:
            zygote.reason = message["failed"]
            return
        serial = message["serial"]
        boundary = self.boundaries.get(serial)
        zygote.proven |= "pid" in message
        if boundary is None:  # its init was killed meanwhile
            messages.close(*fds)
            return
        if "error" in message:
            self.fail(serial, message["error"], known=not boundary.ended(_DYING))
            return
        boundary.worker = message["pid"]
        if boundary.pidfd < 0:  # the forked process is the init
            boundary.init, boundary.pidfd = message["pid"], fds[0]
            self.poller.on(boundary.pidfd, lambda: self.end(serial))
        else:
            messages.close(*fds)
        self.hand(serial)

    def hand(self, serial: int) -> None:
        """Put a boundary into the queue of its kind."""
        boundary = self.boundaries[serial]
        bundle = {"serial": serial, "folder": boundary.folder}
        try:
            messages.send(self.queues[boundary.kind], bundle, [*boundary.ours, boundary.pidfd])
        except OSError as error:
            self.fail(serial, str(error))
            return
        messages.close(*boundary.ours)
        boundary.ours = []
        boundary.hand_out(linux.shared_memory(), self.kernel_memory())
        self.stocks[boundary.kind].hand()
        if self.stocks[
            boundary.kind
        ].missing:  # none were made beyond those asked for, as long as they failed
            self.restock_after(_AFTER)

    def kernel_memory(self) -> int:
        """Return the machine's kernel memory, or what it was a moment ago, since reading it takes long."""
        if (now := time.monotonic()) > self.kernel_read + GLANCE:
            self.kernel_read, self.kernel = now, linux.kernel_memory()
        return self.kernel

    def tell(self, kind: str, reason: str) -> None:
        """Put the reason why there is no boundary into the queue of a kind."""
        self.stocks[kind].tell()
        with contextlib.suppress(BrokenPipeError):
            messages.send(self.queues[kind], {"error": reason})

    def fail(self, serial: int, reason: str, *, known: bool = True) -> None:
        """Let go of a boundary that cannot be made; `known` is a reason that would hold for the next one too."""
        kind = self.boundaries[serial].kind
        self.discard(serial)
        if self.stocks[kind].fault(known=known):
            self.tell(kind, reason)
        self.restock_after(0)

    def end(self, serial: int) -> None:
        """Let go of a boundary whose init has ended, and with it all its processes."""
        if not self.boundaries[serial].handed:
            self.fail(serial, "their init processes keep dying", known=False)
            return
        if self.folder:
            self.end_strays()
        self.discard(serial)
        if self.restock_at < math.inf:
            self.restock_after(_AFTER)

    def lose(self, kind: str) -> None:
        """Let go of a zygote that died, and its boundaries; who waits is told if the next one would not fork either."""
        zygote = self.zygotes.pop(kind)
        self.poller.forget(zygote.requests.fileno())
        zygote.requests.close()
        for serial in [
            serial for serial, boundary in self.boundaries.items() if boundary.kind == kind
        ]:
            self.discard(serial)
        if self.folder:
            self.end_strays()
        if (stock := self.stocks[kind]).fault(known=not zygote.proven):
            while stock.waiting:
                self.tell(kind, f"the warm interpreter ended: {zygote.reason}")
        self.restock_after(0)

    def discard(self, serial: int) -> None:
        """Let go of a boundary, and end it if it has not."""
        if not (boundary := self.boundaries.pop(serial)).handed:
            self.stocks[boundary.kind].begun -= 1
        if boundary.prepared:
            self.poller.forget(boundary.prepared.fileno())
        self.poller.forget(boundary.pidfd)
        boundary.signal(STOP[self.level])
        if self.folder and boundary.ended(_ENDING):
            self.remove(serial)
        boundary.close()
        if self.groups:
            self.groups.remove(serial)

    def look(self, now: float) -> None:
        """End each boundary whose processes are too many or hold too much memory, and those that are late."""
        machine = linux.look_at_machine()
        self.kernel, self.kernel_read = machine.kernel, now
        for boundary in self.boundaries.values():
            if boundary.memory and (boundary.active or now >= boundary.looked + GLANCE):
                boundary.looked = now
                if boundary.oversteps(machine) or boundary.overfull(now):
                    messages.report(boundary.exit_pipe, messages.MEMORY)
                    boundary.signal(STOP[self.level])
                elif boundary.until is not None and now > boundary.until + _GRACE:
                    boundary.signal(STOP[self.level])

    def stop(self) -> None:
        for boundary in self.boundaries.values():
            boundary.signal(STOP[self.level])
            boundary.ended(1.0)
        for pid in linux.process_tree(
            [own := os.getpid()]
        ):  # zygotes, and what outlived an init that was killed
            if pid != own:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        if self.groups:
            self.groups.close()
        if not self.guard:
            remove_folder(self.folder)
