"""Back ends that ask a search server over HTTP: `SearchR1` and `Elastic`.

`open_search_server` opens one of them.
"""

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
# Environment variables with secrets:
TOKEN = "TURNGYM_SEARCH_TOKEN"  # the token of a server of Search-R1's protocol
KEY = "TURNGYM_ELASTIC_API_KEY"
BASIC = "TURNGYM_ELASTIC_BASIC"  # "user:password"
# What a user can do about each fault. For CONNECT that is `_SearchServer.how_to_start`.
_HINT_OF_FAULT = {
    Fault.TIMEOUT: "give it more time (deadline) or less to do",
    Fault.STATUS: "the server's log may say why",
    Fault.TOO_LARGE: "ask for fewer or shorter passages, or allow more (max_bytes)",
    Fault.MALFORMED: "check that this is the address of such a server",
}
# The name of one index: no `_all`, no wildcard, no list of names, and no path to something else.
_INDEX_NAME = re.compile(r"[^\W_A-Z][^\WA-Z]*(?:[.+-]+[^\WA-Z]+)*")


def open_search_server(
    url: str, kind: str = "search-r1", index: str | None = None, timeout: float = 10.0
) -> Retriever:
    """Return a back end that asks the server at `url`, after checking that the server answers.

    Args:
        url: The server's address.
        kind: The protocol that it speaks, one of `SERVERS`.
        index: The index to search. `elastic` needs one, `search-r1` has none.
        timeout: Seconds for a search, with retries.

    Raises:
        ValueError: An argument is not usable.
        SearchFailure: No such server answers within 2 seconds.
    """
    if kind not in SERVERS:
        raise ValueError(
            f"unknown back end {kind!r}; "
            f"{did_you_mean(kind, SERVERS)}a server speaks {' or '.join(SERVERS)}"
        )
    if kind == "elastic" and index is None:
        raise ValueError("index is None, and the back end is 'elastic'; name the one to search")
    if kind != "elastic" and index is not None:
        raise ValueError(f"index is {index!r}, and the back end is {kind!r}; leave it out")
    limits = Limits(deadline=timeout)
    server: SearchR1 | Elastic
    if index is not None:
        server = Elastic(url, index, limits=limits)
    else:
        server = SearchR1(url, token=os.environ.get(TOKEN, ""), limits=limits)
    try:
        server.check()
    except SearchFailure:
        server.close()
        raise
    return server


class _SearchServer:
    """A client of a search server: sends requests, and explains why they failed.

    Args:
        url: The server's address, as `JsonClient` takes it.
        path: Added to `url`.
        authorization: The value of the header of that name; "" sends none.
        limits: The limits of each search; None is the default.
    """

    name: str  # what is searched, for messages
    how_to_start: str  # what to do if no server answers
    check_query = ""  # added to the URL for a check

    def __init__(self, url: str, path: str, authorization: str, limits: Limits | None) -> None:
        self._client = JsonClient(url, path, authorization=authorization, limits=limits)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """Raise `SearchFailure`, within 2 seconds, unless such a server (and its index) answers."""
        try:
            self._client.check(self.check_query)
        except HttpFailure as failure:
            self._raise_search_failure(failure)

    def _request_passages(
        self, body: Any, read_passages: Callable[[Node], list[Passage]]
    ) -> list[Passage]:
        """Post `body` and return the passages of the answer.

        Args:
            body: The request, as JSON values.
            read_passages: Reads the answer; it raises `HttpFailure` or `ShapeError`.

        Raises:
            SearchFailure: The request failed, or the answer could not be read.
        """
        try:
            return read_passages(self._client.post(body))
        except (HttpFailure, ShapeError) as failure:
            self._raise_search_failure(failure)

    def _raise_search_failure(self, failure: HttpFailure | ShapeError) -> NoReturn:
        """Raise the `SearchFailure` for a failed request; it also says what the user can do.

        Args:
            failure: Why the request failed; a `ShapeError` if its answer could not be read.
        """
        if isinstance(failure, HttpFailure):
            fault = failure.fault
            status = failure.status
        else:
            fault = Fault.MALFORMED
            status = 0
        if status in (401, 403):
            hint = "give the secret that it asks for"
        elif fault is Fault.CONNECT:
            hint = self.how_to_start
        else:
            hint = _HINT_OF_FAULT[fault]
        failure.__traceback__ = None  # its frames refer to the answer, which may be large
        raise SearchFailure(fault, f"{self._client.url}: {failure}; {hint}") from None


class SearchR1(_SearchServer):
    """Searches a retrieval server of Search-R1's protocol.

    Jin et al., 2025, arXiv:2503.09516, `search_r1/search/retrieval_server.py`: `POST /retrieve`
    takes `{"queries", "topk", "return_scores"}`. Its answer's `result` has a list per query, of
    `{"document", "score"}`, or of documents if no scores were asked for. A document is a row of the
    corpus: `contents`, often with an `id`.

    Args:
        url: The server's address, as `JsonClient` takes it, with `/retrieve` at its end or not.
        token: Sent as a bearer token; "" sends none.
        limits: Of each search; None is the default.

    Raises:
        ValueError: The URL or the token is not one.
    """

    how_to_start = "start one with `turngym serve-search CORPUS`, or correct the URL"

    def __init__(self, url: str, *, token: str = "", limits: Limits | None = None) -> None:
        path = "" if url.rstrip("/").endswith("/retrieve") else "/retrieve"
        authorization = f"Bearer {token}" if token else ""
        super().__init__(url, path, authorization, limits)
        self.name = f"the search server {self._client.url}"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""

        def read_passages(answer: Node) -> list[Passage]:
            hit_lists = answer["result"].array()  # one for each query
            if len(hit_lists) != 1:
                raise ShapeError(f"result has {len(hit_lists)} lists for 1 query")
            hits = hit_lists[0].array()[:k]
            return [_read_search_r1_hit(hit) for hit in hits]

        request = {"queries": [query], "topk": k, "return_scores": True}
        return self._request_passages(request, read_passages)


class Elastic(_SearchServer):
    """Searches an index of Elasticsearch or OpenSearch, by `multi_match` over title and text.

    A document must have a `text`, and may have a `title`. The query is sent as a value and never
    read as query syntax. The environment variable `TURNGYM_ELASTIC_API_KEY`, or
    `TURNGYM_ELASTIC_BASIC` (`user:password`), may give a secret.

    Args:
        url: The server's address, as `JsonClient` takes it.
        index: The name of the index.
        limits: Of each search; None is the default.

    Raises:
        ValueError: The URL is not one, or no index can have this name.
    """

    how_to_start = "start Elasticsearch or OpenSearch there, or correct the URL"
    check_query = "?size=0"

    def __init__(self, url: str, index: str, *, limits: Limits | None = None) -> None:
        if not _INDEX_NAME.fullmatch(index):
            raise ValueError(f"index is {index!r}; give the name of one index, in small letters")
        path = f"/{index}/_search"
        super().__init__(url, path, _read_elastic_authorization(), limits)
        self.name = f"the index {index} of {self._client.url.removesuffix(path)}"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""
        timeout_ms = max(1, round(self._client.limits.deadline * 1000))
        request = {
            "size": k,
            "query": {"multi_match": {"query": query, "fields": ["title", "text"]}},
            "_source": ["title", "text"],
            "track_total_hits": False,
            "timeout": f"{timeout_ms}ms",
        }

        def read_passages(answer: Node) -> list[Passage]:
            _check_all_was_searched(answer)
            hits = answer["hits"]["hits"].array()[:k]
            return [_read_elastic_hit(hit) for hit in hits]

        return self._request_passages(request, read_passages)


def _read_elastic_authorization() -> str:
    """Return the header `Authorization` with the secret of the environment variables; "" if unset.

    An API key comes first, then a user name with a password.
    """
    api_key = os.environ.get(KEY, "")
    if api_key:
        return f"ApiKey {api_key}"
    user_and_password = os.environ.get(BASIC, "")
    if user_and_password:
        return f"Basic {base64.b64encode(user_and_password.encode()).decode()}"
    return ""


def _check_all_was_searched(answer: Node) -> None:
    """Raise `HttpFailure` if Elasticsearch searched only a part of an index.

    It answers with the hits of that part then. The agent would believe that the corpus has no other
    matching passages.

    Args:
        answer: The JSON of the answer to a search.
    """
    if answer["timed_out"].boolean():
        raise HttpFailure(Fault.TIMEOUT, "the search ran into its time limit")
    shards = answer["_shards"]
    failed_shard_count = shards["failed"].number()
    if not failed_shard_count:
        return
    reason = "it does not say why"
    if "failures" in shards:
        failures = shards["failures"].array()
        if failures:
            reason = repr(failures[0].value)[:200]
    raise HttpFailure(Fault.STATUS, f"{failed_shard_count:g} of its shards failed: {reason}")


def _read_elastic_hit(hit: Node) -> Passage:
    """Return the passage of an item of `hits.hits`; raises `ShapeError`.

    It is `{"_id", "_score", "_source": {"title", "text"}}`, with or without a title.
    """
    document = hit["_source"]
    has_title = document.object().get("title") is not None
    title = document["title"].string() if has_title else ""
    passage_id = hit["_id"].identifier()
    text = document["text"].string()
    score = hit["_score"].number()
    return Passage(passage_id, title, text, score)


def _read_search_r1_hit(hit: Node) -> Passage:
    """Return the passage of a hit of Search-R1's protocol; raises `ShapeError`.

    A hit is `{"document": {"contents", "id"}, "score"}`, or only the document. The id may be
    missing.
    """
    has_score = "document" in hit
    document = hit["document"] if has_score else hit
    contents = document["contents"].string()
    title, text = split_contents(contents)
    if document.object().get("id") is not None:
        passage_id = document["id"].identifier()
    else:
        # A digest, because the same passage must have the same id in each answer.
        passage_id = hashlib.sha256(contents.encode()).hexdigest()[:16]
    score = hit["score"].number() if has_score else 0.0
    return Passage(passage_id, title, text, score)
