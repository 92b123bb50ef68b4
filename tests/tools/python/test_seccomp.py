import errno
import json
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from turngym.tools.python import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003, "arm": 0x40000028}
MACHINES = ["x86_64", "aarch64"]
TABLE = seccomp._DENIED | seccomp._JUDGED

NAMES = """
mount umount2 pivot_root move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr chroot
setns unshare ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd bpf perf_event_open
userfaultfd io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key memfd_create memfd_secret
shmget msgget semget mq_open kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff
acct quotactl quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname syslog
open_by_handle_at name_to_handle_at fanotify_init iopl ioperm lookup_dcookie nfsservctl vhangup
"""
REFUSED = set(NAMES.split())  # from the manual, apart from the table under test

HEAD = """
import ctypes, json, mmap, multiprocessing, os, signal, socket, subprocess, sys, threading
from turngym.tools.python import seccomp
column = ["x86_64", "aarch64"].index(os.uname().machine)
numbers = {name: pair[column] for name, pair in (seccomp._DENIED | seccomp._JUDGED).items()}
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, args))
    return ctypes.get_errno() if result < 0 else 0
def tried(do, *args):
    try: do(*args)
    except OSError as error: return error.errno
    return 0
"""


def child(script):
    """What a script answers that runs in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", HEAD + script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def judge(program, number, *args, arch):
    """The answer of a program to a call, by the definition of the machine that it is written for."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    code = list(struct.iter_unpack("<HBBI", program))
    tests = {0x15: int.__eq__, 0x35: int.__ge__, 0x45: int.__and__}
    at, register = 0, 0
    while code[at][0] != 0x06:
        operation, yes, no, value = code[at]
        at += 1
        if operation == 0x20:
            register = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x05:
            at += value
        else:
            at += yes if tests[operation](register, value) else no
    return code[at][3]


@pytest.fixture(params=MACHINES)
def ask(request, monkeypatch):
    """Builds a filter for each machine in turn; gives what answers a call by its name or number."""
    monkeypatch.setattr(seccomp.os, "uname", lambda: SimpleNamespace(machine=request.param))

    def build(**options):
        program = seccomp.build_filter(**options)

        def answer(name, *args, arch=request.param):
            which = TABLE[name][MACHINES.index(request.param)] if isinstance(name, str) else name
            return judge(program, which, *args, arch=ARCH[arch])

        return answer

    build.column = MACHINES.index(request.param)
    return build


def test_every_listed_call_is_refused_and_no_other(ask):
    answer = ask(network=True)
    refused = {TABLE[name][ask.column] for name in REFUSED} - {None}
    assert len(refused) == len(REFUSED) - 2 * ask.column  # no iopl and ioperm on aarch64
    judged = {TABLE[name][ask.column] for name in ("clone3", "personality")}
    for which in range(1000):
        if which not in judged:
            assert answer(which) == (EPERM if which in refused else ALLOW), which
    assert answer("clone3") == ENOSYS


def test_foreign_calling_conventions_kill(ask):
    answer = ask(network=True)
    assert [answer(0, arch=arch) for arch in ARCH.keys() - {MACHINES[ask.column]}] == [KILL] * 3
    assert [answer(0x40000000 + which) for which in (0, 39, 512)] == [ALLOW if ask.column else KILL] * 3


def test_clone_makes_threads_and_children_but_no_namespace_and_no_sibling(ask):
    answer = ask(network=True)
    for flags in (0, signal.SIGCHLD, 0x3D0F00, 0x01200011, 0x4111, 1 << 35):  # such as the C library passes
        assert answer("clone", flags) == ALLOW
        for shift in (15, 17, 25, 26, 27, 28, 29, 30):
            assert answer("clone", flags | 1 << shift) == EPERM


def test_arguments_are_read_as_the_kernel_reads_them(ask):
    answer = ask(network=True)
    for high in (0, 7 << 32):
        for request in (0x5412, 0x541C, 0x8901, 0x8902):  # TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP
            assert answer("ioctl", 0, high | request) == EPERM
        assert answer("ioctl", 0x5412, high | 0x5401) == ALLOW
        assert answer("personality", high | 0x0040000) == EPERM  # ADDR_NO_RANDOMIZE
        assert answer("personality", high) == answer("personality", high | 0xFFFFFFFF) == ALLOW


def test_without_network_there_are_unix_sockets_only(ask):
    for name in ("socket", "socketpair"):
        closed, opened = ask(network=False), ask(network=True)
        assert [closed(name, family) for family in (1, 1 | 9 << 32)] == [ALLOW] * 2
        for family in (0, 2, 10, 16, 17, 38, 40, 0xFFFFFFFF):
            assert (closed(name, family), opened(name, family)) == (EPERM, ALLOW)


def test_own_signals_only(ask):
    free, bound = ask(network=True), ask(network=True, own_signals_only=True)
    pid = os.getpid()
    for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open"):
        assert bound(name, pid) == bound(name, pid, pid) == ALLOW
        for other in (0, 1, pid + 1, 2**32 - pid, 2**64 - 1):
            assert (bound(name, other, pid), free(name, other)) == (EPERM, ALLOW)
    assert (bound("pidfd_send_signal", pid), free("pidfd_send_signal", pid)) == (EPERM, ALLOW)
    assert bound("fcntl", 3, 8, 1) == bound("fcntl", 3, 15) == EPERM  # F_SETOWN, F_SETOWN_EX
    assert bound("fcntl", 8, 1) == bound("fcntl", 15, 3) == ALLOW
    assert bound("prlimit64", 0, 7) == bound("prlimit64", pid, 7) == ALLOW
    assert bound("prlimit64", 1) == bound("prlimit64", 2**64 - 1) == EPERM
    assert [bound(name) for name in ("unshare", "clone3", 0)] == [EPERM, ENOSYS, ALLOW]


def test_long_programs_find_every_rule():
    rules = [(which, seccomp._judge(0, 0x15, range(5), yes=EPERM, no=ALLOW)) for which in range(0, 900, 3)]
    program = struct.pack("<HBBI", 0x20, 0, 0, 0) + seccomp._pack(seccomp._search(rules))
    assert len(program) // 8 > 2000
    for which in range(902):
        assert judge(program, which, 4, arch=0) == (EPERM if which % 3 == 0 and which < 900 else ALLOW)


@pytest.mark.parametrize("column, header", [(0, "x86_64-linux-gnu/asm/unistd_64.h"), (1, "asm-generic/unistd.h")])
def test_numbers_are_those_of_the_kernel_headers(column, header):
    file = Path("/usr/include") / header
    if not file.is_file():
        pytest.skip(f"{file} is absent (package linux-libc-dev)")
    kernel = dict(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", file.read_text(), re.MULTILINE))
    ours = {name: numbers[column] for name, numbers in TABLE.items()}
    known = {name: which for name, which in ours.items() if name in kernel}
    assert {name: int(kernel[name]) for name in known} == known
    # The first is of Linux 6.15, and aarch64 has no ports like those of a PC.
    assert ours.keys() - known.keys() <= {"open_tree_attr", *(("iopl", "ioperm") if column else ())}
    assert seccomp._SECCOMP[MACHINES[column]] == int(kernel["seccomp"])


def test_the_kernel_refuses_each_call():
    script = """
no_filter = tried(seccomp.install, bytes(8))
seccomp.install(seccomp.build_filter(network=True))
answers = {name: call(numbers[name], *[-1] * 6) for name in seccomp._DENIED if numbers[name] is not None}
for shift in (15, 17, 25, 26, 27, 28, 29, 30):
    answers[f"clone {shift}"] = call(numbers["clone"], 1 << shift | signal.SIGCHLD, 0, 0, 0, 0)
answers["personality"] = call(numbers["personality"], 0x0040000)
answers["ioctl"] = call(numbers["ioctl"], 0, 7 << 32 | 0x5412, 0)
print(json.dumps([answers, call(numbers["clone3"], -1, -1), call(numbers["personality"], -1), no_filter]))
"""
    answers, *others = child(script)
    assert answers.keys() >= REFUSED - {"iopl", "ioperm"}
    assert set(answers.values()) == {errno.EPERM}
    assert others == [errno.ENOSYS, 0, errno.EINVAL]


def test_all_threads_are_bound_and_plain_programs_notice_nothing():
    script = """
bound, seen = threading.Event(), {}
early = threading.Thread(target=lambda: bound.wait() and seen.update(early=call(numbers["unshare"], 0)))
early.start()
seccomp.install(seccomp.build_filter(network=True))
bound.set(); early.join()
thread = threading.Thread(target=seen.setdefault, args=("thread", 1)); thread.start(); thread.join()
pid = os.fork()
if not pid: os._exit(7)
seen["fork"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
seen["status"] = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
with multiprocessing.get_context("fork").Pool(2) as pool: seen["pool"] = pool.map(abs, [-1, -2])
one, two = socket.socketpair(); one.send(b"x"); seen["pair"] = two.recv(9).decode()
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()): seen["tcp"] = 1
sleeper = subprocess.Popen(["sleep", "100"]); sleeper.kill(); seen["killed"] = sleeper.wait()
print(json.dumps(seen))
"""
    seen = child(script)
    status = dict(line.split(":\t", 1) for line in seen.pop("status").splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert seen.pop("early") == errno.EPERM
    assert seen == {"thread": 1, "fork": 7, "pool": [1, 2], "pair": "x", "tcp": 1, "killed": -signal.SIGKILL}


def test_the_kernel_refuses_sockets_and_signals_to_others():
    script = """
other = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
seccomp.install(seccomp.build_filter(network=False, own_signals_only=True))
refused = [tried(socket.socket, family) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)]
refused += [tried(os.kill, pid, 0) for pid in (other.pid, os.getppid(), 0, -1)] + [tried(os.pidfd_open, other.pid)]
allowed = [tried(socket.socket, socket.AF_UNIX), tried(socket.socketpair), tried(os.kill, os.getpid(), 0)]
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
signal.raise_signal(signal.SIGUSR1); signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
print(json.dumps([refused, allowed, len(got)]))
other.communicate()
"""
    assert child(script) == [[errno.EPERM] * 8, [0] * 3, 2]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="these calling conventions are of x86_64")
def test_the_kernel_kills_foreign_calls():
    script = """
seccomp.install(seccomp.build_filter(network=True))
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid of i386); int 0x80; ret
getpid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
ends = []
for foreign in (getpid, lambda: call(0x40000000 + 39)):
    pid = os.fork()
    if not pid: foreign(), os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(ends))
"""
    assert child(script) == [-signal.SIGSYS] * 2


def test_other_machines_are_named(monkeypatch):
    monkeypatch.setattr(seccomp.os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(NotImplementedError, match="riscv64"):
        seccomp.build_filter(network=True)
