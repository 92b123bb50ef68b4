"""The command line in real processes that end as any other does."""

import pytest

from turngym.tests.verify.resume.area import EVAL, RUN
from turngym.tests.verify.resume.forking import Job, Warm
from turngym.training.boundary import read_boundary


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    warm = Warm(tmp_path_factory.mktemp("warm"))
    yield warm
    warm.close()


@pytest.mark.timeout(300)
def test_a_signal_ends_training_with_a_checkpoint_the_way_on_and_no_process_left(warm, tmp_path):
    out = str(tmp_path / "run")
    ended = warm.run(Job((*RUN.split(), "--out", out), phase="tool", number=15))
    assert ended.status == 143, ended.output
    assert ended.orphans == 0 and ended.struck is not None
    assert f"go on with: turngym train --resume --out {out}" in ended.output.replace("\n", "")
    assert "Traceback" not in ended.output and "Exception" not in ended.output
    assert read_boundary(tmp_path / "run" / "checkpoints" / "step-000000").step == 0
    killed = warm.run(Job(("train", "--resume", "--out", out), kill_after=0.1))
    assert (killed.status, killed.orphans) == (-9, 0)


def test_a_signal_ends_an_evaluation_and_leaves_no_process(warm):
    ended = warm.run(Job(tuple(EVAL.split()), phase="tool", number=2))
    assert (ended.status, ended.orphans) == (130, 0), ended.output
