"""The command that lets others search a corpus: `turngym serve-search`."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.markup import escape

from .terminal import console, mistakes


@dataclass(frozen=True)
class ServeSearch:
    """Serve a corpus over HTTP, by the protocol of Search-R1's retrieval server, until interrupted."""

    corpus: tyro.conf.Positional[Path]
    """JSONL file, also `.gz`: rows `{id, title, text}` or `{id, contents}`."""
    host: str = "127.0.0.1"
    """Address to listen on; one that other machines reach needs a token."""
    port: int = 8000
    """Port to listen on; 0 is any that is free."""
    k1: float = 1.5
    """BM25: how slowly the weight of a word saturates with its count."""
    b: float = 0.75
    """BM25: how much the length of a passage counts, 0 to 1."""
    cache: Path | None = None
    """Folder that keeps the index; the user's cache when left out."""
    token_env: str | None = None
    """Environment variable with the token that clients must send as `Authorization: Bearer`."""

    def run(self) -> int:
        """Open the index, say where it is served, and wait."""
        with mistakes():
            from ..tools.search.index import open_index
            from ..tools.search.serve import serve

            token = "" if self.token_env is None else os.environ.get(self.token_env, "")
            if self.token_env is not None and not token:
                raise ValueError(f"--token-env: the environment variable {self.token_env} is not set or empty")
            index = open_index(self.corpus, self.cache, k1=self.k1, b=self.b)
            with serve(index, self.host, self.port, token=token) as url:
                console.print(f"{url}/retrieve: {escape(index.name)}", soft_wrap=True)
                threading.Event().wait()
        return 0
