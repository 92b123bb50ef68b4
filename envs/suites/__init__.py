"""Suites of tool use that others publish, played as environments and scored as they score them.

- bfcl: `BFCL-v0`, calls of the Berkeley Function-Calling Leaderboard: one reply, or a conversation with live objects
- calls: what a reply of that suite calls, read without running anything, and run on the objects of an episode
- score: the verdicts of its official checkers
"""

from .bfcl import BFCL, make_bfcl

__all__ = ["BFCL", "make_bfcl"]
