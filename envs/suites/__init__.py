"""Published suites of tool use, played as environments and scored by their official scorers.

- bfcl: `BFCL-v0`, function calls of the Berkeley Function-Calling Leaderboard
- calls: parses calls of that suite without evaluating them, runs them on objects, judges them
- scienceworld: `ScienceWorld-v0`, experiments in a house, in the official simulator
- jvm: the JVMs in which that simulator runs
- tau2: `Tau2-v0`, customer service with the tools and the evaluator of tau2-bench
"""

from .bfcl import BFCL, make_bfcl
from .scienceworld import ScienceWorld, make_scienceworld
from .tau2 import Tau2, make_tau2

__all__ = ["BFCL", "ScienceWorld", "Tau2", "make_bfcl", "make_scienceworld", "make_tau2"]
