"""A model behind a URL, with the protocol of OpenAI's `/chat/completions`; nothing here needs torch.

client: requests, tried again, counted and written down
gate: how many are sent at a time; `Refused` ends them all
answer: what a model answered, read from JSON
player: an episode as a chat, with structured tool calls or calls in text
"""

from .client import Endpoint
from .gate import Refused
from .player import Conversation

__all__ = ["Conversation", "Endpoint", "Refused"]
