"""A comparison, a diagnosis or a test of claims whose workers are killed ends with the files of one left alone.

`benchmarks/killed_comparisons.py` kills in twenty comparisons.
"""

import random

import pytest

from turngym.tests.support.comparisons import (
    begin_claims,
    begin_comparison,
    begin_diagnosis,
    contents,
    kill_a_worker,
)

pytestmark = pytest.mark.slow
BEGIN = {"compare": begin_comparison, "diagnose": begin_diagnosis, "claims": begin_claims}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What an undisturbed command writes, by its name; made when it is first asked for."""
    made = {}

    def written_by(command):
        if command not in made:
            folder = tmp_path_factory.mktemp("whole") / "written"
            assert BEGIN[command](folder).wait() == 0, (folder.parent / "log.txt").read_text()
            made[command] = contents(folder)
        return made[command]

    return written_by


@pytest.mark.parametrize(
    ("command", "seed"), [("compare", 0), ("compare", 1), ("diagnose", 0), ("claims", 0)]
)
def test_a_killed_worker_changes_nothing(tmp_path, whole, command, seed):
    expected = whole(command)
    folder = tmp_path / "written"
    process = BEGIN[command](folder)
    killed = kill_a_worker(process, folder, random.Random(seed))
    assert process.wait() == 0, (tmp_path / "log.txt").read_text()
    log, found = (tmp_path / "log.txt").read_text(), contents(folder)
    assert "was killed by SIGKILL; begun again" in log or not killed.run, (killed, log)
    assert found.keys() == expected.keys(), killed
    assert [name for name in expected if found[name] != expected[name]] == [], killed
