import os
import socket
from pathlib import Path

import pytest

from turngym.tools.python import packets


@pytest.fixture
def ends():
    ours, theirs = packets.pair()
    ours.settimeout(5.0)
    yield ours, theirs
    ours.close()
    theirs.close()


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_messages_keep_their_borders_and_carry_descriptors(ends):
    ours, theirs = ends
    reading, writing = os.pipe()
    packets.send(theirs, {"first": [1, "π", None]})
    packets.send(theirs, {"second": True}, [reading, writing])
    assert packets.receive(ours) == ({"first": [1, "π", None]}, [])
    message, fds = packets.receive(ours)
    assert message == {"second": True}
    os.write(fds[1], b"through")
    assert os.read(reading, 99) == b"through"
    packets.close(reading, writing, *fds)


def test_the_end_and_the_timeout_are_told_apart(ends):
    ours, theirs = ends
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        packets.receive(ours)
    theirs.close()
    with pytest.raises(EOFError, match="the other end is gone"):
        packets.receive(ours)
    with pytest.raises(BrokenPipeError):
        packets.send(ours, {})


@pytest.mark.parametrize(
    "body",
    [b"[]", b"7", b"null", b"not json", b"\xff\xfe", b"{}" + b" " * packets.SIZE, b"[" * 4000, b"9" * packets.SIZE],
)
def test_what_is_no_message_is_a_value_error_and_its_descriptors_are_closed(ends, body: bytes):
    ours, theirs = ends
    before = _open_descriptors()
    socket.send_fds(theirs, [body], [0, 1])
    with pytest.raises(ValueError):
        packets.receive(ours)
    assert _open_descriptors() == before
    packets.send(theirs, {"next": 1})
    assert packets.receive(ours)[0] == {"next": 1}


def test_more_descriptors_than_any_message_has_are_closed(ends):
    ours, theirs = ends
    before = _open_descriptors()
    socket.send_fds(theirs, [b"{}"], [0] * 50)
    with pytest.raises(ValueError, match="not a message"):
        packets.receive(ours)
    assert _open_descriptors() == before


def test_descriptors_that_are_received_are_not_inherited(ends):
    ours, theirs = ends
    packets.send(theirs, {}, [0])
    _, (fd,) = packets.receive(ours)
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_an_exit_pipe_is_read_record_by_record():
    reading, writing = os.pipe()
    packets.report(writing, packets.MEMORY)
    packets.report(writing, packets.EXIT, 9)
    assert packets.reports(reading) == [(packets.MEMORY, 0), (packets.EXIT, 9)]
    packets.report(writing, packets.EXIT, 65280)
    os.close(writing)
    assert packets.reports(reading) == [(packets.EXIT, 65280)]
    assert packets.reports(reading) == []
    os.close(reading)


def test_it_does_not_matter_whether_anyone_reads_an_exit_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    packets.report(writing, packets.EXIT, 0)
    os.close(writing)
