"""Tools that break what applies to every program, one thing each, and what the bench says of them."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from turngym.tests.verify.sandbox import idle, proc, trial
from turngym.tests.verify.sandbox.corpus import Program, Promise
from turngym.tests.verify.sandbox.predicates import FRESH_STATE
from turngym.tests.verify.sandbox.surroundings import Surroundings
from turngym.tests.verify.sandbox.trial import Bench
from turngym.tools import Status, ToolFailure, ToolResult

HARMLESS = {**dict.fromkeys(idle.WARM, "42\n"), FRESH_STATE: "fresh\n"}


class Fake:
    """Answers harmless calls, and does `harm` in any other; what it made is in `made`."""

    def __init__(self, harm=lambda code: None):
        self.harm, self.made, self.resets = harm, [], 0

    def call(self, arguments):
        code = arguments["code"]
        if code in HARMLESS:
            return ToolResult(Status.OK, HARMLESS[code])
        result = self.harm(code)
        return result if isinstance(result, ToolResult) else ToolResult(Status.OK, "done\n")

    def reset(self):
        self.resets += 1

    def close(self):
        pass


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(trial, "QUIET", 0.0)
    monkeypatch.setattr(idle, "STEADY", 0.0)
    monkeypatch.setattr(idle, "SETTLE", 0.2)
    # Others write to the machine's shared places at any time, which is a reason not to count what is new there.
    monkeypatch.setattr(
        Surroundings, "busy_places", lambda self: set(map(str, self.folder.iterdir()))
    )


@pytest.fixture(scope="module")
def world():
    with proc.adopting(), Surroundings(0) as world:
        yield world


@pytest.fixture
def tried(world):
    def run(
        harm=lambda code: None,
        *promises,
        session=False,
        requires=None,
        code="attack()",
        timeout=3.0,
    ):
        bench = Bench(Fake(harm), world, timeout, 256, session)
        return bench.try_out(Program("program", "cpu", code, tuple(promises), requires))

    return run


def test_processes_that_are_left_are_seen_once(world):
    kept = []
    bench = Bench(
        Fake(
            lambda code: kept.append(subprocess.Popen(["sleep", "60"])) if "leave" in code else None
        ),
        world,
        3,
        256,
    )
    leave, calm = (Program(code, "proc", code, ()) for code in ("leave()", "calm()"))
    assert any("processes are left" in fault for fault in bench.try_out(leave))
    assert bench.try_out(calm) == []
    kept[0].kill()
    kept[0].wait()


def test_a_process_that_comes_with_the_next_call_is_seen(world):
    kept = []

    class Later(Fake):
        def call(self, arguments):
            if self.made and not kept:
                kept.append(subprocess.Popen(["sleep", "60"]))
            return super().call(arguments)

    bench = Bench(tool := Later(), world, 3.0, 256)
    tool.harm = tool.made.append
    assert any(
        "processes are left" in fault
        for fault in bench.try_out(Program("later", "proc", "later()", ()))
    )
    kept[0].kill()
    kept[0].wait()


def test_a_zombie_is_seen_and_reaped(tried):
    made = []

    def harm(code):
        made.append(process := subprocess.Popen(["true"]))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert "1 zombies" in tried(harm)
    assert made[0].pid not in proc.descendants()
    made[0].wait()


def test_a_late_answer_is_seen(tried, monkeypatch):
    monkeypatch.setattr(trial, "GRACE", -3.0)
    assert any("returned after" in fault for fault in tried())


@pytest.mark.parametrize("error", [ValueError("bad"), ToolFailure("no server")])
def test_what_the_tool_raises_is_a_fault(tried, error):
    def harm(code):
        raise error

    assert tried(harm) == [
        f"{'raised ' * isinstance(error, ValueError)}{type(error).__name__}: {error}"
    ]


def test_a_call_that_never_answers_is_given_up(tried, monkeypatch):
    import threading

    monkeypatch.setattr(trial, "LOST", -2.9)
    stop = threading.Event()
    assert any("Overdue" in fault for fault in tried(lambda code: stop.wait()))
    stop.set()


def test_another_answer_of_the_next_call_is_seen(tried, monkeypatch):
    def harm(code):
        monkeypatch.setitem(HARMLESS, "print(6*7)", "43\n")

    assert any("the next call answers" in fault for fault in tried(harm))


def test_changes_of_this_process_are_seen(tried):
    faults = tried(
        lambda code: (
            signal.siginterrupt(signal.SIGUSR2, True) or os.environ.update(TURNGYM_TRIAL="1")
        )
    )
    del os.environ["TURNGYM_TRIAL"]
    assert "environment of this process changed" in faults


def test_a_descriptor_that_is_left_open_is_seen(tried):
    ends = []
    assert any("descriptors" in fault for fault in tried(lambda code: ends.extend(os.pipe())))
    for end in ends:
        os.close(end)


def test_a_temporary_file_that_is_left_is_seen(tried, world):
    assert any(
        "temporary files" in fault
        for fault in tried(lambda code: (world.scratch / "left").write_text("x"))
    )
    world.clear()


def test_a_file_outside_is_seen(tried, world):
    faults = tried(lambda code: (world.outside / "new").write_text("x"))
    (world.outside / "new").unlink()
    assert any("outside/new" in fault for fault in faults)


def test_a_file_in_a_shared_place_counts_where_the_program_names_it(tried, world):
    place = world.folder / "named-by-it"
    assert any(
        "named-by-it" in fault
        for fault in tried(lambda code: place.write_text("x"), code="open('named-by-it')")
    )
    place.unlink()


def test_a_file_in_a_shared_place_counts_where_it_comes_again(tried, world):
    made = []

    def harm(code):
        made.append(world.folder / f"random-{len(made)}")
        made[-1].write_text("x")

    assert any("random-2" in fault for fault in tried(harm)) and len(made) == 3
    assert tried(lambda code: len(made) == 3 and harm(code)) == [] and len(made) == 4
    for path in made:
        path.unlink()


def test_a_file_in_a_shared_place_does_not_count_while_others_are_at_work(
    tried, world, monkeypatch
):
    made = []

    def write(*_):
        made.append(world.folder / f"of-others-{len(made)}")
        made[-1].write_text("x")

    monkeypatch.setattr(trial.time, "sleep", write)
    assert tried(write) == []
    for path in made:
        path.unlink()


def test_a_file_in_a_shared_place_does_not_count_where_it_goes_again(tried, world):
    made = []

    def harm(code):
        for path in made:
            path.unlink()
        made[:] = [world.folder / f"passing-{len(code)}-{os.urandom(4).hex()}"]
        made[0].write_text("x")

    assert tried(harm) == []
    made[0].unlink()


def test_a_listener_that_was_reached_is_seen(tried, world):
    def harm(code):
        socket.create_connection(("127.0.0.1", int(world.values["HOST_PORT"]))).close()

    assert tried(harm) == ["reached TCP"]


def test_a_secret_is_seen(tried, world):
    assert tried(lambda code: ToolResult(Status.OK, world.secrets[2])) == [
        "a secret is in the observation"
    ]


def test_memory_of_this_process_is_seen(tried):
    assert any(
        "of this process" in fault for fault in tried(lambda code: bytearray(b"x" * 2**26) and None)
    )


def test_what_cannot_be_measured_is_found_out(world):
    ends = []

    def work(code):
        if "fork" in code:
            ends.append(
                subprocess.run([sys.executable, "-c", "import time; time.sleep(0.3)"], check=True)
            )

    bench = Bench(Fake(work), world, 3.0, 256)
    bench.calibrate()
    assert ends and bench.blind >= {"memory", "disk", "inodes", "processes"}
    faults = bench.try_out(Program("caps", "mem", "", (Promise("disk_cap"),)))
    assert faults == ["the memory could not be measured", "the disk could not be measured"]


def test_a_module_that_is_absent_is_named(tried):
    faults = tried(
        lambda code: ToolResult(Status.ERROR, "") if code == "import nothing" else None,
        requires="nothing",
    )
    assert faults == ["needs nothing, which the tool's interpreter lacks"]


def test_a_session_is_reset_and_need_not_answer_as_a_program(tried, world):
    promises = (
        Promise("status", "timeout"),
        Promise("out_has", "never"),
        Promise("out_not", "done"),
    )
    assert len(tried(lambda code: None, *promises)) == 3
    assert tried(lambda code: None, *promises, session=True) == ["'done' is in 'done\\n'"]
    tool = Fake()
    Bench(tool, world, 3.0, 256, session=True).call("print(6*7)")
    assert tool.resets == len(idle.WARM) + 2


def test_a_boundary_that_does_not_stand_is_told(world):
    for result, stands in (("found []\n", True), ("found ['reads']\n", False), ("", False)):
        bench = Bench(
            Fake(lambda code, result=result: ToolResult(Status.OK, result)), world, 3.0, 256
        )
        assert (bench.unbound() == "") is stands
