"""The key of a server, and its absence from everything that is kept or shown."""

import base64
import os
import re
from typing import Any
from urllib.parse import quote

from ..cli.settings import API_KEY

SECRET = (
    12  # characters; a shorter key is a placeholder such as EMPTY, which an answer may well hold
)
BEGINNING = 8  # characters from the first on that give a key away
INSIDE = 12  # characters from elsewhere in a key, or in another spelling of it, that do
MASK = "…"


class Secret:
    """A key, "" for none. Raises ValueError where the variable is not set, or holds what no key can be."""

    def __init__(self, variable: str) -> None:
        self.key = os.environ.get(variable, "").strip()
        if not self.key and variable != API_KEY:
            raise ValueError(
                f"--api-key-env: the environment variable {variable} is not set or empty"
            )
        if not re.fullmatch(r"[!#-\[\]-~]*", self.key):
            wrong = "it has blanks, quotes or other characters"
            raise ValueError(f"the environment variable {variable} holds no key: {wrong}")
        self._spellings = _spellings(self.key) if len(self.key) >= SECRET else ()

    def hidden(self, text: str) -> str:
        """Return a message without the key, a placeholder too, its beginning, where it was cut, and its spellings."""
        if self.key:
            least = (
                INSIDE if self.key[:BEGINNING].isdecimal() else BEGINNING
            )  # a number of 8 digits may be an answer
            text = _masked(text, self.key, min(len(self.key), least), INSIDE)
        for spelling in self._spellings:
            text = _masked(text, spelling, INSIDE, INSIDE)
        return text

    def hidden_in(self, value: Any) -> Any:
        """Return JSON data without the key and its spellings in texts; a placeholder is no secret there."""
        if not self._spellings:
            return value
        if isinstance(value, dict):
            return {
                self._hidden_name(name): self.hidden_in(member) for name, member in value.items()
            }
        if isinstance(value, list):
            return [self.hidden_in(member) for member in value]
        return self.hidden(value) if isinstance(value, str) else value

    def _hidden_name(self, name: str) -> str:
        """Return the name of a member without the whole key: what begins like a key may be a name of the protocol."""
        for spelling in (self.key, *self._spellings):
            name = name.replace(spelling, MASK)
        return name


def _spellings(key: str) -> tuple[str, ...]:
    """Return other spellings of a key: percent-quoted, hexadecimal, in base64 at each place in what is encoded."""
    raw = key.encode()
    found = [
        quote(key, safe=""),
        quote(key, safe="/"),
        key.replace("/", "\\/"),
        raw.hex(),
        raw.hex().upper(),
    ]
    found += [re.sub("%..", lambda code: code[0].lower(), one) for one in found[:2]]
    for before in range(
        3
    ):  # bytes in front of the key; their signs, and the last, depend on what stands around it
        signs = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        stable = signs[-(-before * 8 // 6) : len(signs) - bool((before + len(raw)) % 3)]
        found += [stable, stable.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(one for one in found if one != key))


def _masked(text: str, secret: str, beginning: int, inside: int) -> str:
    """Return `text` with a mark for each run of `secret`, from its first sign or from inside, that is long enough."""
    for start in range(max(len(secret) - inside, 0) + 1):
        least = beginning if start == 0 else inside
        piece = secret[start : start + least]
        while len(piece) == least and (place := text.find(piece)) >= 0:
            end = least
            while (
                start + end < len(secret)
                and text[place + end : place + end + 1] == secret[start + end]
            ):
                end += 1
            run = secret[start : start + end]
            text = text.replace(run, MASK)
    return text
