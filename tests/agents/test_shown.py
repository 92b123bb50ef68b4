"""What a command shows of work that goes on, in a terminal and elsewhere, and `--quiet`."""

import logging
import threading
import time
from io import StringIO

import gymnasium
import pytest
from rich.console import Console
from rich.table import Table

from turngym import __main__ as cli
from turngym.agents.cli import terminal
from turngym.agents.cli.terminal import clock, line, rows, showing
from turngym.envs import Reply, StopReason, TextEnv
from turngym.tools import progress as work_of
from turngym.tools.progress import Progress, current_work, track


@pytest.fixture
def now(monkeypatch):
    """A clock that stands still until it is set."""
    seconds = [1000.0]
    monkeypatch.setattr(work_of.time, "monotonic", lambda: seconds[0])
    return seconds


def test_work_is_listed_from_the_outermost_to_the_innermost_and_gone_when_it_ends():
    with (
        pytest.raises(ValueError, match="x"),
        Progress("step", 3) as outer,
        Progress("rollout") as inner,
    ):
        assert current_work() == (outer, inner)
        raise ValueError("x")
    assert current_work() == ()


def test_what_is_left_goes_by_the_parts_since_the_first_that_was_counted(now):
    with Progress("episodes", 30) as work:
        now[0] += 100  # loading
        work.reach(10)  # that were over before
        assert work.seconds_left is None
        now[0] += 5
        work.advance(5, tokens=2100)
        assert (work.seconds_left, work.seconds, line([work])) == (
            15,
            105,
            "episodes 15/30  1:45, 0:15 left  20 tokens/s",
        )
        work.reach(99)
        assert work.seconds_left == 0


def test_work_without_a_known_end_has_no_time_left(now):
    with Progress("loading", text="a model") as work:
        now[0] += 61
        work.advance()
        now[0] += 1
        work.advance()
        assert work.seconds_left is None and line([work]) == "loading  a model  1:02"


def test_track_counts_what_is_over_also_when_it_is_left_early():
    seen = []
    for item in (items := track("abc", "letters", 3)):
        seen.append((item, current_work()[0].done))
        if item == "b":
            break
    items.close()
    assert seen == [("a", 0), ("b", 1)] and current_work() == ()


def test_durations():
    assert [clock(seconds) for seconds in (0.4, 59.6, 3599, 3600, 90061)] == [
        "0:00",
        "1:00",
        "59:59",
        "1:00:00",
        "25:01:01",
    ]


def printed(console, works):
    console.print(rows(works))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 160])
def test_each_work_is_one_row_of_a_terminal_whatever_its_width_and_text(width):
    console = Console(file=StringIO(), width=width)
    hostile = "[red]x[/red] " + "very long " * 30
    with Progress("step", 80, hostile) as outer, Progress("paths [b]", 64) as inner:
        outer.reach(12)
        inner.reach(40)
        lines = printed(console, [outer, inner]).splitlines()
    assert len(lines) == 2 and all(len(row) <= width for row in lines)
    assert "step 12/80" in lines[0] and "paths [b] 40/64" in lines[1]
    assert width == 40 or "[red]x" in lines[0]


def test_a_terminal_has_a_live_line_that_is_gone_in_the_end():
    console = Console(file=StringIO(), force_terminal=True, width=80)
    with showing(console), Progress("testing", 2) as work:
        work.reach(1)
        console.print("a result")
        while (
            "testing 1/2" not in console.file.getvalue()
        ):  # the test's own timeout ends a wait in vain
            time.sleep(0.01)
    text = console.file.getvalue()
    assert text.rstrip("\r").endswith("\x1b[2K\x1b[?25h")  # the line was erased, the cursor is back


def test_elsewhere_a_line_comes_now_and_then_and_from_any_thread(monkeypatch):
    monkeypatch.setattr(terminal, "EVERY", 0.01)
    monkeypatch.setattr(terminal, "GROWTH", 0.0)
    console, over = Console(file=StringIO(), width=20), threading.Event()

    def work():
        with Progress("a work with a name that is longer than the console"):
            over.wait()

    with showing(console):
        thread = threading.Thread(target=work)
        thread.start()
        while (
            "longer than" not in console.file.getvalue()
        ):  # the test's own timeout ends a wait in vain
            time.sleep(0.01)
        over.set()
        thread.join()
    assert (
        console.file.getvalue().splitlines()[0]
        == "a work with a name that is longer than the console  0:00"
    )


def test_a_quiet_console_shows_nothing_and_needs_no_thread():
    console, before = Console(file=StringIO(), quiet=True), threading.active_count()
    with showing(console), Progress("testing"):
        assert threading.active_count() == before
    assert console.file.getvalue() == ""


ORDERS = {
    "a colour": "\x1b[31m",
    "a title": "\x1b]0;own\x07",
    "one byte that begins an order": "\x9b2J",
    "the string terminator": "\x9c",
    "letters from right to left": "\u202e",
    "an isolated direction": "\u2066",
    "back to the start of the line": "\r",
    "a backspace": "\b",
    "delete": "\x7f",
    "half a character": "\udc80",
    "another line end": "\u2028",
    "nul": "\0",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("form", ["text", "marked up", "table", "styled", "error", "warning"])
def test_no_text_gives_the_terminal_an_order(order, form, capsys):
    text, said = f"a{order}b", StringIO()
    console = terminal.SafeConsole(file=said, width=200)
    if form == "table":
        console.print(table := Table("one"))
        table.add_row(text)
        console.print(table)
    elif form == "error":
        with pytest.raises(SystemExit):
            terminal.refuse(text)
        said.write(capsys.readouterr().err)
    elif form == "warning":
        record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "read %s", (text,), None)
        said.write(terminal.PlainFormatter().format(record))
    else:
        more = {
            "text": {"markup": False, "soft_wrap": True},
            "marked up": {},
            "styled": {"style": "yellow"},
        }[form]
        console.print(text, **more)
    assert order not in said.getvalue() and "a" in said.getvalue() and "b" in said.getvalue()
    assert not any(sign in said.getvalue() for sign in "\x1b\x07\x9b\x9c\u202e\u2066\u2028\0\x7f")


def test_a_terminal_still_has_colours_of_its_own():
    console = terminal.SafeConsole(
        file=StringIO(), force_terminal=True, color_system="standard", width=40, highlight=False
    )
    console.print("[red]x[/red]\x1b[32my")
    assert console.file.getvalue() == "\x1b[31mx\x1b[0m\\x1b[32my\n"


def test_an_error_is_one_line(capsys):
    with pytest.raises(SystemExit):
        terminal.refuse("no file\n\nerror: all is well\n")
    assert capsys.readouterr().err == "error: no file error: all is well\n"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 8 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: 8 bytes"
        ),
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object"),
    ],
    ids=str,
)
def test_a_lack_of_memory_is_one_line(error, capsys):
    with pytest.raises(SystemExit) as left, terminal.mistakes():
        raise error
    said = capsys.readouterr().err
    assert (
        left.value.code == 2
        and said.startswith("error: there is not enough memory")
        and said.count("\n") == 1
    )


class Whole(TextEnv):
    """An environment with tasks and no splits: an evaluation says how it chose them."""

    tasks = range(60)

    def on_reset(self, rng, options):
        return "Say yes."

    def on_step(self, text):
        return Reply("", 1.0, StopReason.ANSWERED)

    def gold(self):
        return ["yes"]


def test_a_quiet_command_prints_its_results_and_errors(capsys, monkeypatch):
    monkeypatch.delitem(gymnasium.registry, "tests/Whole-v0", raising=False)  # it is put back
    gymnasium.register("tests/Whole-v0", entry_point=Whole)
    outputs = []
    for more in ([], ["--quiet"]):
        with pytest.raises(SystemExit) as left:
            cli.main(["eval", "tests/Whole-v0", "--policy", "expert", "--episodes", "1", *more])
        assert left.value.code == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0].startswith(
        "evaluating expert on tests/Whole-v0\ntests/Whole-v0 has no splits"
    ) and outputs[1].startswith(" what ")
    assert outputs[0].endswith(outputs[1])
    with pytest.raises(SystemExit) as left:
        cli.main(["eval", "turngym/Mth-v0", "--quiet"])
    assert left.value.code == 2 and "did you mean" in capsys.readouterr().err
