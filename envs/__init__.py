"""Where an agent lives: Gymnasium environments that speak text over many turns (no torch)."""

from .core import EnvFailure, Message, Outcome, Reply, StopReason, TextEnv, fork, outcome_of
from .registry import register_all

__all__ = ["EnvFailure", "Message", "Outcome", "Reply", "StopReason", "TextEnv", "fork", "outcome_of", "register_all"]
