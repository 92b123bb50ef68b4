"""Invented words: no two are the same, and each has a cluster of letters that hardly any real word has."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ...tasks import KeyedRandom

_VOWELS = "aeiou"
_RARE = ("bz", "gv", "gz", "kv", "kz", "mv", "mz", "vz", "zb", "zg", "zr", "zv")
_COMMON = tuple("bdfghjklmnprstvz")
_ENDS = ("", "k", "l", "n", "r")


def invented(seed: int, syllables: int) -> Iterator[str]:
    """Yield every word of so many syllables once, with a capital, in an order that `seed` decides.

    A vowel is one letter and what stands between two vowels begins one syllable, so that a spelling has one reading.
    """
    others = len(_COMMON) * len(_VOWELS)
    count = syllables * len(_RARE) * len(_VOWELS) * others ** (syllables - 1) * len(_ENDS)
    rng = KeyedRandom(seed, "words", syllables)
    number, step = rng.integer(0, count - 1), rng.integer(count // 3, count // 2)
    while gcd(step, count) > 1:
        step += 1
    for _ in range(count):
        yield _spell(number, syllables).capitalize()
        number = (number + step) % count


def _spell(number: int, syllables: int) -> str:
    number, rare = divmod(number, syllables)
    number, end = divmod(number, len(_ENDS))
    word = ""
    for syllable in range(syllables):
        starts = _RARE if syllable == rare else _COMMON
        number, start = divmod(number, len(starts))
        number, vowel = divmod(number, len(_VOWELS))
        word += starts[start] + _VOWELS[vowel]
    return word + _ENDS[end]
