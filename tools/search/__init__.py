"""Searching: the `search` tool and what its back ends have in common.

The back ends, and the `visit` tool, are imported where they are used: `.index` (embedded), `.retrieve` and `.elastic`
(servers), `.visit`.
"""

from .core import Fault, Passage, Retriever, SearchFailure
from .tool import Search

__all__ = ["Fault", "Passage", "Retriever", "Search", "SearchFailure"]
