"""A back end that asks a retrieval server of Search-R1's protocol.

Jin et al., 2025, arXiv:2503.09516, `search_r1/search/retrieval_server.py`: `POST /retrieve` takes `{"queries", "topk",
"return_scores"}`; its answer's `result` has, for each query, a list of `{"document", "score"}`, or of documents alone
where scores were not asked for. A document is a row of the corpus: `contents`, often with an `id`.
"""

import hashlib

from .core import Passage
from .corpus import split_contents
from .exchange import Bounds
from .http import JsonClient
from .shape import Misfit, Node

DOWN = "start one with `turngym serve-search CORPUS`, or correct the URL"


class Retrieve:
    """Searches over HTTP; see `JsonClient` for `url`, which may end in `/retrieve` or not.

    token: what a server asks for that was started with one; sent as a bearer token
    bounds: time, tries and bytes of one search

    Raises ValueError for a URL or token that cannot be one.
    """

    def __init__(self, url: str, *, token: str = "", bounds: Bounds | None = None) -> None:
        authorization = f"Bearer {token}" if token else ""
        path = "" if url.rstrip("/").endswith("/retrieve") else "/retrieve"
        self._client = JsonClient(url, path, authorization=authorization, bounds=bounds, down=DOWN)
        self.name = f"the search server {self._client.url}"

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def probe(self) -> None:
        """Raise `SearchFailure` within 2 seconds where no such server answers."""
        self._client.probe()

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""
        answer = self._client.post({"queries": [query], "topk": k, "return_scores": True})
        try:
            results = answer["result"].items()
            if len(results) != 1:
                raise Misfit(f"result has {len(results)} lists for 1 query")
            return [_passage(item) for item in results[0].items()[:k]]
        except Misfit as misfit:
            self._client.fail(misfit)

    def close(self) -> None:
        """End all connections; it may be called twice."""
        self._client.close()


def _passage(item: Node) -> Passage:
    scored = "document" in item
    document = item["document"] if scored else item
    contents = document["contents"].text()
    title, text = split_contents(contents)
    return Passage(_id(document, contents), title, text, item["score"].number() if scored else 0.0)


def _id(document: Node, contents: str) -> str:
    """The document's id; of its contents where it has none, so that the same passage always has the same."""
    if "id" not in document or document["id"].value is None:
        return hashlib.sha256(contents.encode()).hexdigest()[:16]
    return document["id"].key()
