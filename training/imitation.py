"""What self-imitation keeps of earlier steps: rows of a path's key and its score, and what they are judged by."""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from ..agents.engine import keyed_rng
from ..agents.trajectory import Key

SALT = 0x5BEA  # parts its draws from those of tokens


def better(scores: Mapping[Key, float]) -> tuple[list[list[Any]], list[float]]:
    """Return key and score of each path above its group's mean, and the means of the groups."""
    members: dict[Key, list[float]] = {}
    for key, score in scores.items():
        members.setdefault(key[:-1], []).append(score)
    means = {group: sum(own) / len(own) for group, own in members.items()}
    kept = [
        [*key, score] for key, score in scores.items() if score > means[key[:-1]] and min(members[key[:-1]]) < score
    ]
    return kept, list(means.values())


def newest(history: list[list[float]], most: int) -> list[list[float]]:
    """Return the last steps of `history` that hold at most `most` groups together."""
    while sum(map(len, history)) > most:
        history = history[1:]
    return history


def chosen(kept: list[list[Any]], size: int, step: int) -> list[list[Any]]:
    """Return min(size, the largest power of two there is) of what is kept, at random, in its order."""
    count = min(size, 1 << (len(kept).bit_length() - 1))
    drawn = keyed_rng((int(kept[0][0]), step, SALT)).choice(len(kept), count, replace=False)
    return [kept[place] for place in sorted(drawn.tolist())]


def recalibrated(rows: list[list[Any]], history: list[list[float]]) -> dict[Key, float]:
    """Return A' of each path of which it is not below 0; none where there is no history."""
    means = [mean for step in history for mean in step]
    typical = float(np.median(means)) if means else inf
    return {tuple(key): score - typical for *key, score in rows if score >= typical}
