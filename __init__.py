"""turngym: Gymnasium environments for LLM agents over many turns, and the trainer that goes with them.

Importing this package registers the environments and imports neither torch nor transformers.
"""

from .envs import Outcome, Reply, StopReason, TextEnv, fork, register_all
from .tools import Tool, tool

__version__ = "0.1.0"
__all__ = ["Outcome", "Reply", "StopReason", "TextEnv", "Tool", "__version__", "fork", "register_all", "tool"]

register_all()
