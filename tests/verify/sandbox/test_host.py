"""What of this process changed is named."""

import os
import signal
from pathlib import Path

import pytest

from turngym.tests.verify.sandbox import host


@pytest.mark.parametrize(
    ("change", "restore", "names"),
    [
        (lambda: os.chdir("/"), os.chdir, {"working directory"}),
        (
            lambda: os.environ.update(TURNGYM_TEST="1"),
            lambda _: os.environ.pop("TURNGYM_TEST"),
            {"environment"},
        ),
        (lambda: os.umask(0o77), lambda _: os.umask(0o22), {"Umask"}),
        (
            lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
            lambda _: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
            {"signal handlers", "SigIgn"},
        ),
    ],
)
def test_a_change_is_named(change, restore, names):
    os.umask(0o22)
    before, folder = host.state(), Path.cwd()
    change()
    try:
        assert set(host.changed(before, host.state())) == names
    finally:
        restore(folder)


def test_descriptors_are_counted_by_kind():
    before = host.descriptors()
    ends = os.pipe()
    assert host.descriptors() - before == {"pipe": 2}
    for end in ends:
        os.close(end)
    assert host.descriptors() == before
