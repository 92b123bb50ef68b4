"""Back ends that ask a server over HTTP: `SearchR1` and `Elastic`."""

import base64
import hashlib
import os
import re
from collections.abc import Callable
from typing import Any, NoReturn

from ..http.client import JsonClient
from ..http.core import Fault, HttpFailure, Limits, Node, ShapeError
from .core import Passage, SearchFailure, split_contents

KEY = "TURNGYM_ELASTIC_API_KEY"
BASIC = "TURNGYM_ELASTIC_BASIC"
FIXES = {
    Fault.TIMEOUT: "give it more time (deadline) or less to do",
    Fault.STATUS: "the server's log may say why",
    Fault.TOO_LARGE: "ask for fewer or shorter passages, or allow more (max_bytes)",
    Fault.MALFORMED: "check that this is the address of such a server",
}


class _Server:
    """What both have in common; `name` and `down`, the fix where no server answers, are for messages."""

    name: str
    down: str

    def __init__(self, url: str, path: str, authorization: str, limits: Limits | None) -> None:
        self._client = JsonClient(url, path, authorization=authorization, limits=limits)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def close(self) -> None:
        """Close all connections; it may be called twice."""
        self._client.close()

    def _ask(self, body: Any, read: Callable[[Node], list[Passage]]) -> list[Passage]:
        try:
            return read(self._client.post(body))
        except (HttpFailure, ShapeError) as failure:
            self._fail(failure)

    def _probe(self, query: str = "") -> None:
        try:
            self._client.probe(query)
        except HttpFailure as failure:
            self._fail(failure)

    def _fail(self, failure: HttpFailure | ShapeError) -> NoReturn:
        fault, status = (failure.fault, failure.status) if isinstance(failure, HttpFailure) else (Fault.MALFORMED, 0)
        fix = self.down if fault is Fault.CONNECT else FIXES[fault]
        if status in (401, 403):
            fix = "give the secret that it asks for"
        failure.__traceback__ = None  # its frames hold the answer
        raise SearchFailure(fault, f"{self._client.url}: {failure}; {fix}") from None


class SearchR1(_Server):
    """Searches a retrieval server of Search-R1's protocol.

    Jin et al., 2025, arXiv:2503.09516, `search_r1/search/retrieval_server.py`: `POST /retrieve` takes `{"queries",
    "topk", "return_scores"}`; its answer's `result` has, for each query, a list of `{"document", "score"}`, or of
    documents alone where scores were not asked for. A document is a row of the corpus: `contents`, often with an `id`.

    Args:
        url: As `JsonClient` takes it; it may end in `/retrieve` or not.
        token: What a server asks for that was started with one; sent as a bearer token.
        limits: Time, tries and bytes of one search.

    Raises:
        ValueError: The URL or the token cannot be one.
    """

    down = "start one with `turngym serve-search CORPUS`, or correct the URL"

    def __init__(self, url: str, *, token: str = "", limits: Limits | None = None) -> None:
        path = "" if url.rstrip("/").endswith("/retrieve") else "/retrieve"
        super().__init__(url, path, f"Bearer {token}" if token else "", limits)
        self.name = f"the search server {self._client.url}"

    def probe(self) -> None:
        """Raise `SearchFailure` within 2 seconds where no such server answers."""
        self._probe()

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""

        def read(answer: Node) -> list[Passage]:
            results = answer["result"].array()
            if len(results) != 1:
                raise ShapeError(f"result has {len(results)} lists for 1 query")
            return [_passage(item) for item in results[0].array()[:k]]

        return self._ask({"queries": [query], "topk": k, "return_scores": True}, read)


class Elastic(_Server):
    """Searches an index of Elasticsearch or OpenSearch: `POST INDEX/_search`, a `multi_match` over title and text.

    The query is a value in the request's body and never query syntax.

    Args:
        url: As `JsonClient` takes it.
        index: The name of one index.
        title: Name of the field of titles, `a.b` for one inside another; a document may lack it.
        text: Name of the field of texts, likewise; no document may lack it.
        boost: How much more a word counts in the title.
        api_key: An API key; without one and `basic`, from the environment, `TURNGYM_ELASTIC_API_KEY`.
        basic: `user:password`; else from the environment, `TURNGYM_ELASTIC_BASIC`.
        limits: Time, tries and bytes of one search.

    Raises:
        ValueError: There can be no such index, or an argument cannot be.
    """

    down = "start Elasticsearch or OpenSearch there, or correct the URL"

    def __init__(
        self,
        url: str,
        index: str,
        *,
        title: str = "title",
        text: str = "text",
        boost: float = 1.0,
        api_key: str = "",
        basic: str = "",
        limits: Limits | None = None,
    ) -> None:
        # What an index may be called keeps `_all`, wildcards, lists and other paths out.
        if not re.fullmatch(r"[^\W_A-Z][^\WA-Z]*(?:[.+-]+[^\WA-Z]+)*", index):
            raise ValueError(f"index is {index!r}; give the name of one index, in small letters")
        super().__init__(url, f"/{index}/_search", _authorization(api_key, basic), limits)
        self._title, self._text, self._fields = title, text, [f"{title}^{boost:g}", text]
        self.name = f"the index {index} of {self._client.url.removesuffix(f'/{index}/_search')}"

    def probe(self) -> None:
        """Raise `SearchFailure` within 2 seconds where no such index answers."""
        self._probe("?size=0")

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""
        body = {
            "size": k,
            "query": {"multi_match": {"query": query, "fields": self._fields}},
            "_source": [self._title, self._text],
            "track_total_hits": False,
            "timeout": f"{max(1, round(self._client.limits.deadline * 1000))}ms",
        }

        def read(answer: Node) -> list[Passage]:
            _check_complete(answer)
            return [self._passage(hit) for hit in answer["hits"]["hits"].array()[:k]]

        return self._ask(body, read)

    def _passage(self, hit: Node) -> Passage:
        source = hit["_source"]
        title, text = _field(source, self._title), _field(source, self._text)
        if text is None:
            raise ShapeError(f"{source.path}.{self._text} is missing; give the name of the field that holds the text")
        return Passage(hit["_id"].identifier(), title.string() if title else "", text.string(), hit["_score"].number())


def _authorization(api_key: str, basic: str) -> str:
    if api_key and basic:
        raise ValueError("there are both an api_key and basic; give one")
    if not (api_key or basic):
        api_key, basic = os.environ.get(KEY, ""), os.environ.get(BASIC, "")
    return f"ApiKey {api_key}" if api_key else f"Basic {base64.b64encode(basic.encode()).decode()}" if basic else ""


def _check_complete(answer: Node) -> None:
    """Raise `HttpFailure` where some of the index was not searched: passages that are absent would look like none."""
    if answer["timed_out"].boolean():
        raise HttpFailure(Fault.TIMEOUT, "the search ran into its time limit")
    shards = answer["_shards"]
    if failed := shards["failed"].number():
        first = shards["failures"].array()[:1] if "failures" in shards else []
        why = repr(first[0].value)[:200] if first else "it does not say why"
        raise HttpFailure(Fault.STATUS, f"{failed:g} of its shards failed: {why}")


def _field(source: Node, name: str) -> Node | None:
    """Return a field of a document, as named or inside others; None where it is absent or null."""
    for part in [name] if name in source else name.split("."):
        if part not in source:
            return None
        source = source[part]
    return None if source.value is None else source


def _passage(item: Node) -> Passage:
    scored = "document" in item
    document = item["document"] if scored else item
    contents = document["contents"].string()
    title, text = split_contents(contents)
    return Passage(_id(document, contents), title, text, item["score"].number() if scored else 0.0)


def _id(document: Node, contents: str) -> str:
    """Return the document's id; of its contents where it has none, so that the same passage always has the same."""
    if "id" not in document or document["id"].value is None:
        return hashlib.sha256(contents.encode()).hexdigest()[:16]
    return document["id"].identifier()
