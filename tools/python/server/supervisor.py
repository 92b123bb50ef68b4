"""The server process of the Python tool: it keeps confined workers ready and enforces limits.

A boundary is made before it is needed, in three steps: its init process prepares namespaces and
file systems (only at level `namespaces`), a zygote forks its worker, and the worker confines
itself. A caller takes a finished boundary from a queue together with all its descriptors, and from
then on talks to the worker directly; this process is only told when a call begins and ends. As
long as a boundary lives, this process checks how much it uses, and ends it if it exceeds a limit
or if its call does not end in time.

`main` sets the process up, and `Supervisor.serve` is its loop. The methods of `Supervisor` are in
the order of a boundary's life: it is begun, prepared, forked, handed out, checked and discarded.
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
from ..isolation.levels import LIBRARY_COMBINATIONS, remove_folder
from ..isolation.namespaces import enter_namespaces
from .boundary import Boundary, Stock
from .guard import mark_this_process, start_guard
from .worker_factory import Zygote, start_zygote

# The signal that ends a boundary, sent to its init, by level.
STOP_SIGNALS = {
    "namespaces": signal.SIGKILL,
    "landlock": signal.SIGTERM,
    "rlimits-only": signal.SIGTERM,
}
# Seconds between two checks of the boundaries that work, and of those that do not.
ACTIVE_CHECK_INTERVAL = 0.05
IDLE_CHECK_INTERVAL = 0.25
# Folders of ended sessions that may wait for their removal before no other session is begun.
MAX_FOLDERS_TO_REMOVE = 16

_QUERY_PERSONALITY = 0xFFFFFFFF  # makes `linux.personality` return the present one and set nothing
# Seconds for which no boundary is begun after a call began, and after a boundary was handed out or
# ended: beginning one would take processor time from the call.
_PAUSE_AFTER_CALL_BEGAN = 0.05
_PAUSE_AFTER_HANDING_OUT = 0.002
# Seconds after the deadline of a call in which the parent has ended the boundary itself, if it can.
_DEADLINE_GRACE = 0.5
# Searches for processes that outlived their init, and seconds between two of them.
_STRAY_SEARCHES = 1000
_STRAY_SEARCH_INTERVAL = 0.001
# Seconds in which an init, and the processes that it has to end first, have ended.
_INIT_END_SECONDS = 1.0
# Seconds in which an init that was killed, and that nobody can use any more, has ended.
_KILLED_INIT_END_SECONDS = 0.02


def main(level: str, folder: str) -> None:
    """Serve the parent process, as the server process of the Python tool, until the parent ends.

    The command line ends with the numbers of the descriptors that the parent passes: the lock of
    the folder, if there is a folder; the socket for notifications; a queue for each of
    `LIBRARY_COMBINATIONS`; and the socket to the parent.

    Args:
        level: The isolation level of all boundaries of this server.
        folder: The folder below which sessions work; "" at level `namespaces`, where each session
            has a file system in memory.
    """
    _disable_address_randomisation()
    _, max_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_descriptors, max_descriptors))
    socket_count = len(LIBRARY_COMBINATIONS) + 2
    notifications, *queues, parent = messages.inherited_sockets(socket_count)
    folder_lock = int(sys.argv[-socket_count - 1]) if folder else -1
    view = FileView(**messages.read_frame(parent))
    # Before `_prepare_level`, which moves this process into a file tree without control groups.
    control_groups: Groups | None = None
    try:
        control_groups = Groups()
        memory_mode = "limited by the kernel, and counted twenty times a second"
    except OSError as error:
        memory_mode = f"counted twenty times a second; no control groups: {error}"
    try:
        _prepare_level(level, view)
        take_packages(view, folder)
    except OSError as error:
        messages.write_frame(parent, {"refused": str(error)})
        if control_groups is not None:
            control_groups.close()
        return
    if folder:
        mark_this_process(folder)
    supervisor = Supervisor(parent, level, folder, control_groups, folder_lock)
    if folder:
        supervisor.start_new_guard()
    messages.write_frame(
        parent,
        {"stop": STOP_SIGNALS[level], "memory": memory_mode, "guard": supervisor.guard_pid},
    )
    try:
        supervisor.serve(notifications, dict(zip(LIBRARY_COMBINATIONS, queues)))
    finally:
        supervisor.stop()


def _disable_address_randomisation() -> None:
    """Restart this process without address randomisation, unless it already runs without.

    Programs that print addresses, such as the default `repr` of an object, then print the same from
    run to run.
    """
    with contextlib.suppress(OSError):  # some containers forbid it: addresses then differ
        if linux.personality(_QUERY_PERSONALITY) & linux.ADDR_NO_RANDOMIZE:
            return
        linux.personality(linux.ADDR_NO_RANDOMIZE)
        # Only if the kernel has accepted the change: otherwise this process would restart forever.
        if linux.personality(_QUERY_PERSONALITY) & linux.ADDR_NO_RANDOMIZE:
            os.execv(sys.executable, sys.orig_argv)


def _prepare_level(level: str, view: FileView) -> None:
    """Check that this machine can provide an isolation level, and prepare this process for it.

    Args:
        level: The isolation level.
        view: The files that programs see; at level `namespaces` this process moves into their tree.

    Raises:
        OSError: The machine cannot provide the level; the message is the reason.
    """
    if level == "landlock" and landlock.landlock_version() < 3:
        raise OSError("the kernel has no Landlock of version 3 (Linux 6.2), or it is switched off")
    if level == "namespaces":
        enter_namespaces(view)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The kernel reaps the children of this process. Among them are the workers of a zygote that has
    # died, which nobody else would reap, and a boundary ends only when its processes are reaped.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Find out now, rather than at the first request, whether an init can prepare its namespaces.
    if level == "namespaces":
        trial_boundary = Boundary("", HOME)
        message, _ = messages.receive_packet(trial_boundary.start_init())
        trial_boundary.signal_init(signal.SIGKILL)
        trial_boundary.close()
        if "failed" in message:
            raise OSError(message["failed"])


class Poller(selectors.DefaultSelector):
    """Calls functions when descriptors become readable."""

    def call_when_readable(self, fd: int, callback: Callable[[], None]) -> None:
        """Have the loop call a function, without arguments, whenever a descriptor is readable."""
        self.register(fd, selectors.EVENT_READ, callback)

    def forget(self, fd: int) -> None:
        """Stop waiting for a descriptor, before it is closed; harmless if it is not waited for."""
        with contextlib.suppress(KeyError, ValueError):
            self.unregister(fd)

    def wait(self, until: float) -> None:
        """Wait until some descriptors are readable, and call their functions.

        Args:
            until: When to return at the latest, by `time.monotonic()`; `math.inf` for no limit.
        """
        timeout = None if until == math.inf else until - time.monotonic()
        for key, _ in self.select(timeout):
            # A function that was called just before may have closed this descriptor, and a new one
            # may have got its number.
            if self.get_map().get(key.fd) is key:
                callback = key.data
                callback()


class Supervisor:
    """The state and the loop of the server process.

    Args:
        parent: The socket to the parent; it becomes readable when the parent has ended.
        level: The isolation level of all boundaries.
        folder: The folder below which sessions work; "" at level `namespaces`.
        control_groups: Makes a control group for each boundary; None if the machine allows none.
        folder_lock: The descriptor that locks `folder`; -1 if there is none.
    """

    def __init__(
        self,
        parent: socket.socket,
        level: str,
        folder: str,
        control_groups: Groups | None = None,
        folder_lock: int = -1,
    ) -> None:
        self.parent = parent
        self.level = level
        self.folder = folder
        self.control_groups = control_groups
        self.folder_lock = folder_lock
        self.guard: socket.socket | None = None
        self.guard_pid = 0
        # Serials of the boundaries whose folders the guard has yet to remove.
        self.folders_to_remove: set[int] = set()
        self.poller = Poller()
        # By the libraries that are preloaded, such as "numpy+sympy":
        self.queues: dict[str, socket.socket] = {}
        self.stocks: dict[str, Stock] = {}
        self.zygotes: dict[str, Zygote] = {}
        # Those that have not ended, by serial, which is their number.
        self.boundaries: dict[int, Boundary] = {}
        self.last_serial = 0
        self.restock_at = math.inf  # by `time.monotonic()`
        self.kernel_memory = 0  # bytes of `linux.machine_kernel_memory` when it was last read
        self.kernel_memory_read_at = -math.inf

    def serve(self, notifications: socket.socket, queues: dict[str, socket.socket]) -> None:
        """Serve until the parent goes away.

        Args:
            notifications: The socket on which the parent asks for boundaries and reports calls.
            queues: For each combination of libraries, the socket into which finished boundaries go.
        """
        # Processes that outlive their init become children of this one, and `kill_strays` kills
        # them.
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self.queues = queues
        self.stocks = {libraries: Stock() for libraries in queues}
        for queue in queues.values():
            queue.setblocking(False)
        self.poller.call_when_readable(
            notifications.fileno(), lambda: self.on_notification(notifications)
        )
        # The function does nothing: the socket ends the wait, and the loop's condition the loop.
        self.poller.call_when_readable(self.parent.fileno(), lambda: None)
        last_check = time.monotonic()
        while not messages.wait_until_readable(self.parent, 0):
            next_check = last_check + self.choose_check_interval()
            self.poller.wait(min(self.restock_at, next_check))
            now = time.monotonic()
            if now >= self.restock_at:
                self.begin_missing_boundaries()
            if now >= next_check:
                self.enforce_limits(now)
                last_check = time.monotonic()

    def choose_check_interval(self) -> float:
        """Return the seconds between two checks of limits; `math.inf` if no boundary is in use."""
        # The memory limit of a boundary is 0 until its first call.
        used_boundaries = [
            boundary for boundary in self.boundaries.values() if boundary.memory_limit
        ]
        if not used_boundaries:
            return math.inf
        if any(boundary.active for boundary in used_boundaries):
            return ACTIVE_CHECK_INTERVAL
        return IDLE_CHECK_INTERVAL

    def on_notification(self, notifications: socket.socket) -> None:
        """Receive a message of the parent: it wants a boundary, or a call begins or has ended.

        Args:
            notifications: The socket for these messages. `{"want": libraries}` asks for a boundary,
                the sandbox of a session and its forks. A call is reported with the keys of
                `SessionGroup.notify_server_of_call`.
        """
        message, _ = messages.receive_packet(notifications)
        if "want" in message:
            self.on_boundary_request(message["want"])
            return
        serial = message["serial"]
        boundary = self.boundaries.get(serial)
        if boundary is None:  # it has ended meanwhile
            return
        if self.control_groups is not None and boundary.memory_limit != message["memory"]:
            self.control_groups.limit(serial, message["memory"])
        boundary.call_deadline = message["until"]
        boundary.memory_limit = message["memory"]
        boundary.members = message["members"]
        # Also when a call has ended: it may have left processes or threads behind. A check that
        # finds none sets it to False.
        boundary.active = True

    def on_boundary_request(self, libraries: str) -> None:
        """Count a request for a boundary, and see to it that enough boundaries are begun.

        Args:
            libraries: The libraries that its worker is to have preloaded, such as "numpy+sympy".
        """
        stock = self.stocks[libraries]
        stock.requested += 1
        if stock.delivered <= stock.requested:
            self.begin_missing_boundaries()
        else:
            # The caller takes one that is ready, and begins a call with it. Making more at the same
            # time would slow that call down.
            self.restock_at = time.monotonic() + _PAUSE_AFTER_CALL_BEGAN

    def begin_missing_boundaries(self) -> None:
        """Begin as many boundaries as are missing, for the libraries that were ever asked for."""
        self.restock_at = math.inf
        # Without this, sessions could make files faster than the guard removes them. When it has
        # removed some, `on_guard_message` restocks.
        if len(self.folders_to_remove) >= MAX_FOLDERS_TO_REMOVE:
            return
        for libraries, stock in self.stocks.items():
            while stock.missing:
                self.begin_boundary(libraries)

    def restock_after(self, seconds: float) -> None:
        """Have the loop begin missing boundaries within some seconds.

        If it is to do so earlier already, it does.
        """
        self.restock_at = min(self.restock_at, time.monotonic() + seconds)

    def begin_boundary(self, libraries: str) -> None:
        """Begin to make a boundary, the sandbox of one session and its forks.

        At level `namespaces` its init process is started, and the worker is requested later, when
        the init has prepared its namespaces. At other levels the worker is requested at once: the
        zygote then forks the init, which forks the worker.

        Args:
            libraries: The libraries that its worker is to have preloaded, such as "numpy+sympy".
        """
        self.last_serial += 1
        serial = self.last_serial
        work_folder = HOME if self.level == "namespaces" else f"{self.folder}/{serial}/home"
        boundary = Boundary(libraries, work_folder)
        self.boundaries[serial] = boundary
        self.stocks[libraries].begun += 1
        try:
            boundary.open_descriptors()
            if self.control_groups is not None:
                join_fd, events_fd = self.control_groups.make(serial)
                boundary.worker_fds.append(join_fd)
                boundary.caller_fds.append(events_fd)
            init_socket = boundary.start_init() if self.level == "namespaces" else None
        except OSError as error:
            # These two errors mean that the init was killed at once. The next one may live.
            init_was_killed = isinstance(error, BrokenPipeError | ProcessLookupError)
            self.abandon_boundary(serial, str(error), permanent=not init_was_killed)
            return
        if init_socket is None:
            self.request_worker(serial)
            return
        self.poller.call_when_readable(
            init_socket.fileno(), lambda: self.on_init_prepared(serial, init_socket)
        )
        self.poller.call_when_readable(boundary.init_pidfd, lambda: self.on_init_exit(serial))

    def on_init_prepared(self, serial: int, init_socket: socket.socket) -> None:
        """Receive the report of a boundary's init on the preparation of its namespaces.

        If it succeeded, the worker is requested. Otherwise the boundary is abandoned.

        Args:
            serial: The number of the boundary.
            init_socket: The socket on which the init reports.
        """
        self.poller.forget(init_socket.fileno())
        try:
            message, _ = messages.receive_packet(init_socket)
        except (EOFError, OSError):
            # The init was killed. Its pidfd is readable, so that `on_init_exit` is called next.
            init_socket.close()
            return
        if "failed" in message:
            self.abandon_boundary(serial, message["failed"], permanent=True)
        else:
            self.request_worker(serial)

    def request_worker(self, serial: int) -> None:
        """Ask a zygote, a warm interpreter, to fork the worker of a boundary.

        The descriptors that only the worker needs are sent with the request, and closed here.

        Args:
            serial: The number of the boundary.
        """
        boundary = self.boundaries[serial]
        # `_WorkerForker.answer_request` expects them in this order.
        fds = [*boundary.worker_fds, boundary.exit_pipe]
        if boundary.init_socket:
            fds += [boundary.init_pidfd, boundary.init_socket.fileno()]
        message = {
            "serial": serial,
            "folder": boundary.folder,
            "urgent": self.stocks[boundary.libraries].waiting > 0,
            "group": self.control_groups is not None,
        }
        try:
            zygote = self.find_or_start_zygote(boundary.libraries)
            messages.send_packet(zygote.requests, message, fds)
        except (BrokenPipeError, ConnectionResetError):
            # The zygote has just died. `on_zygote_exit` is called next, and discards this boundary.
            return
        except OSError as error:
            self.abandon_boundary(serial, str(error), permanent=True)
            return
        messages.close_descriptors(*boundary.worker_fds)
        boundary.worker_fds = []
        if boundary.init_socket:
            boundary.init_socket.close()
            boundary.init_socket = None

    def find_or_start_zygote(self, libraries: str) -> Zygote:
        """Return the zygote that has these libraries preloaded; start it if there is none."""
        if libraries not in self.zygotes:
            zygote = start_zygote(self.level, libraries)
            self.zygotes[libraries] = zygote
            self.poller.call_when_readable(
                zygote.requests.fileno(), lambda: self.on_zygote_reply(libraries)
            )
        return self.zygotes[libraries]

    def on_zygote_reply(self, libraries: str) -> None:
        """Receive the reply of a zygote, a warm interpreter that was asked to fork a worker.

        If the worker of a boundary is forked, the boundary is complete, and is handed out. If it
        cannot be forked, the boundary is abandoned.

        Args:
            libraries: The libraries that the zygote has preloaded.
        """
        zygote = self.zygotes[libraries]
        try:
            message, fds = messages.receive_packet(zygote.requests)
        except (EOFError, OSError):
            self.on_zygote_exit(libraries)
            return
        if "failed" in message:  # it is about to exit
            zygote.exit_reason = message["failed"]
            return
        serial = message["serial"]
        boundary = self.boundaries.get(serial)
        if "pid" in message:
            zygote.has_forked = True
        if boundary is None:  # its init was killed meanwhile
            messages.close_descriptors(*fds)
            return
        if "error" in message:
            # A fork into the namespaces of an init that was killed fails. The next init may live.
            init_was_killed = boundary.has_ended(within=_KILLED_INIT_END_SECONDS)
            self.abandon_boundary(serial, message["error"], permanent=not init_was_killed)
            return
        # With the reply comes a pidfd of the forked process.
        boundary.worker_pid = message["pid"]
        # Without namespaces the forked process is the init, which has forked the worker.
        if boundary.init_pidfd < 0:
            boundary.init_pid = message["pid"]
            boundary.init_pidfd = fds[0]
            self.poller.call_when_readable(boundary.init_pidfd, lambda: self.on_init_exit(serial))
        else:
            messages.close_descriptors(*fds)
        self.hand_out_boundary(serial)

    def hand_out_boundary(self, serial: int) -> None:
        """Put a finished boundary into the queue from which callers take boundaries.

        Its descriptors are sent to the caller, and closed here.

        Args:
            serial: The number of the boundary.
        """
        boundary = self.boundaries[serial]
        message = {"serial": serial, "folder": boundary.folder}
        try:
            messages.send_packet(
                self.queues[boundary.libraries],
                message,
                [*boundary.caller_fds, boundary.init_pidfd],
            )
        except OSError as error:
            self.abandon_boundary(serial, str(error), permanent=True)
            return
        messages.close_descriptors(*boundary.caller_fds)
        boundary.caller_fds = []
        boundary.mark_as_handed_out(linux.machine_shared_memory(), self.read_kernel_memory())
        stock = self.stocks[boundary.libraries]
        stock.record_delivery()
        # If boundaries failed before this one, only those that were requested have been begun, and
        # spare ones are missing.
        if stock.missing:
            self.restock_after(_PAUSE_AFTER_HANDING_OUT)

    def read_kernel_memory(self) -> int:
        """Return the machine's kernel memory in bytes.

        Reading it takes long, so that a value of the last quarter of a second is used again.
        """
        now = time.monotonic()
        if now > self.kernel_memory_read_at + IDLE_CHECK_INTERVAL:
            self.kernel_memory_read_at = now
            self.kernel_memory = linux.machine_kernel_memory()
        return self.kernel_memory

    def enforce_limits(self, now: float) -> None:
        """End each boundary that has too many processes or files, too much memory, or a late call.

        Boundaries in which no call or process runs are checked less often.

        Args:
            now: The present `time.monotonic()`.
        """
        machine = linux.measure_machine()
        self.kernel_memory = machine.kernel
        self.kernel_memory_read_at = now
        for boundary in self.boundaries.values():
            if not boundary.memory_limit:  # nobody has used it yet
                continue
            if not boundary.active and now < boundary.last_check + IDLE_CHECK_INTERVAL:
                continue
            boundary.last_check = now
            exceeds_limits = boundary.exceeds_process_or_memory_limit(machine)
            if exceeds_limits or boundary.has_too_many_files(now):
                # Whichever limit it is, the parent is told that memory was exceeded.
                messages.write_exit_report(boundary.exit_pipe, messages.MEMORY)
                boundary.signal_init(STOP_SIGNALS[self.level])
                continue
            # The parent normally ends a late call itself: this is for one that cannot.
            deadline = boundary.call_deadline
            if deadline is not None and now > deadline + _DEADLINE_GRACE:
                boundary.signal_init(STOP_SIGNALS[self.level])

    def on_init_exit(self, serial: int) -> None:
        """Discard a boundary whose init has ended, and with it all its processes."""
        if not self.boundaries[serial].handed_out:
            self.abandon_boundary(serial, "their init processes keep dying", permanent=False)
            return
        if self.folder:
            self.kill_strays()
        self.discard_boundary(serial)
        if self.restock_at < math.inf:
            self.restock_after(_PAUSE_AFTER_HANDING_OUT)

    def on_zygote_exit(self, libraries: str) -> None:
        """Discard a zygote that has exited, and its boundaries, since their workers end with it.

        If the next zygote would fail too, every caller that waits is told the reason.

        Args:
            libraries: The libraries that the zygote, a warm interpreter, had preloaded.
        """
        zygote = self.zygotes.pop(libraries)
        self.poller.forget(zygote.requests.fileno())
        zygote.requests.close()
        lost_serials = [
            serial
            for serial, boundary in self.boundaries.items()
            if boundary.libraries == libraries
        ]
        for serial in lost_serials:
            self.discard_boundary(serial)
        if self.folder:
            self.kill_strays()
        stock = self.stocks[libraries]
        # A zygote that has never forked a worker could not start, and neither could the next one.
        next_would_fail = not zygote.has_forked
        if stock.record_loss(permanent=next_would_fail):
            while stock.waiting:
                self.report_failure_to_waiting_caller(
                    libraries, f"the warm interpreter ended: {zygote.exit_reason}"
                )
        self.restock_after(0)

    def abandon_boundary(self, serial: int, reason: str, *, permanent: bool) -> None:
        """Discard a boundary that could not be finished, and begin another one.

        A caller that waits is told the reason if it is permanent, or if several boundaries in a row
        have failed.

        Args:
            serial: The number of the boundary.
            reason: Why it could not be finished, in words for the caller.
            permanent: Whether the next one would fail for the same reason.
        """
        libraries = self.boundaries[serial].libraries
        self.discard_boundary(serial)
        if self.stocks[libraries].record_loss(permanent=permanent):
            self.report_failure_to_waiting_caller(libraries, reason)
        self.restock_after(0)

    def report_failure_to_waiting_caller(self, libraries: str, reason: str) -> None:
        """Put the reason why there is no boundary into a queue, in place of a boundary."""
        self.stocks[libraries].record_failure_report()
        with contextlib.suppress(BrokenPipeError):
            messages.send_packet(self.queues[libraries], {"error": reason})

    def discard_boundary(self, serial: int) -> None:
        """Forget a boundary, end its processes, and release its descriptors and its folder.

        Args:
            serial: The number of the boundary.
        """
        boundary = self.boundaries.pop(serial)
        if not boundary.handed_out:
            self.stocks[boundary.libraries].begun -= 1
        if boundary.init_socket:
            self.poller.forget(boundary.init_socket.fileno())
        self.poller.forget(boundary.init_pidfd)
        boundary.signal_init(STOP_SIGNALS[self.level])
        if self.folder and boundary.has_ended(within=_INIT_END_SECONDS):
            self.request_folder_removal(serial)
        boundary.close()
        if self.control_groups is not None:
            self.control_groups.remove(serial)

    def kill_strays(self) -> None:
        """Kill the processes that have outlived their init, because the init itself was killed.

        They have become children of this process, whose only other children are the zygotes. The
        search is repeated, since the children of those that are killed become children of this
        process in turn.
        """
        for _ in range(_STRAY_SEARCHES):
            zygote_pids = {zygote.pid for zygote in self.zygotes.values()}
            children = linux.read_proc(f"/proc/self/task/{os.getpid()}/children").split()
            stray_pids = [int(pid) for pid in children if int(pid) not in zygote_pids]
            if not stray_pids:
                return
            for pid in stray_pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_STRAY_SEARCH_INTERVAL)

    def start_new_guard(self) -> None:
        """Start a guard, the process that cleans up if this one is killed.

        The removals of folders that the guard before it may not have done are requested again.
        """
        # An orphan becomes the child of a subreaper, but the guard must not be a child of this
        # process: whoever kills this process and its descendants must not find it.
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 0)
        guard, self.guard_pid = start_guard(self.folder, self.folder_lock)
        self.guard = guard
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self.poller.call_when_readable(guard.fileno(), self.on_guard_message)
        for serial in self.folders_to_remove:
            guard.send(b"%d" % serial)

    def on_guard_message(self) -> None:
        """Receive that the guard has removed a folder, or start another guard if it was killed."""
        assert self.guard is not None
        removed_serial = b""
        with contextlib.suppress(OSError):
            removed_serial = self.guard.recv(messages.MAX_PACKET)
        if removed_serial:  # the number of the boundary that the folder belonged to
            self.folders_to_remove.discard(int(removed_serial))
            self.restock_after(0)
            return
        self.poller.forget(self.guard.fileno())
        self.guard.close()
        self.start_new_guard()

    def request_folder_removal(self, serial: int) -> None:
        """Have the guard, another process, remove the folder of a boundary that has ended.

        At level `namespaces` there is neither a guard nor a folder, and this does nothing.

        Args:
            serial: The number of the boundary.
        """
        if self.guard:
            self.folders_to_remove.add(serial)
            # If the guard was killed, `on_guard_message` starts another one, and `start_new_guard`
            # requests the removal again.
            with contextlib.suppress(OSError):
                self.guard.send(b"%d" % serial)

    def stop(self) -> None:
        """End all boundaries and all other processes of this server, and remove its files."""
        for boundary in self.boundaries.values():
            boundary.signal_init(STOP_SIGNALS[self.level])
            boundary.has_ended(within=_INIT_END_SECONDS)
        own_pid = os.getpid()
        # What is left are the zygotes, and processes that outlived an init that was killed.
        for pid in linux.process_tree([own_pid]):
            if pid != own_pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # there is no child any more
            while True:
                os.wait()
        if self.control_groups is not None:
            self.control_groups.close()
        # Otherwise the guard removes the folder, once it finds that this process has ended.
        if not self.guard:
            remove_folder(self.folder)
