import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turngym.tools.subprocesses import messages
from turngym.tools.subprocesses.messages import MAX_FRAME, MAX_PACKET, read_frame, write_frame


def test_frames_keep_their_deadline_and_size():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        write_frame(ours, {"a": 1})
        assert read_frame(theirs) == {"a": 1}
        ours.sendall(b"\0\0")
        with pytest.raises(TimeoutError):
            read_frame(theirs, time.monotonic() + 0.05)
        ours.close()
        with pytest.raises(EOFError):
            read_frame(theirs)


def test_a_frame_that_claims_too_much_or_is_no_json_is_refused():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall((MAX_FRAME + 1).to_bytes(4, "big"))
        with pytest.raises(ValueError, match=f"the frame claims {MAX_FRAME + 1} bytes"):
            read_frame(theirs)
        ours.sendall(b"\0\0\0\1{")
        with pytest.raises(ValueError, match="Expecting property name"):
            read_frame(theirs)
        with pytest.raises(ValueError, match=f"at most {MAX_FRAME} are allowed"):
            write_frame(ours, "x" * MAX_FRAME)


def test_a_child_takes_the_sockets_it_was_given_and_none_is_inherited_further(monkeypatch):
    ends = [end for _ in range(2) for end in socket.socketpair()]
    for end in ends:
        end.set_inheritable(True)
    monkeypatch.setattr(sys, "argv", ["child", *(str(os.dup(end.fileno())) for end in ends[1::2])])
    first, last = messages.inherited_sockets(2)
    with first, last, ends[0], ends[1], ends[2], ends[3]:
        write_frame(last, {"a": 1})
        assert read_frame(ends[2]) == {"a": 1}
        assert not first.get_inheritable() and not last.get_inheritable()


def test_a_child_serves_with_this_file_alone_and_says_how_large_it_is():
    ours, theirs = socket.socketpair()
    code = f"import runpy; runpy.run_path({messages.__file__!r})['serve'](lambda r: {{'got': r}}, sized=True)"
    with ours, theirs:
        argv = [sys.executable, "-I", "-c", code, str(theirs.fileno())]
        child = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        theirs.close()
        write_frame(ours, 7)
        reply = read_frame(ours, time.monotonic() + 30)
    assert child.wait(30) == 0
    assert (
        reply.keys() == {"got", "memory_mb"} and reply["got"] == 7 and 1 <= reply["memory_mb"] < 500
    )


@pytest.fixture
def ends():
    ours, theirs = messages.packet_pair()
    ours.settimeout(5.0)
    yield ours, theirs
    ours.close()
    theirs.close()


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_messages_keep_their_borders_and_carry_descriptors(ends):
    ours, theirs = ends
    reading, writing = os.pipe()
    messages.send_packet(theirs, {"first": [1, "π", None]})
    messages.send_packet(theirs, {"second": True}, [reading, writing])
    assert messages.receive_packet(ours) == ({"first": [1, "π", None]}, [])
    message, fds = messages.receive_packet(ours)
    assert message == {"second": True}
    os.write(fds[1], b"through")
    assert os.read(reading, 99) == b"through"
    messages.close_descriptors(reading, writing, *fds)


def test_the_end_and_the_timeout_are_told_apart(ends):
    ours, theirs = ends
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        messages.receive_packet(ours)
    theirs.close()
    with pytest.raises(EOFError, match="the other end is gone"):
        messages.receive_packet(ours)
    with pytest.raises(BrokenPipeError):
        messages.send_packet(ours, {})


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"7",
        b"null",
        b"not json",
        b"\xff\xfe",
        b"{}" + b" " * MAX_PACKET,
        b"[" * 4000,
        b"9" * MAX_PACKET,
    ],
)
def test_what_is_no_message_is_a_value_error_and_its_descriptors_are_closed(ends, body: bytes):
    ours, theirs = ends
    before = _open_descriptors()
    socket.send_fds(theirs, [body], [0, 1])
    with pytest.raises(ValueError):
        messages.receive_packet(ours)
    assert _open_descriptors() == before
    messages.send_packet(theirs, {"next": 1})
    assert messages.receive_packet(ours)[0] == {"next": 1}


def test_more_descriptors_than_any_message_has_are_closed(ends):
    ours, theirs = ends
    before = _open_descriptors()
    socket.send_fds(theirs, [b"{}"], [0] * 50)
    with pytest.raises(ValueError, match="not a message"):
        messages.receive_packet(ours)
    assert _open_descriptors() == before


def test_descriptors_that_are_received_are_not_inherited(ends):
    ours, theirs = ends
    messages.send_packet(theirs, {}, [0])
    _, (fd,) = messages.receive_packet(ours)
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_an_exit_pipe_is_read_record_by_record():
    reading, writing = os.pipe()
    messages.write_exit_report(writing, messages.MEMORY)
    messages.write_exit_report(writing, messages.EXIT, 9)
    assert messages.read_exit_reports(reading) == [(messages.MEMORY, 0), (messages.EXIT, 9)]
    messages.write_exit_report(writing, messages.EXIT, 65280)
    os.close(writing)
    assert messages.read_exit_reports(reading) == [(messages.EXIT, 65280)]
    assert messages.read_exit_reports(reading) == []
    os.close(reading)


def test_it_does_not_matter_whether_anyone_reads_an_exit_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    messages.write_exit_report(writing, messages.EXIT, 0)
    os.close(writing)
