"""Diagnostic worlds: small text environments that each isolate one thing a control of entropy has to get right.

- worlds: states, words and where they lead, as tables; the best possible success; a policy before it learns
- env: an episode in a world, and the environments `LateBloomer-v0`, `UselessChoice-v0`, `ManyWays-v0`, `Distractor-v0`
"""

from .env import WorldEnv, make_distractor, make_late_bloomer, make_many_ways, make_useless_choice
from .worlds import WORLDS, Start, State, World

__all__ = ["WORLDS", "Start", "State", "World", "WorldEnv", "make_distractor", "make_late_bloomer", "make_many_ways"]
__all__ += ["make_useless_choice"]
