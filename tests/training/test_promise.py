"""What docs/promise.md says of run folders that another version wrote."""

import pytest

from turngym import __version__
from turngym.training.config import TrainConfig, from_run

OLDER = """[train]
env = "turngym/Math-v0"
steps = 7
method = "grpo"

[record]
version = "{version}"
"""


def test_a_run_folder_of_an_older_version_is_read(tmp_path):
    (tmp_path / "config.toml").write_text(OLDER.format(version="0.0.9"))
    assert from_run(tmp_path) == TrainConfig().changed(env="turngym/Math-v0", steps=7, method="grpo")


@pytest.mark.parametrize("version", ["0.0.9", __version__])
def test_a_key_that_this_version_does_not_have_is_refused_with_the_version_that_wrote_it(version, tmp_path):
    (tmp_path / "config.toml").write_text(OLDER.format(version=version).replace("steps", "splines"))
    with pytest.raises(ValueError, match=r"config\.toml.*: unknown key 'splines'") as refused:
        from_run(tmp_path)
    assert ("which turngym 0.0.9 wrote: " in str(refused.value)) is (version == "0.0.9")
