"""A comparison whose workers are killed ends with the files of one whose workers were not."""

import random

import pytest

from turngym.tests.support.comparisons import begin_comparison, contents, kill_a_worker

pytestmark = pytest.mark.slow
SEEDS = range(3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What an undisturbed comparison writes."""
    folder = tmp_path_factory.mktemp("whole") / "compared"
    assert begin_comparison(folder).wait() == 0
    return contents(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_worker_changes_nothing(tmp_path, whole, seed):
    folder = tmp_path / "compared"
    process = begin_comparison(folder)
    killed = kill_a_worker(process, folder, random.Random(seed))
    assert process.wait() == 0, (tmp_path / "log.txt").read_text()
    log, found = (tmp_path / "log.txt").read_text(), contents(folder)
    assert "was killed by SIGKILL; begun again" in log or killed.startswith("nobody"), (killed, log)
    assert found.keys() == whole.keys(), killed
    assert [name for name in whole if found[name] != whole[name]] == [], killed
