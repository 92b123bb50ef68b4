"""Searching: the `search` and `visit` tools, and what they search.

- `core`: the `search` tool; `Passage`, `Retriever`, `SearchFailure`
- `servers`: the back ends that ask a server, `SearchR1` and `Elastic`
- `index`, `dense`: the embedded back ends, by words and by meaning; `cache` keeps the arrays of an index
- `serve`: a server of Search-R1's protocol over any back end
- `visit`: the `visit` tool, and the text of a page; `guard` decides which pages are open, `fetch` gets one
"""

from ..http.core import Fault
from .core import Passage, Retriever, Search, SearchFailure

__all__ = ["Fault", "Passage", "Retriever", "Search", "SearchFailure"]
