"""The area `household` on real files where they are, and what its options choose."""

from pathlib import Path

import pytest

from turngym.tests.verify.household import player
from turngym.tests.verify.household.area import Household


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="--games"):
        list(Household(data=tmp_path).rows())


def test_the_player_needs_nothing_of_ours():
    text = Path(player.__file__).read_text("utf-8")
    assert "turngym" not in text and "from ." not in text
