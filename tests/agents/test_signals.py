"""Signals as exceptions, sent by this process to itself."""

import asyncio
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngym.agents.cli import terminal
from turngym.agents.cli.terminal import Interrupted, endings, mistakes, shield

BOTH = [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]


def send(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "status"), BOTH)
def test_a_signal_strikes_at_once_and_becomes_the_exit_status(number, status):
    handlers, hook = [signal.getsignal(number) for number, _ in BOTH], sys.unraisablehook
    with pytest.raises(SystemExit) as left, endings():
        with pytest.raises(
            Interrupted, match=f"interrupted by {signal.Signals(number).name}"
        ) as struck:
            send(number)
        raise struck.value
    assert left.value.code == status
    assert [
        signal.getsignal(number) for number, _ in BOTH
    ] == handlers and sys.unraisablehook is hook


@pytest.mark.parametrize(("number", "status"), BOTH)
def test_a_signal_that_is_ignored_is_taken_all_the_same_but_for_that_of_nohup(number, status):
    """A shell's background jobs begin with SIGINT and SIGQUIT ignored, and `nohup` ignores SIGHUP."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        if number == signal.SIGHUP:
            with endings():
                send(number)
        else:
            with pytest.raises(SystemExit) as left, endings():
                send(number)
            assert left.value.code == status
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("error", [ImportError("numpy was not initialised"), RuntimeError("lost")])
def test_a_signal_that_something_took_for_an_error_is_still_one(error):
    with pytest.raises(SystemExit) as left, endings(), mistakes():
        try:
            send(signal.SIGTERM)
        except KeyboardInterrupt:
            raise error from None
    assert left.value.code == 143


def test_what_went_wrong_behind_a_signal_is_said(capsys):
    """A last checkpoint that cannot be written is no matter of the signal."""
    with pytest.raises(SystemExit) as left, endings(), mistakes():
        try:
            send(signal.SIGTERM)
        except KeyboardInterrupt:
            raise OSError(28, "No space left on device", "adapter") from None
    assert left.value.code == 2 and "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["-m", "turngym", "envs"], [f"{sysconfig.get_path('scripts')}/turngym", "envs"]]
)
@pytest.mark.parametrize(
    "module", ["turngym.envs.text_env", "turngym.training.methods", "gymnasium"]
)
def test_ctrl_c_while_modules_are_imported_is_silent(tmp_path, command, module):
    """A hook strikes at the instant at which a module is begun."""
    hook = f"""
import os, signal, sys
class Strike:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Strike())
"""
    (tmp_path / "sitecustomize.py").write_text(hook)
    if not Path(command[0]).exists() and command[0] != "-m":
        pytest.skip("the command is not installed")
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_keyboard_interrupt_of_anyone_is_one_by_ctrl_c():
    with pytest.raises(SystemExit) as left, endings():
        raise KeyboardInterrupt
    assert left.value.code == 130


def test_without_endings_ctrl_c_is_what_it_is_anywhere():
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs begin without it
    try:
        with pytest.raises(KeyboardInterrupt) as struck, shield():
            send(signal.SIGINT)
            raise AssertionError("it did not strike")
    finally:
        signal.signal(signal.SIGINT, before)
    assert type(struck.value) is KeyboardInterrupt


def test_what_is_shielded_is_done_to_the_end():
    done = []
    with pytest.raises(SystemExit), endings():
        try:
            with shield():
                with shield():
                    send()
                    done.append("inner")
                done.append("outer")
            done.append("not reached")
        except Interrupted:
            done.append("struck")
            raise
    assert done == ["inner", "outer", "struck"]


def test_an_error_under_a_shield_is_not_hidden_by_a_signal_which_strikes_at_the_next():
    done = []
    with pytest.raises(SystemExit) as left, endings():
        with pytest.raises(ValueError, match="the disk is full"), shield():
            send()
            raise ValueError("the disk is full")
        done.append("told")
        with shield():
            done.append("saved")
        done.append("not reached")
    assert done == ["told", "saved"] and left.value.code == 143


def test_a_signal_that_nothing_else_raised_is_raised_at_the_end():
    with (
        pytest.raises(SystemExit) as left,
        endings(),
        pytest.raises(ValueError, match="x"),
        shield(),
    ):
        send()
        raise ValueError("x")
    assert left.value.code == 143


def test_more_signals_change_nothing_until_patience_is_at_an_end(monkeypatch):
    left, done = [], []
    monkeypatch.setattr(os, "_exit", left.append)
    with pytest.raises(SystemExit) as stopped, endings():
        try:
            send(signal.SIGINT)
        except Interrupted:
            send(signal.SIGINT)
            send(signal.SIGTERM)
            done.append("saved")
            assert left == []
            monkeypatch.setattr(terminal, "PATIENCE", -1.0)
            with shield():
                send(signal.SIGTERM)  # a save is under way
            assert left == []
            send(signal.SIGTERM)
            assert left == [143]
            raise
    assert done == ["saved"] and stopped.value.code == 130


def test_a_generator_gets_the_signal_that_came_while_its_reader_was_busy():
    seen = []

    def numbers() -> Iterator[int]:
        try:
            for number in range(3):
                with shield():
                    yield number
        except Interrupted:
            seen.append("saved")
            raise

    with pytest.raises(SystemExit), endings():
        for number in numbers():
            send()
            seen.append(number)
    assert seen == [0, "saved"]


def test_an_event_loop_is_struck_between_its_tasks_and_each_is_cancelled_in_good_order():
    ends = []

    async def busy(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                if name == "b" and not ends:
                    send()
                    sum(range(1000))  # here it would strike
        except BaseException as error:
            await asyncio.sleep(0)
            ends.append((name, type(error)))
            raise

    async def main() -> None:
        await asyncio.gather(*(busy(name) for name in "abc"))

    with pytest.raises(SystemExit) as left, endings():
        asyncio.run(main())
    assert (
        sorted(ends) == [(name, asyncio.CancelledError) for name in "abc"]
        and left.value.code == 143
    )


def test_an_idle_event_loop_wakes_up():
    threading.Timer(0.05, send).start()
    with pytest.raises(SystemExit), endings():
        asyncio.run(asyncio.sleep(3600))


def test_a_signal_that_strikes_where_python_drops_exceptions_strikes_again():
    class Finalized:
        def __del__(self) -> None:
            send()
            time.sleep(0)  # here it strikes

    with pytest.raises(SystemExit) as left, endings():
        thing = Finalized()
        del thing
        time.sleep(30)
    assert left.value.code == 143


def test_other_dropped_exceptions_go_where_they_went(monkeypatch):
    class Finalized:
        def __del__(self) -> None:
            raise ValueError("dropped")

    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: dropped.append(str(found.exc_value)))
    with endings():
        Finalized()
    assert dropped == ["dropped"]


def test_threads_are_no_place_for_signals():
    done = []

    def work() -> None:
        with shield():
            done.append(terminal._now.shields)

    with endings():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with shield():
            done.append(terminal._now.shields)
    assert done == [0, 1]
