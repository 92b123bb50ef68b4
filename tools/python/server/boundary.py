"""Boundaries: what confines a session and its forks, and ends with one process, its init.

At level `namespaces` the init is the first process of a process namespace, and the kernel ends the
others with it. At the other levels it is a subreaper: it finds and kills its descendants itself.

`Boundary` and `Stock` are what the supervisor knows of boundaries; `_be_init` and `run_subreaper`
are the two kinds of init processes.
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
from ..isolation.file_view import DEVICES, HOME, INODES, mount_private, visible_paths
from ..isolation.levels import MAX_PROCESSES, count_entries
from ..isolation.namespaces import become_agent, map_users
from ..isolation.network import LocalNetwork
from ..isolation.seccomp import judge
from .worker import WorkerSpec, work

SPARE = 2  # boundaries with the same libraries that are ready beyond those asked for
TRIES = 5  # boundaries in a row that may be lost without a reason before waiting callers are told

# A count of files is followed by a pause of so many times what it took.
_FILE_COUNT_PAUSE = 5
# Bytes by which the machine's kernel memory grows before it is worth finding out whose it is.
_KERNEL_MEMORY_STEP = 16 * 2**20
_NAMESPACES = (
    linux.NEWUSER | linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWPID | linux.NEWNET
)


@dataclass
class Boundary:
    """A boundary as the supervisor knows it.

    Descriptors that are not known yet are -1, process numbers 0.
    """

    # The libraries that its worker has preloaded, such as "numpy+sympy".
    libraries: str
    folder: str  # the work folder of its first session
    # Of the caller: control socket, output pipe, exit pipe and, if there is a control group, a
    # descriptor of its events. Empty once they are handed out.
    caller_fds: list[int] = field(default_factory=list)
    # Of the worker: its ends of control socket and output pipe and, if there is a control group, a
    # descriptor for joining it. Empty once they are passed on.
    worker_fds: list[int] = field(default_factory=list)
    # Where the init reports that namespaces and file systems are ready, and then receives from the
    # worker the listener of calls to judge. None without namespaces, and once it is passed on.
    init_socket: socket.socket | None = None
    exit_pipe: int = -1  # the writing end of the exit pipe
    init_pid: int = 0
    init_pidfd: int = -1
    worker_pid: int = 0
    handed_out: bool = False  # whether a caller has it, or it is in the queue for one

    # The call under way, as the parent has told it:
    memory_limit: int = 0  # bytes that all processes may use; 0 until the first call
    members: int = 1  # sessions: the first one and its forks
    call_deadline: float | None = None  # by `time.monotonic`; None between calls
    # Whether it works: in a call, or in processes or threads that a call has left behind.
    active: bool = False

    # What the checks of limits remember, with memory in bytes:
    last_check: float = 0.0  # by `time.monotonic`
    next_file_count: float = 0.0  # by `time.monotonic`
    # The least shared memory, and kernel memory, of the machine since the boundary was handed out.
    least_shared_memory: int = 0
    least_kernel_memory: int = 0
    # The boundary's own part of the kernel memory when it was last counted, and the machine's
    # kernel memory at that time, or the least since then.
    own_kernel_memory: int = 0
    kernel_memory_at_count: int = 0

    def open_descriptors(self) -> None:
        """Open control socket, output pipe and exit pipe, both ends of each."""
        caller_socket, worker_socket = messages.packet_pair(senders=True)
        self.caller_fds = [caller_socket.detach()]
        self.worker_fds = [worker_socket.detach()]
        output_reader, output_writer = os.pipe()
        self.caller_fds.append(output_reader)
        self.worker_fds.append(output_writer)
        exit_reader, self.exit_pipe = os.pipe()
        self.caller_fds.append(exit_reader)

    def start_init(self) -> socket.socket:
        """Start the init in new namespaces.

        Returns:
            The socket on which the init reports that they are prepared: see `_be_init`.
        """
        self.init_socket, inits_end = messages.packet_pair()
        init_pid = linux.clone(_NAMESPACES)
        if not init_pid:
            self.init_socket.close()
            _be_init(inits_end)
        inits_end.close()
        self.init_pid = init_pid
        self.init_pidfd = os.pidfd_open(init_pid)
        map_users(init_pid)
        self.init_socket.send(b"!")  # its user ids are mapped, and it may go on
        return self.init_socket

    def has_ended(self, within: float = 0.0) -> bool:
        """Return whether the init ends within so many seconds; False if it is not known yet."""
        return self.init_pidfd >= 0 and messages.wait_until_readable(self.init_pidfd, within)

    def signal_init(self, signal_number: int) -> None:
        """Send a signal to the init; harmless if it has ended or is not known yet."""
        if self.init_pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init_pidfd, signal_number)

    def mark_as_handed_out(self, shared_memory: int, kernel_memory: int) -> None:
        """Note how much memory the machine uses when a caller gets the boundary.

        The boundary itself can only be charged with what is added later.

        Args:
            shared_memory: Bytes of `linux.shared_memory`.
            kernel_memory: Bytes of `linux.kernel_memory`.
        """
        self.handed_out = True
        self.least_shared_memory = shared_memory
        self.least_kernel_memory = kernel_memory
        self.kernel_memory_at_count = kernel_memory

    def exceeds_process_or_memory_limit(self, machine: linux.Machine) -> bool:
        """Check processes and memory against their limits; update whether the boundary is active.

        Args:
            machine: The memory that the whole machine uses now.
        """
        pids = linux.process_tree((self.init_pid, self.worker_pid))
        # Processes and threads, where the init counts as one.
        tasks = 1 + sum(linux.count_threads(pid) for pid in pids if pid != self.init_pid)
        # Without a call under way there are only the init and one task for each session.
        self.active = self.call_deadline is not None or tasks > self.members + 1
        self.least_shared_memory = min(self.least_shared_memory, machine.shared)
        if tasks > MAX_PROCESSES + 2:
            return True
        kernel_memory_is_current = self._update_own_kernel_memory(pids, machine)
        if self._fits_memory_limit(pids, machine, by_estimate=True):
            return False
        # It is too much by estimates from above: now everything is counted. Kernel memory that an
        # earlier check has counted may have been freed since.
        if self.own_kernel_memory and not kernel_memory_is_current:
            self._count_own_kernel_memory(pids, machine)
        return not self._fits_memory_limit(pids, machine, by_estimate=False)

    def _update_own_kernel_memory(self, pids: list[int], machine: linux.Machine) -> bool:
        """Count the kernel memory of some processes if that of the machine has grown by a step.

        Returns:
            Whether it was counted.
        """
        self.least_kernel_memory = min(self.least_kernel_memory, machine.kernel)
        self.kernel_memory_at_count = min(self.kernel_memory_at_count, machine.kernel)
        if machine.kernel - self.kernel_memory_at_count <= _KERNEL_MEMORY_STEP:
            return False
        self._count_own_kernel_memory(pids, machine)
        return True

    def _count_own_kernel_memory(self, pids: list[int], machine: linux.Machine) -> None:
        self.kernel_memory_at_count = machine.kernel
        growth = machine.kernel - self.least_kernel_memory
        self.own_kernel_memory = linux.measure_kernel_memory(pids, self.memory_limit, growth)

    def _fits_memory_limit(
        self, pids: list[int], machine: linux.Machine, *, by_estimate: bool
    ) -> bool:
        """Return whether kernel memory, buffers and memory of some processes fit into the limit.

        Args:
            pids: All processes of the boundary.
            machine: The memory that the whole machine uses now.
            by_estimate: Whether a quick estimate of the buffers from above will do.
        """
        remaining = self.memory_limit - self.own_kernel_memory
        # The init's network namespace shows sockets to which no process has a descriptor.
        network_pid = self.init_pid if self.folder == HOME else 0
        # An estimate of at most the second argument is not followed by a count.
        highest_estimate = remaining if by_estimate else 0
        remaining -= linux.measure_buffers(pids, highest_estimate, network_pid)
        if remaining < 0:
            return False
        shared_growth = machine.shared - self.least_shared_memory
        return linux.measure_memory(pids, remaining, machine.shared, shared_growth) <= remaining

    def has_too_many_files(self, now: float) -> bool:
        """Return whether there are too many files in the boundary's folder.

        With namespaces there never are: the size of its own file system is limited. A count may
        take long, so that most calls return False without one.

        Args:
            now: The present `time.monotonic()`.
        """
        if self.folder == HOME or now < self.next_file_count:
            return False
        too_many = count_entries(Path(self.folder).parent, INODES) > INODES
        seconds_taken = time.monotonic() - now
        self.next_file_count = now + _FILE_COUNT_PAUSE * seconds_taken
        return too_many

    def close(self) -> None:
        """Close all descriptors that are open."""
        if self.init_socket:
            self.init_socket.close()
        fds = (self.init_pidfd, self.exit_pipe, *self.caller_fds, *self.worker_fds)
        messages.close_descriptors(*[fd for fd in fds if fd >= 0])


@dataclass
class Stock:
    """How many boundaries with the same libraries were requested, begun and delivered.

    All numbers count from the start of the server; a failure that is reported to a caller counts as
    a delivery. Inits and zygotes may die at any moment, also before they deliver anything. Whatever
    dies, one invariant holds: once `missing` boundaries are begun, no fewer are on their way than
    there are callers that wait.
    """

    # Callers so far, of whom `requested - delivered` wait; if that is negative, so many are ready.
    requested: int = 0
    begun: int = 0  # boundaries begun and not lost; `begun - delivered` are on their way
    delivered: int = 0  # boundaries and failures delivered, in order, one for each caller
    # Boundaries lost in a row; `TRIES` at once if the reason is permanent.
    losses: int = 0

    @property
    def waiting(self) -> int:
        """Callers that wait for a boundary."""
        return max(0, self.requested - self.delivered)

    @property
    def missing(self) -> int:
        """Boundaries to begin now.

        There are no spare ones while boundaries keep failing, or if nobody has ever asked for one.
        """
        spare = SPARE if self.requested and self.losses < TRIES else 0
        return max(0, self.requested + spare - self.begun)

    def record_delivery(self) -> None:
        """Count a boundary that was handed out."""
        self.delivered += 1
        self.losses = 0

    def record_loss(self, *, permanent: bool) -> bool:
        """Note the loss of a boundary that was not delivered.

        Args:
            permanent: Whether the next one would be lost for the same reason.

        Returns:
            Whether a caller that waits is to be told.
        """
        self.losses = TRIES if permanent else self.losses + 1
        return self.waiting > 0 and self.losses >= TRIES

    def record_failure_report(self) -> None:
        """Count a failure that is delivered in place of a boundary."""
        self.begun += 1
        self.delivered += 1


def _be_init(supervisor_socket: socket.socket) -> NoReturn:
    """Be the first process of new namespaces.

    It waits for a byte on the socket, which says that its user ids are mapped, prepares its file
    systems, and answers `{}` or `{"failed": reason}`. From the worker, which gets the other end of
    the socket, it then receives a listener, and judges the worker's system calls.

    It ignores SIGCHLD, as its parent does, so that the kernel reaps its orphans. No signal from
    inside its namespace reaches it, since it has no handler.
    """
    try:
        supervisor_socket.recv(1)
        become_agent()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else nobody may join its namespaces
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        proc = os.open("/proc", os.O_PATH)
        mount_private()
        supervisor_socket.send(b"{}")
        _, ancillary_data, _, _ = supervisor_socket.recvmsg(
            messages.MAX_PACKET, socket.CMSG_SPACE(4)
        )
        [(_, _, listener_bytes)] = ancillary_data
        listener = int.from_bytes(listener_bytes, sys.byteorder)
        # It keeps the two descriptors that judging needs, as 0 and 1, and closes all others.
        os.dup2(listener, 0)
        os.dup2(proc, 1)
        os.closerange(2, 1 << 16)
        judge(0, network=LocalNetwork(1))
        while True:  # its end would be that of the boundary, and is not its own decision
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError):
            messages.send_packet(supervisor_socket, {"failed": str(error)})
    finally:
        os._exit(1)


def run_subreaper(
    spec: WorkerSpec, control: int, output: int, exit_pipe: int, zygote_pid: int
) -> NoReturn:
    """Be the init of a worker without namespaces.

    It forks the worker, reports how the worker ends, and reaps all orphans. On SIGTERM, or if the
    zygote ends, it kills all its descendants and exits.

    Args:
        spec: What the worker is to be; its rules and the socket of its judge are added here.
        control: The worker's end of the control socket.
        output: The writing end of the output pipe.
        exit_pipe: The writing end of the exit pipe.
        zygote_pid: The process that has forked this one.
    """
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    own_pid = os.getpid()
    awaited_signals = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited_signals)
    # Not SIGKILL: it has to end its descendants before it ends.
    linux.die_with(zygote_pid, signal.SIGTERM)
    os.setsid()
    own_end, workers_end = messages.packet_pair()
    worker_pid = os.fork()
    if not worker_pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited_signals)
        linux.die_with(own_pid)
        own_end.close()
        work(_make_folder_and_rules(spec, workers_end.detach()), control, output)
    messages.close_descriptors(control, output)
    if spec.control_group >= 0:
        messages.close_descriptors(spec.control_group)
    workers_end.close()
    private_folder = os.path.realpath(Path(spec.folder).parent)
    threading.Thread(target=_judge_for_worker, args=(own_end, private_folder), daemon=True).start()
    while signal.sigwait(awaited_signals) == signal.SIGCHLD:
        _reap(worker_pid, exit_pipe)
    if os.getppid() != zygote_pid:
        # The server has died: how its sessions end says nothing about their programs, so that
        # nothing is reported.
        os.dup2(os.open(os.devnull, os.O_WRONLY), exit_pipe)
    while children := Path(f"/proc/self/task/{own_pid}/children").read_text().split():
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        _reap(worker_pid, exit_pipe, at_least=len(children))
    os._exit(0)


def _judge_for_worker(worker_socket: socket.socket, folder: str) -> None:
    """Receive a listener from the worker, and judge its system calls until nobody can ask.

    At level `rlimits-only` the worker sends none, and there is nothing to judge.

    Args:
        worker_socket: The socket that the worker sends the listener on, and closes.
        folder: The folder in which files may be changed, without links in its path.
    """
    with contextlib.suppress(EOFError, OSError), worker_socket:
        _, (listener,) = messages.receive_packet(worker_socket)
        judge(listener, folder)


def _make_folder_and_rules(spec: WorkerSpec, judge_socket: int) -> WorkerSpec:
    """Make the private folder of a worker; at level `landlock`, return its spec with rules."""
    private_folder = Path(spec.folder).parent
    private_folder.mkdir(0o700)
    if spec.level != "landlock":
        return spec
    readable_paths, listable_folders = visible_paths
    ruleset = landlock.landlock_ruleset(
        read=[*readable_paths, *(f"/dev/{name}" for name in DEVICES)],
        listed=listable_folders,
        write=[str(private_folder), "/dev/null"],
    )
    return replace(spec, judge_socket=judge_socket, ruleset=ruleset)


def _reap(worker_pid: int, exit_pipe: int, at_least: int = 0) -> None:
    """Reap the processes that have ended, and report how the worker ended if it is among them.

    Args:
        worker_pid: The process of the worker.
        exit_pipe: Where the wait status of the worker is reported.
        at_least: So many processes are waited for.
    """
    reaped = 0
    with contextlib.suppress(ChildProcessError):  # there is no child any more
        while True:
            options = 0 if reaped < at_least else os.WNOHANG
            pid, wait_status = os.waitpid(-1, options)
            if not pid:
                return
            reaped += 1
            if pid == worker_pid:
                messages.write_exit_report(exit_pipe, messages.EXIT, wait_status)
