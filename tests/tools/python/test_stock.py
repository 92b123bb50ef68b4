import os
from pathlib import Path

from turngym.tools.python import packets
from turngym.tools.python.stock import Boundary


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
