"""Boundaries: what confines a session and its forks, and ends with one process, its init.

At level `namespaces` the init is the first process of a process namespace, and the kernel ends the rest with it. At the
others it is a subreaper: it finds and kills its descendants itself.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from ...subprocesses import messages
from ..isolation import landlock, linux
from ..isolation.file_view import DEVICES, HOME, INODES, mount_private, visible
from ..isolation.levels import PROCESSES, count_entries
from ..isolation.namespaces import become_agent, map_users
from ..isolation.network import LocalNetwork
from ..isolation.seccomp import judge
from .worker import WorkerSpec, work

_LISTING = 5  # times as long as a count of files took there is none
_STEP = (
    16 * 2**20
)  # bytes by which the machine's kernel memory grows before it is looked for where they went
SPARE = 2  # boundaries of a kind that are ready beyond those asked for
TRIES = 5  # boundaries in a row that may be lost without a reason before callers that wait are told
_NAMESPACES = (
    linux.NEWUSER | linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWPID | linux.NEWNET
)


@dataclass
class Boundary:
    """A boundary as the supervisor knows it.

    `ours` are descriptors for the caller: control socket, output pipe, exit pipe, and what tells of its control group,
    if it has one; empty once they are handed out. On `prepared` its init reports that namespaces and file systems are
    ready, and then hears from its worker about what to judge.
    """

    kind: str
    folder: str
    ours: list[int] = field(default_factory=list)
    theirs: list[int] = field(
        default_factory=list
    )  # the worker's ends of the first two, and what joins its group
    prepared: socket.socket | None = None
    exit_pipe: int = -1  # the writing end of the exit pipe
    init: int = 0  # its init process; 0, and -1 for the pidfd, until it is known
    pidfd: int = -1
    worker: int = 0
    memory: int = 0  # bytes that it may hold; 0 until it is used
    members: int = 1  # its sessions
    until: float | None = (
        None  # when the call under way is to end, by `time.monotonic`; None between calls
    )
    active: bool = (
        False  # whether it works: in a call, or in processes or threads that one has left behind
    )
    looked: float = 0.0  # when it was last looked at
    shared: int = (
        0  # bytes of shared memory on the machine, the least there were since it was handed out
    )
    kernel: int = 0  # bytes of `linux.kernel_memory`, the least there were since then
    counted: int = (
        0  # how many there were when its part of them was last counted, or the least since then
    )
    part: int = 0  # what that count gave
    handed: bool = False  # whether it was handed out
    listed_next: float = 0.0  # when its files are to be counted next

    def connect(self) -> None:
        ours, theirs = messages.pair(senders=True)
        self.ours, self.theirs = [ours.detach()], [theirs.detach()]
        for _ in ("output", "exit"):
            reading, writing = os.pipe()
            self.ours.append(reading)
            self.theirs.append(writing)
        self.exit_pipe = self.theirs.pop()

    def start_init(self) -> socket.socket:
        """Start its init in new namespaces; return the socket on which that reports that they are prepared."""
        self.prepared, theirs = messages.pair()
        if not (init := linux.clone(_NAMESPACES)):
            self.prepared.close()
            _be_init(theirs)
        theirs.close()
        self.init, self.pidfd = init, os.pidfd_open(init)
        map_users(init)
        self.prepared.send(b"!")
        return self.prepared

    def ended(self, wait: float = 0.0) -> bool:
        """Return whether its init has ended, within so many seconds; False where that is not known yet."""
        return self.pidfd >= 0 and messages.wait(self.pidfd, wait)

    def signal(self, number: int) -> None:
        """Send a signal to its init; harmless where that has ended or is not known yet."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def hand_out(self, shared: int, kernel: int) -> None:
        """Note what the machine holds at the time at which a caller gets it."""
        self.handed, self.shared, self.kernel, self.counted = True, shared, kernel, kernel

    def oversteps(self, machine: linux.Machine) -> bool:
        """Return whether its processes are too many or hold too much."""
        pids = linux.process_tree((self.init, self.worker))
        tasks = 1 + sum(linux.threads_of(pid) for pid in pids if pid != self.init)
        self.active = self.until is not None or tasks > self.members + 1
        self.shared = min(self.shared, machine.shared)
        if tasks > PROCESSES + 2:
            return True
        network = self.init if self.folder == HOME else 0
        fresh = self.count_kernel(pids, machine)
        for estimated in (self.memory, 0):  # what is too much by an estimate is counted
            if not estimated and self.part and not fresh:  # it may have let go of that since
                self.count_kernel(pids, machine, again=True)
            left = self.memory - self.part
            left -= linux.buffers_of(pids, left if estimated else 0, network)
            if (
                left >= 0
                and linux.memory_of(pids, left, machine.shared, machine.shared - self.shared)
                <= left
            ):
                return False
        return True

    def count_kernel(self, pids: list[int], machine: linux.Machine, *, again: bool = False) -> bool:
        """Count its part of the `machine`'s kernel memory if it has grown by a step, or `again`; return whether."""
        self.kernel, self.counted = (
            min(self.kernel, machine.kernel),
            min(self.counted, machine.kernel),
        )
        if not again and machine.kernel - self.counted <= _STEP:
            return False
        self.counted = machine.kernel
        self.part = linux.kernel_memory_of(pids, self.memory, machine.kernel - self.kernel)
        return True

    def overfull(self, now: float) -> bool:
        """Return whether it has made too many files, where no file system of its own limits them."""
        if self.folder == HOME or now < self.listed_next:
            return False
        too_many = count_entries(Path(self.folder).parent, INODES) > INODES
        took = time.monotonic() - now
        self.listed_next = now + _LISTING * took
        return too_many

    def close(self) -> None:
        if self.prepared:
            self.prepared.close()
        messages.close(
            *(fd for fd in (self.pidfd, self.exit_pipe, *self.ours, *self.theirs) if fd >= 0)
        )


@dataclass
class Stock:
    """The boundaries of one kind, counted since the start; a failure that a caller is told counts as handed out.

    Inits and zygotes may die at any moment, also before they hand anything out. Whatever dies, one invariant holds:
    once `missing` boundaries are begun, no fewer are on their way than there are callers that wait.
    """

    asked: int = 0  # callers so far, of whom `asked - handed` wait; where that is negative, so many are ready
    begun: int = 0  # boundaries begun and not lost, of which `begun - handed` are on their way
    handed: int = 0  # boundaries and failures handed out, in order, one for each caller
    faults: int = 0  # boundaries lost in a row; `TRIES` at once where the reason is known and would hold again

    @property
    def waiting(self) -> int:
        return max(0, self.asked - self.handed)

    @property
    def missing(self) -> int:
        """Boundaries to begin now; none beyond those asked for where they keep failing, or nobody ever asked."""
        spare = SPARE if self.asked and self.faults < TRIES else 0
        return max(0, self.asked + spare - self.begun)

    def hand(self) -> None:
        self.handed += 1
        self.faults = 0

    def fault(self, *, known: bool) -> bool:
        """Note a loss, for a `known` reason or not; return whether callers that wait are to be told."""
        self.faults = TRIES if known else self.faults + 1
        return self.waiting > 0 and self.faults >= TRIES

    def tell(self) -> None:
        """Count a failure that is handed out in a boundary's stead."""
        self.begun += 1
        self.handed += 1


def _be_init(theirs: socket.socket) -> NoReturn:
    """Be the first process of new namespaces, which waits for its user ids on a socket.

    It prepares its file systems, answers `{}` or `{"failed": reason}`, and judges for the worker that sends a listener.
    It ignores SIGCHLD, so that the kernel reaps its orphans, and no signal from inside reaches it without a handler.
    """
    try:
        theirs.recv(1)
        become_agent()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else nobody may join its namespaces
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        proc = os.open("/proc", os.O_PATH)
        mount_private()
        theirs.send(b"{}")
        _, [(_, _, listener)], _, _ = theirs.recvmsg(messages.PACKET, socket.CMSG_SPACE(4))
        os.dup2(int.from_bytes(listener, sys.byteorder), 0)
        os.dup2(proc, 1)
        os.closerange(2, 1 << 16)
        judge(0, network=LocalNetwork(1))
        while True:
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError):
            messages.send(theirs, {"failed": str(error)})
    finally:
        os._exit(1)


def run_subreaper(
    spec: WorkerSpec, control: int, output: int, exit_pipe: int, parent: int
) -> NoReturn:
    """Be the init of a worker without namespaces: fork it, await it, and end whatever it leaves behind."""
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    own, signals = os.getpid(), {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    linux.die_with(
        parent, signal.SIGTERM
    )  # which it answers by ending its descendants, as it must before it ends
    os.setsid()
    ours, theirs = messages.pair()
    if not (worker := os.fork()):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        linux.die_with(own)
        ours.close()
        work(_with_rules(spec, theirs.detach()), control, output)
    messages.close(control, output, *[spec.group] * (spec.group >= 0))
    theirs.close()
    threading.Thread(
        target=_judge, args=(ours, os.path.realpath(Path(spec.folder).parent)), daemon=True
    ).start()
    while signal.sigwait(signals) == signal.SIGCHLD:
        _reap(worker, exit_pipe)
    if (
        os.getppid() != parent
    ):  # the server has died: how its sessions end tells nothing of their programs
        os.dup2(os.open(os.devnull, os.O_WRONLY), exit_pipe)
    while children := Path(f"/proc/self/task/{own}/children").read_text().split():
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        _reap(worker, exit_pipe, len(children))
    os._exit(0)


def _judge(sock: socket.socket, folder: str) -> None:
    """Judge for the worker that sends a listener; nothing is to be judged where it sends none."""
    with contextlib.suppress(EOFError, OSError), sock:
        _, (listener,) = messages.receive(sock)
        judge(listener, folder)


def _with_rules(spec: WorkerSpec, asking: int) -> WorkerSpec:
    (private := Path(spec.folder).parent).mkdir(0o700)
    if spec.level != "landlock":
        return spec
    read, write = [*visible[0], *(f"/dev/{name}" for name in DEVICES)], [str(private), "/dev/null"]
    return replace(
        spec,
        judge=asking,
        ruleset=landlock.landlock_ruleset(read=read, listed=visible[1], write=write),
    )


def _reap(worker: int, exit_pipe: int, awaited: int = 0) -> None:
    """Reap ended processes, at least `awaited` of them; report how `worker` ended if it is among them."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, 0 if awaited > 0 else os.WNOHANG))[0]:
            awaited -= 1
            if ended[0] == worker:
                messages.report(exit_pipe, messages.EXIT, ended[1])
