"""What looking at a run costs: writing the page of a run, and following a run that goes on.

    python benchmarks/report.py [RUN] [--seconds 60] [--quick]
    python benchmarks/report.py --trainings 3 [--steps 12]

Without RUN it writes one of 200 steps itself. Writing: CPU seconds and largest memory of a process that does nothing
else. Following: metrics get a line a second, and a client asks the server as the page does; printed is the CPU that the
server took, as a share of the time. The drawing of the browser is not in it.

With `--trainings` the same short run is trained in turn quietly, with live progress, with TensorBoard where that is
installed, and followed by a live page; printed is what each adds to the CPU of the first, logger and server included.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib.util
import json
import os
import pty
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from turngym.tests.support.runs import write_run


def main() -> None:
    """Print both costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trainings", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        if args.trainings:
            return interleaved(base, args.trainings, args.steps)
        run = args.run or write_run(base / "run", 20 if args.quick else 200, tasks=8, group=8)
        writing(run, base / "page.html")
        following(run, base / "followed", 6.0 if args.quick else args.seconds)


def writing(run: Path, out: Path) -> None:
    """Print what writing the page takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "turngym", "view", str(run), "--out", str(out)], check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    steps = len((run / "metrics.jsonl").read_text().splitlines()) - 1
    print(
        f"page of {steps} steps: {cpu:.2f} s of CPU with the start of Python, {after.ru_maxrss / 1024:.0f} MiB, ",
        end="",
    )
    print(f"{out.stat().st_size / 1e6:.2f} MB")


def following(run: Path, copy: Path, seconds: float) -> None:
    """Print how much of a processor following takes, while a run writes a step a second."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    shutil.copytree(run, copy)
    (copy / "metrics.jsonl").write_text("".join(lines[: len(lines) // 2]))
    (copy / "summary.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "turngym", "view", str(copy), "--live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[0]
        try:
            seen, step, asked = ask(url, 0, "")
            begun, cpu, due, answers = time.monotonic(), used(server.pid), 0.0, 0
            rest = iter(lines[len(lines) // 2 :])
            while time.monotonic() - begun < seconds:
                with (copy / "metrics.jsonl").open("a") as file:
                    file.write(next(rest, ""))
                if time.monotonic() >= due:
                    seen, step, wait = ask(url, seen, step)
                    due, answers = time.monotonic() + wait, answers + 1
                time.sleep(1)
            share = (used(server.pid) - cpu) / (time.monotonic() - begun)
        finally:
            server.terminate()
    print(
        f"following a step a second for {seconds:.0f} s: {100 * share:.2f} % of a processor, {answers} answers",
        end="",
    )
    print(f", the whole page in one of {asked:.1f} s waiting after it")


def interleaved(base: Path, rounds: int, steps: int) -> None:
    """Print what watching a training adds to its CPU, in rounds that train in each way."""
    spent: dict[str, list[float]] = {"quiet": [], "progress": [], "live": []}
    if importlib.util.find_spec("tensorboard"):
        spent["tensorboard"] = []
    for number in range(rounds):
        for way, seconds in spent.items():
            seconds.append(trained(base / f"{way}-{number}", way, steps))
            print(f"round {number + 1}, {way}: {seconds[-1]:.2f} s of CPU", flush=True)
    for way in list(spent)[1:]:
        ratios = sorted(
            found / alone for found, alone in zip(spent[way], spent["quiet"], strict=True)
        )
        print(
            f"{way}: {100 * (sum(spent[way]) / sum(spent['quiet']) - 1):+.1f} % CPU in {rounds} rounds, ",
            end="",
        )
        print(f"from {100 * (ratios[0] - 1):+.1f} to {100 * (ratios[-1] - 1):+.1f} %")


def trained(out: Path, way: str, steps: int) -> float:
    """Return the CPU seconds of a training, and of a server that follows it from its first line of metrics on."""
    command = [
        sys.executable,
        "-m",
        "turngym",
        "train",
        "--steps",
        str(steps),
        "--eval-every",
        str(steps),
    ]
    command += ["--eval-tasks", "16", "--out", str(out)]
    command += {"quiet": ["--quiet"], "tensorboard": ["--quiet", "--log", "tensorboard"]}.get(
        way, []
    )
    master, terminal = pty.openpty() if way == "progress" else (-1, subprocess.DEVNULL)
    run = subprocess.Popen(command, stdout=terminal, stderr=subprocess.DEVNULL)
    if way == "progress":
        os.close(terminal)
        threading.Thread(target=drained, args=(master,), daemon=True).start()
    followed = watched(run, out) if way == "live" else 0.0
    _, status, cost = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        raise SystemExit(f"the training {' '.join(command)} ended with {run.returncode}")
    return cost.ru_utime + cost.ru_stime + followed


def drained(terminal: int) -> None:
    """Read what is printed in a terminal until it is closed."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


def watched(run: subprocess.Popen[bytes], out: Path) -> float:
    """Ask for what is new until a training ends, as the page does; return the CPU seconds of the server."""
    while not (out / "metrics.jsonl").exists() and not ended(run):
        time.sleep(0.1)
    command = [sys.executable, "-m", "turngym", "view", str(out), "--live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().split()[0]
            begun = used(server.pid)  # how long the command takes to start is no following
            seen, step = 0, ""
            while not ended(run):
                seen, step, wait = ask(url, seen, step)
                until = time.monotonic() + wait
                while time.monotonic() < until and not ended(run):
                    time.sleep(0.1)
            return used(server.pid) - begun
        finally:
            server.terminate()


def ended(run: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended, and leave its costs to be asked for."""
    return os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def ask(url: str, seen: int, step: str) -> tuple[int, str, float]:
    """Ask for what is new, as the page does; return the version, the last step and how long to wait (seconds)."""
    with urllib.request.urlopen(f"{url}news?seen={seen}&steps={step}") as answer:
        body = answer.read()
    data = json.loads(
        gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body
    )
    runs = data.get("runs")
    last = [run["steps"][-1] if run["steps"] else step for run in runs] if runs else step
    return data.get("seen", seen), str(last[0]) if runs else step, data["wait"]


def used(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
