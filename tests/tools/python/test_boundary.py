import os
import signal
from pathlib import Path

from turngym.tools.python import packets
from turngym.tools.python.boundary import Boundary


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_boundary_has_two_ends_of_everything_and_closes_all():
    before = _descriptors()
    boundary = Boundary("", "folder")
    boundary.close()
    boundary.connect()
    (control, output, obituary), (theirs, writing) = boundary.ours, boundary.theirs
    os.write(theirs, b"answer")
    os.write(writing, b"output")
    packets.record(boundary.obituary, packets.EXIT, 7)
    assert (os.read(control, 99), os.read(output, 99)) == (b"answer", b"output")
    assert packets.records(obituary) == [(packets.EXIT, 7)]
    assert not any(map(os.get_inheritable, (*boundary.ours, *boundary.theirs, boundary.obituary)))
    boundary.close()
    assert _descriptors() == before


def test_a_keeper_is_signalled_and_its_end_is_seen():
    boundary = Boundary("", "folder")
    boundary.signal(signal.SIGKILL)
    assert not boundary.ended()  # there is none yet
    boundary.keeper = boundary.worker = pid = os.posix_spawnp("sleep", ["sleep", "1000"], {})
    boundary.pidfd = os.pidfd_open(pid)
    assert not boundary.ended()
    boundary.memory = 2**30
    assert not boundary.oversteps()
    boundary.memory = 0
    boundary.signal(signal.SIGKILL)
    assert boundary.ended(20.0)
    os.waitpid(pid, 0)
    boundary.signal(signal.SIGKILL)
    boundary.close()
