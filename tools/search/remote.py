"""Back ends that ask a server over HTTP: `SearchR1` and `Elastic`; `served` opens one that is there."""

import base64
import hashlib
import os
import re
from collections.abc import Callable
from typing import Any, NoReturn

from ..checks import did_you_mean
from ..http.client import JsonClient
from ..http.failures import Fault, HttpFailure, Limits, ShapeError
from ..http.json_values import Node
from .retriever import Passage, Retriever, SearchFailure, split_contents

SERVERS = ("search-r1", "elastic")
TOKEN = "TURNGYM_SEARCH_TOKEN"  # what a server of Search-R1's protocol asks for, where it asks for something
KEY, BASIC = "TURNGYM_ELASTIC_API_KEY", "TURNGYM_ELASTIC_BASIC"
FIXES = {
    Fault.TIMEOUT: "give it more time (deadline) or less to do",
    Fault.STATUS: "the server's log may say why",
    Fault.TOO_LARGE: "ask for fewer or shorter passages, or allow more (max_bytes)",
    Fault.MALFORMED: "check that this is the address of such a server",
}


def served(
    url: str, kind: str = "search-r1", index: str | None = None, timeout: float = 10.0
) -> Retriever:
    """Return the back end that asks the server at `url`, once that has shown that it is there.

    kind: What it speaks, one of `SERVERS`.
    index: The index to search; `elastic` has several, `search-r1` one.
    timeout: Seconds that a search may take, further tries included.

    Raises ValueError where an argument cannot be; SearchFailure where no such server answers within
    2 seconds.
    """
    if kind not in SERVERS:
        hint = f"{did_you_mean(kind, SERVERS)}a server speaks {' or '.join(SERVERS)}"
        raise ValueError(f"unknown back end {kind!r}; {hint}")
    if (kind == "elastic") == (index is None):
        fix = "name the one to search" if index is None else "leave it out"
        raise ValueError(f"index is {index!r}, and the back end is {kind!r}; {fix}")
    limits, token = Limits(deadline=timeout), os.environ.get(TOKEN, "")
    retriever = (
        Elastic(url, index, limits=limits)
        if index is not None
        else SearchR1(url, token=token, limits=limits)
    )
    try:
        retriever.check()
    except SearchFailure:
        retriever.close()
        raise
    return retriever


class _SearchServer:
    """What both have in common; `name`, `down` (the fix where no server answers) and `query` of a check are theirs."""

    name: str
    down: str
    query = ""

    def __init__(self, url: str, path: str, authorization: str, limits: Limits | None) -> None:
        self._client = JsonClient(url, path, authorization=authorization, limits=limits)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def close(self) -> None:
        self._client.close()

    def _ask(self, body: Any, read: Callable[[Node], list[Passage]]) -> list[Passage]:
        try:
            return read(self._client.post(body))
        except (HttpFailure, ShapeError) as failure:
            self._fail(failure)

    def check(self) -> None:
        """Raise `SearchFailure` within 2 seconds where no such server, or no such index of it, answers."""
        try:
            self._client.check(self.query)
        except HttpFailure as failure:
            self._fail(failure)

    def _fail(self, failure: HttpFailure | ShapeError) -> NoReturn:
        fault, status = (
            (failure.fault, failure.status)
            if isinstance(failure, HttpFailure)
            else (Fault.MALFORMED, 0)
        )
        fix = self.down if fault is Fault.CONNECT else FIXES[fault]
        if status in (401, 403):
            fix = "give the secret that it asks for"
        failure.__traceback__ = None  # its frames hold the answer
        raise SearchFailure(fault, f"{self._client.url}: {failure}; {fix}") from None


class SearchR1(_SearchServer):
    """Searches a retrieval server of Search-R1's protocol.

    Jin et al., 2025, arXiv:2503.09516, `search_r1/search/retrieval_server.py`: `POST /retrieve`
    takes `{"queries", "topk", "return_scores"}`; its answer's `result` has, for each query, a list
    of `{"document", "score"}`, or of documents alone where scores were not asked for. A document is
    a row of the corpus: `contents`, often with an `id`.

    The `url` is as `JsonClient` takes it, and may end in `/retrieve` or not. A `token` is sent as a
    bearer token. `limits` are those of one search. Raises ValueError where the URL or the token
    cannot be one.
    """

    down = "start one with `turngym serve-search CORPUS`, or correct the URL"

    def __init__(self, url: str, *, token: str = "", limits: Limits | None = None) -> None:
        path = "" if url.rstrip("/").endswith("/retrieve") else "/retrieve"
        super().__init__(url, path, f"Bearer {token}" if token else "", limits)
        self.name = f"the search server {self._client.url}"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""

        def read(answer: Node) -> list[Passage]:
            if len(results := answer["result"].array()) != 1:
                raise ShapeError(f"result has {len(results)} lists for 1 query")
            return [_passage(item) for item in results[0].array()[:k]]

        return self._ask({"queries": [query], "topk": k, "return_scores": True}, read)


class Elastic(_SearchServer):
    """Searches an index of Elasticsearch or OpenSearch: `POST INDEX/_search`, a `multi_match` over title and text.

    A document may lack its `title`, not its `text`. The query is a value in the request's body and
    never query syntax. The environment variable `TURNGYM_ELASTIC_API_KEY`, or
    `TURNGYM_ELASTIC_BASIC` (`user:password`), holds a secret.

    The `url` is as `JsonClient` takes it, and `limits` are those of one search. Raises ValueError
    where there can be no such index, or the URL cannot be one.
    """

    down = "start Elasticsearch or OpenSearch there, or correct the URL"
    query = "?size=0"

    def __init__(self, url: str, index: str, *, limits: Limits | None = None) -> None:
        # What an index may be called keeps `_all`, wildcards, lists and other paths out.
        if not re.fullmatch(r"[^\W_A-Z][^\WA-Z]*(?:[.+-]+[^\WA-Z]+)*", index):
            raise ValueError(f"index is {index!r}; give the name of one index, in small letters")
        api_key, basic = os.environ.get(KEY, ""), os.environ.get(BASIC, "")
        secret = f"Basic {base64.b64encode(basic.encode()).decode()}" if basic else ""
        super().__init__(
            url, f"/{index}/_search", f"ApiKey {api_key}" if api_key else secret, limits
        )
        self.name = f"the index {index} of {self._client.url.removesuffix(f'/{index}/_search')}"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""
        body = {
            "size": k,
            "query": {"multi_match": {"query": query, "fields": ["title", "text"]}},
            "_source": ["title", "text"],
            "track_total_hits": False,
            "timeout": f"{max(1, round(self._client.limits.deadline * 1000))}ms",
        }

        def read(answer: Node) -> list[Passage]:
            # Where some of the index was not searched, passages that are absent would look like
            # none.
            if answer["timed_out"].boolean():
                raise HttpFailure(Fault.TIMEOUT, "the search ran into its time limit")
            shards = answer["_shards"]
            if failed := shards["failed"].number():
                first = shards["failures"].array()[:1] if "failures" in shards else []
                why = repr(first[0].value)[:200] if first else "it does not say why"
                raise HttpFailure(Fault.STATUS, f"{failed:g} of its shards failed: {why}")
            return [_hit(hit) for hit in answer["hits"]["hits"].array()[:k]]

        return self._ask(body, read)


def _hit(hit: Node) -> Passage:
    source = hit["_source"]
    title = source["title"].string() if source.object().get("title") is not None else ""
    return Passage(hit["_id"].identifier(), title, source["text"].string(), hit["_score"].number())


def _passage(item: Node) -> Passage:
    scored = "document" in item
    document = item["document"] if scored else item
    contents = document["contents"].string()
    title, text = split_contents(contents)
    # Without an id it gets one of its contents, so that the same passage always has the same.
    made = hashlib.sha256(contents.encode()).hexdigest()[:16]
    key = made if document.object().get("id") is None else document["id"].identifier()
    return Passage(key, title, text, item["score"].number() if scored else 0.0)
