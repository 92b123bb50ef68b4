"""Boundaries: what confines a session and its forks, and ends with one process, its init.

At level `namespaces` the init is the first process of a process namespace, and the kernel ends the
others with it. At the other levels it is a subreaper: it finds and kills its descendants itself.

`Boundary` and `Stock` are what the supervisor knows of boundaries; `_run_init` and `run_subreaper`
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

# Seconds between two counts of files, for each second that the first of them took.
_PAUSE_PER_SECOND_OF_COUNTING = 5
# Bytes by which the machine's kernel memory has to grow before that of a boundary is counted again.
_KERNEL_MEMORY_GROWTH_TO_RECOUNT = 16 * 2**20
# The init and the worker are not counted as processes of programs.
_OWN_TASKS = 2
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
        """Open both ends of the control socket, the output pipe and the exit pipe."""
        caller_socket, worker_socket = messages.packet_pair(senders=True)
        self.caller_fds = [caller_socket.detach()]
        self.worker_fds = [worker_socket.detach()]
        output_reader, output_writer = os.pipe()
        self.caller_fds.append(output_reader)
        self.worker_fds.append(output_writer)
        exit_reader, self.exit_pipe = os.pipe()
        self.caller_fds.append(exit_reader)

    def start_init(self) -> socket.socket:
        """Start the init, the first process of the boundary, in new namespaces.

        Returns:
            The socket on which the init reports that its file systems are prepared; see
            `_run_init`.
        """
        self.init_socket, inits_end = messages.packet_pair()
        init_pid = linux.clone(_NAMESPACES)
        if init_pid == 0:  # this is the new process
            self.init_socket.close()
            _run_init(inits_end)
        inits_end.close()
        self.init_pid = init_pid
        self.init_pidfd = os.pidfd_open(init_pid)
        map_users(init_pid)
        self.init_socket.send(b"!")  # any byte: its user ids are mapped, and it may go on
        return self.init_socket

    def has_ended(self, within: float = 0.0) -> bool:
        """Return whether the init ends within some seconds; False if it is not known yet."""
        return self.init_pidfd >= 0 and messages.wait_until_readable(self.init_pidfd, within)

    def signal_init(self, signal_number: int) -> None:
        """Send a signal to the init; harmless if it has ended or is not known yet."""
        if self.init_pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init_pidfd, signal_number)

    def mark_as_handed_out(self, shared_memory: int, kernel_memory: int) -> None:
        """Note how much memory the machine uses when a caller gets the boundary.

        Memory that was used before cannot be the boundary's: only growth counts against its limit.

        Args:
            shared_memory: The bytes of `linux.machine_shared_memory`.
            kernel_memory: The bytes of `linux.machine_kernel_memory`.
        """
        self.handed_out = True
        self.least_shared_memory = shared_memory
        self.least_kernel_memory = kernel_memory
        self.kernel_memory_at_count = kernel_memory

    def exceeds_process_or_memory_limit(self, machine: linux.Machine) -> bool:
        """Return whether the boundary has more processes, or more memory, than its limits allow.

        This also updates `active`: whether a call, or something that a call left behind, runs.

        Args:
            machine: The memory that the whole machine uses now.
        """
        pids = linux.process_tree((self.init_pid, self.worker_pid))
        # A task is a process or a thread. The init counts as one, however many threads it has.
        program_threads = sum(linux.count_threads(pid) for pid in pids if pid != self.init_pid)
        tasks = 1 + program_threads
        # Between calls there are only the init and one task for each session.
        idle_tasks = 1 + self.members
        self.active = self.call_deadline is not None or tasks > idle_tasks
        self.least_shared_memory = min(self.least_shared_memory, machine.shared)
        if tasks > MAX_PROCESSES + _OWN_TASKS:
            return True
        was_recounted = self._recount_kernel_memory_if_grown(pids, machine)
        # Nearly always the estimate, which is quick and never too low, is within the limit.
        if self._fits_memory_limit(pids, machine, by_estimate=True):
            return False
        # Kernel memory that an earlier check has counted may have been freed since.
        if self.own_kernel_memory and not was_recounted:
            self._count_own_kernel_memory(pids, machine)
        return not self._fits_memory_limit(pids, machine, by_estimate=False)

    def _recount_kernel_memory_if_grown(self, pids: list[int], machine: linux.Machine) -> bool:
        """Count the boundary's kernel memory again if the machine's has grown since the last count.

        A count takes long, so that small growth is ignored.

        Args:
            pids: All processes of the boundary.
            machine: The memory that the whole machine uses now.

        Returns:
            Whether it was counted.
        """
        self.least_kernel_memory = min(self.least_kernel_memory, machine.kernel)
        self.kernel_memory_at_count = min(self.kernel_memory_at_count, machine.kernel)
        growth_since_count = machine.kernel - self.kernel_memory_at_count
        if growth_since_count <= _KERNEL_MEMORY_GROWTH_TO_RECOUNT:
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
        """Return whether the boundary's memory is within its limit.

        Its memory is the kernel's memory for it, as counted last; the buffers of its pipes and
        sockets; and what its processes have mapped.

        Args:
            pids: All processes of the boundary.
            machine: The memory that the whole machine uses now.
            by_estimate: Whether to estimate the buffers, quickly and never too low, if the estimate
                is within the limit. Otherwise they are counted.
        """
        limit_for_buffers = self.memory_limit - self.own_kernel_memory
        # The init's network namespace shows sockets to which no process has a descriptor.
        network_pid = self.init_pid if self.folder == HOME else 0
        # `measure_buffers` counts if its estimate is above this: always if it is 0.
        highest_estimate = limit_for_buffers if by_estimate else 0
        buffers = linux.measure_buffers(pids, highest_estimate, network_pid)
        limit_for_mappings = limit_for_buffers - buffers
        if limit_for_mappings < 0:
            return False
        shared_growth = machine.shared - self.least_shared_memory
        mapped = linux.measure_memory(pids, limit_for_mappings, machine.shared, shared_growth)
        return mapped <= limit_for_mappings

    def has_too_many_files(self, now: float) -> bool:
        """Return whether there are too many files in the boundary's folder.

        With namespaces there never are: the number of files in its own file system is limited. A
        count may take long, so that most calls return False without counting.

        Args:
            now: The present `time.monotonic()`.
        """
        if self.folder == HOME or now < self.next_file_count:
            return False
        has_too_many = count_entries(Path(self.folder).parent, INODES) > INODES
        seconds_taken = time.monotonic() - now
        self.next_file_count = now + _PAUSE_PER_SECOND_OF_COUNTING * seconds_taken
        return has_too_many

    def close(self) -> None:
        """Close all descriptors that are open."""
        if self.init_socket:
            self.init_socket.close()
        fds = (self.init_pidfd, self.exit_pipe, *self.caller_fds, *self.worker_fds)
        open_fds = [fd for fd in fds if fd >= 0]
        messages.close_descriptors(*open_fds)


@dataclass
class Stock:
    """How many boundaries with the same libraries were requested, begun and delivered.

    All numbers count from the start of the server. A failure that is reported to a caller counts as
    a delivery. Inits and zygotes may die at any moment, also before they deliver anything. This is
    always true: once `missing` boundaries are begun, at least as many are on their way as there are
    callers that wait.
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


def _run_init(supervisor_socket: socket.socket) -> NoReturn:
    """Prepare the file systems of new namespaces, as their first process, and judge system calls.

    It ignores SIGCHLD, as its parent does, so that the kernel reaps its orphans. No signal from
    inside its namespace reaches it, since it has no handler.

    Args:
        supervisor_socket: The socket to the supervisor. A byte on it tells that the user ids of
            this process are mapped. It answers `{}` or `{"failed": reason}`. Then the worker gets
            the supervisor's end, and sends the seccomp listener for its system calls.
    """
    try:
        supervisor_socket.recv(1)
        become_agent()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # otherwise the worker may not join its namespaces
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        # Opened before it is hidden, since judging needs it.
        proc_fd = os.open("/proc", os.O_PATH)
        mount_private()
        supervisor_socket.send(b"{}")
        _, ancillary_data, _, _ = supervisor_socket.recvmsg(
            messages.MAX_PACKET, socket.CMSG_SPACE(4)
        )
        [(_, _, listener_bytes)] = ancillary_data
        listener = int.from_bytes(listener_bytes, sys.byteorder)
        # It keeps the two descriptors that judging needs, as 0 and 1, and closes all others.
        os.dup2(listener, 0)
        os.dup2(proc_fd, 1)
        os.closerange(2, 1 << 16)
        judge(0, network=LocalNetwork(1))
        # It does not exit, since the kernel would then end the boundary: the supervisor decides
        # when to do so.
        while True:
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError):
            messages.send_packet(supervisor_socket, {"failed": str(error)})
    finally:
        os._exit(1)


def run_subreaper(
    spec: WorkerSpec, control: int, output: int, exit_pipe: int, zygote_pid: int
) -> NoReturn:
    """Fork a worker, and be its init, for a boundary without namespaces.

    It reports how the worker ends, and reaps all orphans. On SIGTERM, which the kernel also sends
    when the zygote ends, it kills all its descendants and exits.

    Args:
        spec: The configuration of the worker; Landlock rules and the judge's socket are added here.
        control: The worker's end of the control socket.
        output: The writing end of the output pipe.
        exit_pipe: The writing end of the exit pipe.
        zygote_pid: The process that has forked this one.
    """
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)  # orphans become its children
    own_pid = os.getpid()
    awaited_signals = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited_signals)
    # Not SIGKILL: it has to end its descendants before it ends.
    linux.die_with(zygote_pid, signal.SIGTERM)
    os.setsid()
    own_end, workers_end = messages.packet_pair()
    worker_pid = os.fork()
    if worker_pid == 0:  # this is the new process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited_signals)
        linux.die_with(own_pid)
        own_end.close()
        complete_spec = _make_folder_and_rules(spec, workers_end.detach())
        work(complete_spec, control, output)
    # From here on the descriptors belong to the worker.
    messages.close_descriptors(control, output)
    if spec.control_group >= 0:
        messages.close_descriptors(spec.control_group)
    workers_end.close()
    private_folder = os.path.realpath(Path(spec.folder).parent)
    judge_thread = threading.Thread(
        target=_judge_for_worker, args=(own_end, private_folder), daemon=True
    )
    judge_thread.start()
    while signal.sigwait(awaited_signals) == signal.SIGCHLD:
        _reap(worker_pid, exit_pipe)
    if os.getppid() != zygote_pid:
        # The server has died, and its sessions end for that reason. What is reported about their
        # end from now on would be taken for that of their programs, and goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), exit_pipe)
    _kill_descendants(worker_pid, exit_pipe)
    os._exit(0)


def _kill_descendants(worker_pid: int, exit_pipe: int) -> None:
    """Kill and reap the children of this process, a subreaper, until it has none.

    The children of each that is killed become children of this process.

    Args:
        worker_pid: The process of the worker.
        exit_pipe: Where the wait status of the worker is reported.
    """
    children_file = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        children = children_file.read_text().split()
        if not children:
            return
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        _reap(worker_pid, exit_pipe, at_least=len(children))


def _judge_for_worker(worker_socket: socket.socket, folder: str) -> None:
    """Receive a seccomp listener from the worker, and judge its system calls until all have ended.

    At level `rlimits-only` the worker sends no listener, and there is nothing to judge.

    Args:
        worker_socket: The socket on which the worker sends the listener, before it closes its end.
        folder: The folder in which files may be changed; its path contains no links.
    """
    with contextlib.suppress(EOFError, OSError), worker_socket:
        _, (listener,) = messages.receive_packet(worker_socket)
        judge(listener, folder)


def _make_folder_and_rules(spec: WorkerSpec, judge_socket: int) -> WorkerSpec:
    """Make the private folder of a worker, and the Landlock rules if its level has them.

    Args:
        spec: The configuration of the worker.
        judge_socket: The socket on which the worker sends its seccomp listener.

    Returns:
        The configuration, with the socket and the rules at level `landlock`; unchanged otherwise.
    """
    private_folder = Path(spec.folder).parent
    private_folder.mkdir(0o700)
    if spec.level != "landlock":
        return spec
    readable_paths, listable_folders = visible_paths
    devices = [f"/dev/{name}" for name in DEVICES]
    ruleset = landlock.landlock_ruleset(
        read=[*readable_paths, *devices],
        listed=listable_folders,
        write=[str(private_folder), "/dev/null"],
    )
    return replace(spec, judge_socket=judge_socket, ruleset=ruleset)


def _reap(worker_pid: int, exit_pipe: int, at_least: int = 0) -> None:
    """Reap the processes that have ended, and report how the worker ended if it is among them.

    Args:
        worker_pid: The process of the worker.
        exit_pipe: Where the wait status of the worker is reported.
        at_least: How many processes to wait for, if so many have not ended yet.
    """
    reaped_count = 0
    with contextlib.suppress(ChildProcessError):  # there is no child any more
        while True:
            must_wait = reaped_count < at_least
            options = 0 if must_wait else os.WNOHANG
            pid, wait_status = os.waitpid(-1, options)
            if not pid:  # there are children, but none that has ended
                return
            reaped_count += 1
            if pid == worker_pid:
                messages.write_exit_report(exit_pipe, messages.EXIT, wait_status)
