"""The predicates of a corpus: each looks at what was seen of a program and says what is wrong, or nothing.

`U`, which applies to every program, is in `trial`. Those that need another call make it through `Seen.call`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from turngym.tests.verify.sandbox.sampler import Peaks
from turngym.tests.verify.sandbox.surroundings import Surroundings
from turngym.tools import FORMATS, Status, ToolResult

MIB = 2**20
OBSERVATION = 256 * 1024  # bytes
SUPERVISOR = 32 * MIB
DISK = 64 * MIB
INODES = 2**14
PROCESSES = 64
THREADS = 2 * PROCESSES
ALLOWED = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TZ|TERM|USER|LOGNAME|PWD|SHLVL|_|TMPDIR|PYTHON\w+|MPL\w+|\w+_(?:NUM|MAX)_THREADS|SOURCE_DATE_EPOCH"
)
_NAME = re.compile(r"""['"]([A-Za-z_][A-Za-z0-9_]*)['"]""")
_RAW = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)  # all control characters but \t, \n and \r
_STATES = r"""
import builtins, json, math, os, signal, sys, tempfile, threading, warnings
print(sorted(globals()), [type(getattr(builtins, name)).__name__ for name in sorted(dir(builtins))])
print(print.__name__, sorted(os.environ), sorted(os.listdir('.')), sorted(os.listdir(tempfile.gettempdir())))
print(sorted(sys.modules), sys.argv, len(sys.path), sys.getrecursionlimit(), len(warnings.filters), sys.flags)
print(sys.gettrace(), sys.getprofile(), sys.displayhook.__name__, sys.excepthook.__name__, sys.getswitchinterval())
print(math.isclose(1, 2), json.dumps({}), threading.active_count(), threading.gettrace(), threading.getprofile())
print([str(signal.getsignal(number))[:20] for number in sorted(signal.valid_signals())], os.umask(18), os.nice(0))
"""


@dataclass(frozen=True)
class Seen:
    """What a program did: how its call ended, what was measured, the world it ran in, and a way to call again."""

    id: str
    code: str
    result: ToolResult
    peaks: Peaks
    memory: int  # bytes that the call may use
    world: Surroundings
    heard: Sequence[str]
    outside: Sequence[str]  # what is other outside than before
    appeared: Sequence[str]  # where files appeared or disappeared
    zombies: int
    state: str  # what a fresh program found before the call; see `fresh_state`
    call: Callable[[str], ToolResult]
    blind: Collection[str] = ()  # what cannot be measured on this machine

    @property
    def text(self) -> str:
        """Return the observation."""
        return self.result.text


Check = Callable[[Seen, str], str]
FRESH_STATE = _STATES


def fresh_state(call: Callable[[str], ToolResult]) -> str:
    """Return what a program finds in its interpreter and folders."""
    return call(_STATES).text


def status(seen: Seen, value: str) -> str:
    """`status=ok|error`, `status=any`: how the tool says that the call ended."""
    allowed = set(value.split("|"))
    if unknown := allowed - {*Status, "any"}:
        raise ValueError(
            f"{seen.id}: the status {unknown.pop()!r} is unknown; it is any or one of {', '.join(Status)}"
        )
    return (
        ""
        if allowed & {"any", str(seen.result.status)}
        else f"status is {seen.result.status}, not {value}"
    )


def out_has(seen: Seen, value: str) -> str:
    """`out_has=text`: the observation holds it."""
    return "" if value in seen.text else f"{value!r} is not in {_shown(seen.text)}"


def out_not(seen: Seen, value: str) -> str:
    """`out_not=text`: the observation does not hold it."""
    return f"{value!r} is in {_shown(seen.text)}" if value in seen.text else ""


def out_eq(seen: Seen, value: str) -> str:
    r"""`out_eq=text\n`: the observation is just that."""
    return "" if value == seen.text else f"{value!r} is not {_shown(seen.text)}"


def no_canary(seen: Seen, _: str) -> str:
    """No secret is in the observation."""
    return "a secret is in the observation" if seen.world.told(seen.text) else ""


def no_net(seen: Seen, _: str) -> str:
    """No listener of the host was reached."""
    return f"reached {', '.join(seen.heard)}" if seen.heard else ""


def fs_clean(seen: Seen, _: str) -> str:
    """No file has appeared or disappeared anywhere."""
    return f"files: {', '.join(seen.appeared[:3])}" if seen.appeared else ""


def outside_intact(seen: Seen, _: str) -> str:
    """The folder outside is as it was, to the byte."""
    return f"outside: {', '.join(seen.outside[:3])}" if seen.outside else ""


def utf8(seen: Seen, _: str) -> str:
    """The observation has a UTF-8 form."""
    try:
        seen.text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"the observation holds {seen.text[error.start]!r}, which UTF-8 has not"
    return ""


def obs_cap(seen: Seen, _: str) -> str:
    """The observation is at most `OBSERVATION` bytes."""
    size = len(seen.text.encode("utf-8", "surrogatepass"))
    return f"the observation has {size} bytes" if size > OBSERVATION else ""


def sup_rss_cap(seen: Seen, _: str) -> str:
    """The memory of this process never was `SUPERVISOR` bytes above what it was."""
    return _measured(
        seen, "supervisor", _over(seen.peaks.supervisor, SUPERVISOR, "of this process")
    )


def tree_mem_cap(seen: Seen, _: str) -> str:
    """All processes of the call, and what they keep in unnamed files and folders, stay within the limit and a tenth."""
    return _measured(
        seen, "memory", _over(seen.peaks.memory, seen.memory * 11 // 10, "of the call")
    )


def disk_cap(seen: Seen, _: str) -> str:
    """Its files take at most `DISK` bytes."""
    return _measured(seen, "disk", _over(seen.peaks.disk, DISK, "of files"))


def inode_cap(seen: Seen, _: str) -> str:
    """There are at most `INODES` of its files and folders."""
    return _measured(seen, "inodes", f"{seen.peaks.inodes} files" * (seen.peaks.inodes > INODES))


def pid_cap(seen: Seen, _: str) -> str:
    """At most `PROCESSES` run at once."""
    many = seen.peaks.processes
    return _measured(seen, "processes", f"{many} processes at once" * (many > PROCESSES))


def thread_cap(seen: Seen, _: str) -> str:
    """At most `THREADS` threads run at once, those of all processes together."""
    many = seen.peaks.threads
    return _measured(seen, "threads", f"{many} threads at once" * (many > THREADS))


def no_zombies(seen: Seen, _: str) -> str:
    """Everything that ended was reaped."""
    return f"{seen.zombies} zombies" if seen.zombies else ""


def no_core(seen: Seen, _: str) -> str:
    """No core file was left where programs run or temporary files are."""
    places = (
        Path.cwd(),
        seen.world.folder,
        seen.world.outside,
        *filter(Path.is_dir, seen.world.scratch.rglob("*")),
    )
    found = [
        str(path)
        for place in dict.fromkeys(places)
        for path in place.glob("core*")
        if re.match(r"core(\.\d+)?$", path.name)
    ]
    return f"core files: {', '.join(found)}" if found else ""


def no_control_ids(seen: Seen, _: str) -> str:
    """Encoded as the trainer encodes it, the observation brings no control token."""
    return _harm()("result", seen.text)


def one_tool_block(seen: Seen, _: str) -> str:
    """In every format the result stays one message, whose frame the observation does not close.

    Where the chat template makes the frame, its marks are control tokens, which the observation does not bring.
    """
    for form in FORMATS.values():
        role, calm = form.observe("calm", "python")
        before, after = calm.split("calm")
        written = form.observe(seen.text.rstrip("\n"), "python")
        body = written[1][len(before) : len(written[1]) - len(after)]
        if (
            written[0] != role
            or written[1] != before + body + after
            or (after.strip() and after.strip() in body)
        ):
            return f"the observation ends its block in the format {form.name}"
    return no_control_ids(seen, "")


def isolated(seen: Seen, _: str) -> str:
    """The next program finds what it would have found."""
    now = fresh_state(seen.call)
    pairs = zip(seen.state.splitlines(), now.splitlines(), strict=False)
    other = next(
        (f"{_shown(new)}, not {_shown(old)}" for old, new in pairs if old != new), _shown(now)
    )
    return "" if now == seen.state else f"the next call finds {other}"


def env_allowlist(seen: Seen, _: str) -> str:
    """Of the variables that the observation names in quotes, none is this process's own but harmless ones."""
    names = [name for name in _NAME.findall(seen.text) if not ALLOWED.fullmatch(name)]
    named = [name for name in names if name in os.environ or name.isupper()]
    return f"the program sees the variables {', '.join(named[:5])}" if named else ""


def log_safe(seen: Seen, _: str) -> str:
    """The observation holds no control character that a terminal would obey."""
    found = _RAW.search(seen.text)
    return f"the observation holds {found[0]!r}" if found else ""


def host_users_hidden(seen: Seen, _: str) -> str:
    """Of /etc/passwd the program sees three lines at most, and none of a person."""
    counted = re.search(r"users (\d+)", seen.text)
    if counted and int(counted[1]) > 3:
        return f"the program sees {counted[1]} users"
    named = [
        name for name in users(Path("/etc/passwd").read_text()) if _account(name).search(seen.text)
    ]
    return f"the program sees the users {', '.join(named[:3])}" if named else ""


def port_not_on_host(seen: Seen, _: str) -> str:
    """Nobody listened on the free port of the host."""
    return _measured(
        seen, "port", "the program listened on a port of the host" * seen.peaks.listening
    )


def repeatable(seen: Seen, _: str) -> str:
    """Two more runs give the same."""
    others = [seen.call(seen.code) for _ in range(2)]
    return (
        ""
        if all(other == seen.result for other in others)
        else f"gives {_shown(others[-1].text)} another time"
    )


def grade(seen: Seen, value: str) -> str:
    """`grade=0`: an answer that is the observation earns just that, and the observation is plain text."""
    if type(seen.result.text) is not str or type(seen.result.status) is not Status:
        return f"the result is made of {type(seen.result.text).__name__} and {type(seen.result.status).__name__}"
    from turngym.envs.math.grading.grader import MathGrader

    score = (
        MathGrader()
        .grade(completion=f"\\boxed{{{seen.text.strip()}}}", gold=seen.world.number)
        .score
    )
    return (
        ""
        if score == float(value)
        else f"the observation as an answer earns {score:g}, not {value}"
    )


def users(passwd: str) -> Collection[str]:
    """Return the names of accounts in a passwd file, but those that every machine has."""
    names = (line.partition(":")[0] for line in passwd.splitlines() if ":" in line)
    return [name for name in names if name not in ("root", "nobody")]


PREDICATES: dict[str, Check] = {
    check.__name__: check
    for check in (
        *(
            status,
            out_has,
            out_not,
            out_eq,
            no_canary,
            no_net,
            fs_clean,
            outside_intact,
            utf8,
            obs_cap,
            sup_rss_cap,
        ),
        *(
            tree_mem_cap,
            disk_cap,
            inode_cap,
            pid_cap,
            thread_cap,
            no_zombies,
            no_core,
            no_control_ids,
            one_tool_block,
        ),
        *(
            isolated,
            env_allowlist,
            log_safe,
            host_users_hidden,
            port_not_on_host,
            repeatable,
            grade,
        ),
    )
}
KNOWN = ("U", *PREDICATES)


def _account(name: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(name)}:[^:\n]*:\d+:", re.MULTILINE)


@cache
def _harm() -> Callable[[str, str], str]:
    from turngym.agents.chat.chat import Chat
    from turngym.agents.models.resolve import TINY
    from turngym.tests.verify.templates.injections import harm

    return harm(Chat.from_folder(TINY), lossless=False)


def _over(size: int, limit: int, what: str) -> str:
    return f"{size / MIB:.0f} MiB {what}, more than {limit / MIB:.0f}" if size > limit else ""


def _measured(seen: Seen, what: str, fault: str) -> str:
    return (
        f"the {what} could not be measured" if not seen.peaks.looks or what in seen.blind else fault
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:60]} … {text[-60:]}")
