"""Searching: the `search` and `visit` tools, and what they search.

- `tool`: the `search` tool
- `core`: `Passage`, `Retriever`, `SearchFailure`; `embedded` and `served` open a back end
- `servers`: the back ends that ask a server, `SearchR1` and `Elastic`
- `index`, `dense`: the embedded back ends, by words and by meaning; `corpus` reads their passages, `cache` keeps arrays
- `serve`: a server of Search-R1's protocol over any back end; `wire` is its end of a connection
- `visit`: the `visit` tool; `guard` decides which pages are open, `fetch` gets one, `page` makes it text
"""

from ..http.core import Fault
from .core import Passage, Retriever, SearchFailure
from .tool import Search

__all__ = ["Fault", "Passage", "Retriever", "Search", "SearchFailure"]
