"""A model behind OpenAI's `/chat/completions`, without torch: requests that are written down, and an episode as a chat.

A request that has failed for good is an `EngineFailure`, never an answer. What would meet every request alike is
`EndpointRefused`: a wrong key, a wrong address, and whatever the first request meets, which is sent alone. The key is
sent in a header and kept out of everything else: what a server says is searched for it first.

- player: `EndpointPlayer`, an episode as a chat
- client: `Endpoint`, requests that are sent until they are answered or have failed for good
- gate: how many requests are under way at a time
- request: fields that a user adds to requests
- answer: what a model said, read from what a server sends; finish: how an answer ended
- thinking: what a model thought, sent back where the server wants it
- errors: what a server says in place of an answer, and what it means; advice: what a user can do about it
- secret: the key, and its absence from everything else; private: files that others cannot read
"""

from .answer import Answer, Call
from .client import Endpoint, Usage
from .gate import EndpointRefused, Gate
from .player import EndpointPlayer, spell

__all__ = [
    "Answer",
    "Call",
    "Endpoint",
    "EndpointPlayer",
    "EndpointRefused",
    "Gate",
    "Usage",
    "spell",
]
