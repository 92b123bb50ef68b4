import os
import socket
import subprocess
import sys
import time

import pytest

from turngym.tools import frames
from turngym.tools.frames import MAX_FRAME, read_frame, read_frame_with_fds, write_frame


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


def test_descriptors_travel_with_a_frame_and_are_not_inherited_further():
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with ours, theirs:
        write_frame(ours, {"a": 1}, [write])
        value, (fd,) = read_frame_with_fds(theirs)
        assert value == {"a": 1} and not os.get_inheritable(fd)
        os.write(fd, b"x")
        assert os.read(read, 1) == b"x"
        for one in (read, write, fd):
            os.close(one)


def test_a_child_serves_with_this_file_alone_and_says_how_large_it_is():
    ours, theirs = socket.socketpair()
    code = f"import runpy; runpy.run_path({frames.__file__!r})['serve'](lambda r: {{'got': r}}, sized=True)"
    with ours, theirs:
        argv = [sys.executable, "-I", "-c", code, str(theirs.fileno())]
        child = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        theirs.close()
        write_frame(ours, 7)
        reply = read_frame(ours, time.monotonic() + 30)
    assert child.wait(30) == 0
    assert reply.keys() == {"got", "memory_mb"} and reply["got"] == 7 and 1 <= reply["memory_mb"] < 500
