"""Subsets of the tasks (data diversity, arXiv 2511.05993): fewer tasks, at random or of few kinds.

Knob: sampling. Policies that train on little or uniform data lose their entropy faster.

    random: `count` of the tasks;   k-means: those of the `kinds` nearest clusters of `clusters`, up to `count`

Defaults: random, count 256, clusters 8, kinds 1: ours.
Evidence: C. That diversity of data decides about entropy is the paper's; how its subsets were made could not be
established.
Deviations: prompts are compared by their words (TF-IDF of scikit-learn, which it needs), not by embeddings of a model.
Off: count 0 keeps all tasks.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np

from ....agents.engine import keyed_rng
from ...control.parameters import Count, checked
from ..base import Control, Epoch, State, Whole

SALT, POOL = 0x5B5E7, 4096  # parts its draws from those of tokens; most tasks that are looked at


@checked
def data_subset(
    *,
    by: Literal["random", "k-means"] = "random",
    count: Whole = 256,
    clusters: Count = 8,
    kinds: Count = 1,
    draw: Whole = 0,
) -> Control:
    """Return the subset; another `draw` is another one."""

    @lru_cache(maxsize=1)
    def chosen(tasks: tuple[int, ...], text: Callable[[int], str]) -> frozenset[int]:
        drawn = keyed_rng((draw, SALT)).permutation(np.array(tasks))[:POOL].tolist()
        if by == "k-means":
            drawn = similar([text(task) for task in drawn], drawn, clusters, kinds, draw)
        return frozenset(drawn[:count])

    def order(tasks: Epoch, state: State) -> list[int]:
        kept = chosen(tuple(sorted(tasks.order)), tasks.text)
        return [task for task in tasks.order if task in kept]

    return Control(name="data-subset", order=order if count else None)


def similar(texts: list[str], tasks: list[int], clusters: int, kinds: int, draw: int) -> list[int]:
    """Return the tasks of the first cluster and of those whose centres are nearest to it, nearest tasks first.

    Raises ValueError without scikit-learn.
    """
    try:
        from sklearn.cluster import KMeans
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise ValueError(
            "by=k-means needs scikit-learn: pip install scikit-learn, or use by=random"
        ) from None

    seen = TfidfVectorizer(token_pattern=r"\w+|\S").fit_transform(texts)
    model = KMeans(min(clusters, len(texts)), n_init=1, random_state=draw).fit(seen)
    away = np.linalg.norm(model.cluster_centers_ - model.cluster_centers_[model.labels_[0]], axis=1)
    near = away.argsort(kind="stable")[:kinds]
    kept = [place for place in range(len(tasks)) if model.labels_[place] in near]
    return [tasks[place] for place in sorted(kept, key=lambda place: away[model.labels_[place]])]
