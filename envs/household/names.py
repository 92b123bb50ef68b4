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
    ordered = sorted(set(ids))
    left = Counter(kind for kind in map(_kind, ordered) if kind)
    names = {}
    for id in ordered:
        kind = _kind(id)
        if kind:
            names[id] = f"{kind} {left[kind]}"
            left[kind] -= 1
        else:
            names[id] = _plain(id) + " "
    return names


def _kind(id: str) -> str:
    kind, bar, _ = _plain(id).partition("|")
    if not bar:
        return ""
    return kind + "basin" if "basin" in id else kind


def _plain(id: str) -> str:
    for written, sign in _SIGNS:
        id = id.replace(written, sign)
    return id
