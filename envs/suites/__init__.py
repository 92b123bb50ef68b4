"""Suites of tool use that others publish, played as environments and scored as they score them.

- bfcl: `BFCL-v0`, calls of the Berkeley Function-Calling Leaderboard: one reply, or a conversation with live objects
- calls: what a reply of that suite calls, read without running anything, run on the objects of an episode, and judged
- scienceworld: `ScienceWorld-v0`, experiments in a house, in the official simulator
- jvm: the JVMs in which it runs
- tau2: `Tau2-v0`, customer service with the tools and the evaluator of tau2-bench
"""

from .bfcl import BFCL, make_bfcl
from .scienceworld import ScienceWorld, make_scienceworld
from .tau2 import Tau2, make_tau2

__all__ = ["BFCL", "ScienceWorld", "Tau2", "make_bfcl", "make_scienceworld", "make_tau2"]
