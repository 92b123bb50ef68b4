"""A model behind a URL, with the protocol of OpenAI's `/chat/completions`; nothing here needs torch.

client: requests, so many at a time, tried again, counted and written down; what was answered
player: an episode as a chat, with structured tool calls or calls in text
"""

from .client import Endpoint, Refused
from .player import Conversation

__all__ = ["Conversation", "Endpoint", "Refused"]
