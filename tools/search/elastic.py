"""A back end that asks Elasticsearch or OpenSearch: `POST INDEX/_search` with a `multi_match` over title and text."""

import base64
import os
import re

from .core import Fault, Passage
from .exchange import Bounds, Trouble
from .http import JsonClient
from .shape import Misfit, Node

KEY = "TURNGYM_ELASTIC_API_KEY"
BASIC = "TURNGYM_ELASTIC_BASIC"
DOWN = "start Elasticsearch or OpenSearch there, or correct the URL"


class Elastic:
    """Searches one index; see `JsonClient` for `url`.

    title, text: names of the fields, `a.b` for one inside another; a title may be absent
    boost: how much more a word counts in the title
    api_key, basic: an API key, or `user:password`; else from the environment, TURNGYM_ELASTIC_API_KEY or _BASIC

    The query is a value in the request's body and never query syntax. Raises ValueError for what cannot be an index.
    """

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
        bounds: Bounds | None = None,
    ) -> None:
        # What an index may be called keeps `_all`, wildcards, lists and other paths out.
        if not re.fullmatch(r"[^\W_A-Z][^\WA-Z]*(?:[.+-]+[^\WA-Z]+)*", index):
            raise ValueError(f"index is {index!r}; give the name of one index, in small letters")
        authorization = _authorization(api_key, basic)
        self._client = JsonClient(url, f"/{index}/_search", authorization=authorization, bounds=bounds, down=DOWN)
        self._title, self._text, self._fields = title, text, [f"{title}^{boost:g}", text]
        self.name = f"the index {index} of {self._client.url.removesuffix(f'/{index}/_search')}"

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def probe(self) -> None:
        """Raise `SearchFailure` within 2 seconds where no such index answers."""
        self._client.probe("?size=0")

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure`."""
        body = {
            "size": k,
            "query": {"multi_match": {"query": query, "fields": self._fields}},
            "_source": [self._title, self._text],
            "track_total_hits": False,
            "timeout": f"{max(1, round(self._client.bounds.deadline * 1000))}ms",
        }
        answer = self._client.post(body)
        try:
            _check_complete(answer)
            return [self._passage(hit) for hit in answer["hits"]["hits"].items()[:k]]
        except (Misfit, Trouble) as trouble:
            self._client.fail(trouble)

    def close(self) -> None:
        """End all connections; it may be called twice."""
        self._client.close()

    def _passage(self, hit: Node) -> Passage:
        source = hit["_source"]
        title, text = _field(source, self._title), _field(source, self._text)
        if text is None:
            raise Misfit(f"{source.path}.{self._text} is missing; give the name of the field that holds the text")
        return Passage(hit["_id"].key(), title.text() if title else "", text.text(), hit["_score"].number())


def _authorization(api_key: str, basic: str) -> str:
    if api_key and basic:
        raise ValueError("there are both an api_key and basic; give one")
    if not (api_key or basic):
        api_key, basic = os.environ.get(KEY, ""), os.environ.get(BASIC, "")
    return f"ApiKey {api_key}" if api_key else f"Basic {base64.b64encode(basic.encode()).decode()}" if basic else ""


def _check_complete(answer: Node) -> None:
    """Raise `Trouble` where some of the index was not searched: passages that are absent would look like none."""
    if answer["timed_out"].flag():
        raise Trouble(Fault.TIMEOUT, "the search ran into its time limit")
    shards = answer["_shards"]
    if failed := shards["failed"].number():
        first = shards["failures"].items()[:1] if "failures" in shards else []
        why = repr(first[0].value)[:200] if first else "it does not say why"
        raise Trouble(Fault.STATUS, f"{failed:g} of its shards failed: {why}")


def _field(source: Node, name: str) -> Node | None:
    """A field of a document, as named or inside others; None where it is absent or null."""
    for part in [name] if name in source else name.split("."):
        if part not in source:
            return None
        source = source[part]
    return None if source.value is None else source
