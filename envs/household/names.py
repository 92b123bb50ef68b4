"""The names under which things are known in the text: `cabinet 3` for `Cabinet_bar__plus_00_dot_58_bar_...`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_SIGNS = (("_bar_", "|"), ("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ","))


def name_all(ids: Iterable[str]) -> dict[str, str]:
    """Return the name of each id.

    Things of a kind are numbered backwards: the first id in order gets the highest number. An id without a position
    is its own name, with a blank behind it. (AlfredDemangler of alfworld 0.4.2 without shuffling.)
    """
    plain = {id: _plain(id) for id in sorted(set(ids))}
    kinds = {id: _kind(id, text) for id, text in plain.items()}
    left = Counter(filter(None, kinds.values()))
    names = {}
    for id, kind in kinds.items():
        if kind:
            names[id] = f"{kind} {left[kind]}"
            left[kind] -= 1
        else:
            names[id] = plain[id] + " "
    return names


def _kind(id: str, plain: str) -> str:
    kind, bar, _ = plain.partition("|")
    if not bar:
        return ""
    return kind + "basin" if "basin" in id else kind


def _plain(id: str) -> str:
    if "_" in id:
        for written, sign in _SIGNS:
            id = id.replace(written, sign)
    return id
