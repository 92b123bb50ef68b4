"""Searching: the `search` tool, its back ends, and the `visit` tool.

- `tool`: the `search` tool; `retriever` is what its back ends have in common
- `bm25`: the back end in this process that ranks by words; `array_cache` caches its arrays on disk,
  `unspaced` handles scripts without spaces between words
- `dense`: the back end in this process that ranks by meaning; `corpus` reads what both search
- `remote`: the back ends that ask a server, `SearchR1` and `Elastic`
- `serve`: a server of Search-R1's protocol over any back end
- `visit`: the `visit` tool; `html_text` reads the text of a page, `url_guard` decides which pages
  are open, `fetch` gets one

Passages are shown as Search-R1 shows them (Jin et al. 2025, arXiv:2503.09516), one line each:
`Doc 1(Title: "T") text`.
"""

from ..http.failures import Fault
from .retriever import Passage, Retriever, SearchFailure
from .tool import Search

__all__ = ["Fault", "Passage", "Retriever", "Search", "SearchFailure"]
