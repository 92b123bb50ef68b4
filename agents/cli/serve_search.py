"""The command `turngym serve-search`."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.markup import escape

from .terminal import Shown, console, mistakes


@dataclass(frozen=True)
class ServeSearch(Shown):
    """Serve a corpus over HTTP with the protocol of Search-R1's retrieval server, until interrupted."""

    corpus: tyro.conf.Positional[Path]
    """JSONL file, also `.gz`: rows `{id, title, text}` or `{id, contents}`."""
    host: str = "127.0.0.1"
    """Address to listen on. A token is required if other machines can reach it."""
    port: int = 8000
    """Port to listen on; 0 chooses a free one."""
    k1: float = 1.5
    """BM25: how slowly the weight of a word saturates with its count."""
    b: float = 0.75
    """BM25: how much the length of a passage counts, 0 to 1."""
    cache: Path | None = None
    """Folder for the index; by default a folder in the user's cache."""
    token_env: str | None = None
    """Environment variable with the token that clients must send as `Authorization: Bearer`."""
    token_file: Path | None = None
    """File with that token."""
    allow_host: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """One more name under which clients ask, as in their URL; may be given again. Loopback and the address itself are
    allowed."""

    def run(self) -> int:
        with mistakes():
            from ...tools.search.bm25 import open_index
            from ...tools.search.serve import serve

            token = self._token()
            with self.shown():
                index = open_index(self.corpus, self.cache, k1=self.k1, b=self.b)
            with serve(
                index, self.host, self.port, token=token, allow_hosts=self.allow_host
            ) as url:
                console.print(f"{url}/retrieve: {escape(index.name)}", soft_wrap=True)
                threading.Event().wait()
        return 0

    def _token(self) -> str:
        if self.token_env is not None and self.token_file is not None:
            raise ValueError("--token-env and --token-file are both given; give one")
        token, lack = "", ""
        if self.token_file is not None:
            token, lack = (
                self.token_file.read_text().strip(),
                f"--token-file: {self.token_file} is empty",
            )
        elif self.token_env is not None:
            token = os.environ.get(self.token_env, "")
            lack = f"--token-env: the environment variable {self.token_env} is not set or empty"
        if lack and not token:
            raise ValueError(lack)
        return token
