import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from turngym.envs import Reply, Rewards, StopReason, TextEnv, TextVectorEnv


class Count(TextEnv):
    """Ends after a number of turns that is drawn; every second turn pays by name and says more in `info`."""

    def on_reset(self, rng, options):
        self.left = self.length = int(rng.integers(1, 5))
        return f"{self.left} turns"

    def on_step(self, text):
        self.left -= 1
        stop = None if self.left else StopReason.GOAL
        if self.left % 2:
            return Reply(text, stop=stop)
        info = {
            "heard": text,
            "share": 0.5,
            "early": True,
            "by": {"name": self.length},
            "row": np.ones(2),
        }
        return Reply(f"näher: {self.left}", Rewards({"step": 1.0}), stop, info=info)


def same(left, right):
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and list(left) == list(right)
            and all(same(left[k], right[k]) for k in left)
        )
    if isinstance(left, np.ndarray):
        return (
            left.dtype == right.dtype
            and left.shape == right.shape
            and str(left.tolist()) == str(right.tolist())
        )
    if isinstance(left, tuple) and len(left) == 2:
        return same(left[0], right[0]) and same(left[1], right[1])
    return type(left) is type(right) and left == right


def test_a_vector_gives_what_gymnasiums_does():
    ours, theirs = (kind([Count] * 5) for kind in (TextVectorEnv, SyncVectorEnv))
    assert same(ours.reset(seed=3), theirs.reset(seed=3))
    seen = []
    for turn in range(12):
        actions = tuple(f"action {turn} {i}" for i in range(5))
        seen.append(ours.step(actions))
        for mine, its in zip(seen[-1], theirs.step(actions), strict=True):
            assert same(mine, its)
        if turn == 6:
            some = {"reset_mask": np.array([True, False, False, True, False])}
            assert same(ours.reset(options=dict(some)), theirs.reset(options=dict(some)))
    assert sum(done.sum() for _, _, done, _, _ in seen) > 9
    assert same(
        seen[0][4]["messages"][0], [{"role": "user", "content": seen[0][0][0]}]
    )  # later steps left it alone


def test_a_vector_needs_an_action_for_each():
    vector = TextVectorEnv([Count] * 2)
    vector.reset(seed=0)
    with pytest.raises(ValueError, match="shorter"):
        vector.step(("only one",))
