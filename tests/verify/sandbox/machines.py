"""Faked machines: what a tool meets on machines that lack something, made with namespaces and limits.

Each is a shell script that takes something away, proves that it is gone, and then becomes the visitor. A machine that
cannot be faked here counts as not held: nothing is known of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.sandbox import proc
from turngym.tests.verify.sandbox.machine_worker import NOT_FAKED
from turngym.tests.verify.sandbox.surroundings import Surroundings

PATIENCE = 120.0  # seconds for all that happens on a machine
NAMESPACES = ("-Urm",)
PROCESSES = ("-Urmpf", "--mount-proc", "--kill-child")
NOBODY = "65534"


@dataclass(frozen=True)
class Machine:
    """A faked machine: what `unshare` separates it by, and the script that takes away and proves.

    `user` runs it as an ordinary user where this process is root.
    """

    name: str
    unshare: tuple[str, ...]
    script: str
    user: bool = False


# What a script needs is bound over, never changed: it all ends with the namespaces. Flags that a mount has are kept.
_REMOUNT = """
flags=$(findmnt -nro OPTIONS -T /tmp | tr , '\\n' | grep -xE 'nosuid|nodev|noexec' | paste -sd, -)
mount --bind /tmp /tmp && mount -o "remount,bind,{flag}${{flags:+,$flags}}" /tmp
"""
MACHINES = (
    Machine(
        "no user namespaces",
        ("-Ur",),
        """
        echo 0 > /proc/sys/user/max_user_namespaces
        ! unshare -U true 2>/dev/null || gone
        set -- setpriv --bounding-set=-all --inh-caps=-all "$@"
        """,
    ),
    Machine(
        "masked /proc",
        PROCESSES,
        """
        mount -t tmpfs -o ro masked /proc/scsi || mount -t tmpfs -o ro masked /proc/fs
        mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
        for file in kcore keys timer_list; do test ! -e /proc/$file || mount --bind /dev/null /proc/$file; done
        ! unshare -Urmpf --mount-proc true 2>/dev/null || gone
        """,
    ),
    Machine("root", NAMESPACES, 'test "$(id -u)" = 0 || gone'),
    Machine(
        "no bwrap",
        NAMESPACES,
        """
        for place in $(echo "$PATH:/usr/bin:/bin:/usr/local/bin" | tr : ' '); do
            test ! -e "$place/bwrap" || mount --bind /dev/null "$place/bwrap"
        done
        ! command -v bwrap >/dev/null || gone
        """,
    ),
    Machine("process 1", PROCESSES, "test $$ = 1 || gone"),
    Machine(
        "read-only /tmp",
        NAMESPACES,
        _REMOUNT.format(flag="ro") + "! touch /tmp/probe-$$ 2>/dev/null || gone",
    ),
    Machine(
        "noexec /tmp",
        NAMESPACES,
        _REMOUNT.format(flag="noexec")
        + """
        cp /bin/true /tmp/probe-$$ && ! /tmp/probe-$$ 2>/dev/null || gone
        rm -f /tmp/probe-$$
        """,
    ),
    Machine("low ulimit", (), "ulimit -n 64 && ulimit -u 48 && ulimit -s 1024 || gone", user=True),
    Machine("ordinary user", (), 'test "$(id -u)" != 0 || gone', user=True),
)
# Shows one folder to everybody through a folder that is closed to them, then becomes an ordinary user.
_OPEN = """
hold=$1 folder=$2 closed=$3; shift 3
if test -n "$closed"; then
    mount --bind "$folder" "$hold" && mount -t tmpfs -o mode=755 opened "$closed"
    mkdir -p "$folder" && mount --move "$hold" "$folder"
fi
exec setpriv --reuid={user} --regid={user} --clear-groups --bounding-set=-all --inh-caps=-all "$@"
"""


def machine_row(seed: int, level: str) -> Row:
    """Count the machines on which the tool works at the level asked for, or names why not and works as it says."""
    wrong, notes = [], []
    with proc.adopting(), Surroundings(seed) as world:
        for machine in MACHINES:
            report = visit(machine, world, level)
            if problem := judged(report):
                wrong.append(f"{machine.name}: {problem}")
            else:
                notes.append(f"{machine.name}: {report['level']}")
            world.clear()
    return Row(
        f"faked machines: {level} works, or a named error and the level it names",
        len(MACHINES) - len(wrong),
        len(MACHINES),
        "; ".join(filter(None, (first(wrong, len(MACHINES)), first(notes, len(MACHINES))))),
    )


def visit(machine: Machine, world: Surroundings, level: str) -> dict[str, Any]:
    """Return what the visitor reports of a machine."""
    if not shutil.which("unshare"):
        return {"error": "cannot be faked: there is no unshare (util-linux)"}
    script = f"gone() {{ echo '{NOT_FAKED}' >&2; exit 1; }}\n{machine.script}\nexec \"$@\"\n"
    visitor = [
        sys.executable,
        "-m",
        "turngym.tests.verify.sandbox.machine_worker",
        level,
        *map(str, (world.canary, world.values["HOST_PORT"])),
    ]
    separated = ["unshare", *machine.unshare] if machine.unshare else []
    if machine.user and os.getuid() == 0:
        separated = [
            "unshare",
            "-m",
            "bash",
            "-ec",
            _OPEN.format(user=NOBODY),
            "open",
            *_opening(world.folder),
        ]
    folder = "/tmp" if "/tmp" in machine.name else str(world.scratch)
    env = {**os.environ, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*separated, "bash", "-ec", script, "machine", *visitor]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"did not end within {PATIENCE:g} s"}
    try:
        report: dict[str, Any] = json.loads(run.stdout)
    except json.JSONDecodeError:
        said = (run.stderr or run.stdout).strip().splitlines()[-3:]
        return {"error": f"the visitor ended with {run.returncode}: {' / '.join(said)[-300:]}"}
    if files := world.new_files():
        report["error"] = f"{len(files)} temporary files are left, such as {files[-1]}"
    return report


def _opening(world: Path) -> tuple[str, str, str]:
    """Return a folder to mount on, the folder of the interpreter, and the first one above that is closed to others."""
    (world / "hold").mkdir(exist_ok=True)
    above = [
        folder
        for folder in reversed(Path(sys.base_prefix).parents)
        if not folder.stat().st_mode & 0o001
    ]
    return str(world / "hold"), sys.base_prefix, str(above[0]) if above else ""


def judged(report: dict[str, Any]) -> str:
    """Return what is wrong with a report; empty where a level works and keeps what it promises."""
    if report.get("error"):
        return str(report["error"])
    if report["answer"] != "42\n":
        return f"at level {report['level']} print(6*7) answers {report['answer']!r}"
    if report["reached"]:
        return f"at level {report['level']} a program {report['reached']}"
    if report["left"]:
        return f"after the call there are {report['left']}"
    return ""
