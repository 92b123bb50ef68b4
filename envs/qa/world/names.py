"""The names of all there is: no two are the same, many share a word, and none that is asked for is part of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from .words import invented

NAMESAKE = "namesake"  # a sight called like something else, about which nothing is asked
ARTICLES = {"organisation": "the ", "event": "the ", NAMESAKE: "the "}
SHARED = {"person": (8, 4), "book": (2, 2), "film": (2, 2)}  # things of a kind for each first word and second word
NOUNS = {
    "organisation": (
        *("Academy", "Bureau", "Company", "Foundation", "Guild", "Institute", "Museum", "Observatory", "Press"),
        *("Society", "Studio", "University"),
    ),
    "event": ("Cup", "Derby", "Festival", "Marathon", "Rally", "Regatta", "Tournament", "Trophy"),
    NAMESAKE: ("Bridge", "Canal", "Fountain", "Gate", "Harbour", "Lighthouse", "Mill", "Theatre", "Tower"),
}


def name_all(seed: int, counts: Mapping[str, int], syllables: int) -> dict[str, list[str]]:
    """Return the names of each kind, so many as `counts` says; most words have `syllables`, given names two."""
    unused = invented(seed, syllables)
    given = unused if syllables == 2 else invented(seed, 2)
    names: dict[str, list[str]] = {}
    for kind, count in counts.items():
        if kind in SHARED:
            first, second = (-(-count // share) for share in SHARED[kind])
            firsts = _take(given if kind == "person" else unused, first)
            names[kind] = _pairs(firsts, _take(unused, second), count)
        elif kind == NAMESAKE:
            words = sorted({name.split()[0] for others in names.values() for name in others})
            names[kind] = _pairs(words[:: max(1, len(words) // count)], NOUNS[kind], count)
        elif kind in NOUNS:
            names[kind] = _pairs(_take(unused, -(-count // 2)), NOUNS[kind], count)
        else:
            names[kind] = _take(unused, count)
    return names


def _take(words: Iterator[str], count: int) -> list[str]:
    return list(islice(words, count))


def _pairs(firsts: Sequence[str], seconds: Sequence[str], count: int) -> list[str]:
    """Return different pairs that use each word about equally often.

    The same first word comes back every `rows` pairs, each time with a second word that is `step` further on.
    """
    rows = len(firsts)
    step = len(seconds) // -(-count // rows)
    return [f"{firsts[i % rows]} {seconds[(i % rows + i // rows * step) % len(seconds)]}" for i in range(count)]
