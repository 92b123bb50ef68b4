"""Who plays the invented world's questions: gold queries, and an expert that sees what an agent sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from turngym.agents.evaluation.scores import from_trees
from turngym.agents.players import PLAYERS, Player, play_all
from turngym.envs.qa import SearchEnv
from turngym.tests.verify.rows import Row, first

NEED = 0.95
NAMES = {"expert": "the gold queries", "observer": "the expert that plays from observations"}


def player_rows(env: SearchEnv, tasks: Sequence[int]) -> Iterator[Row]:
    """Count the questions that each player answers with searches, told by their number of hops."""
    for player, name in NAMES.items():
        trees = play_all(env, partial(_one, PLAYERS[player]()), [(task, 0) for task in tasks])
        episodes = from_trees(trees)
        tried, won, lost, searches = Counter[int](), Counter[int](), list[str](), 0.0
        for episode in episodes:
            hops = len(getattr(env.tasks[episode.task], "queries", ()))
            good = episode.score >= 1
            tried[hops] += 1
            won[hops] += good
            searches += episode.search.get("searches", 0.0)
            lost += [] if good else [f"{env.tasks[episode.task].id} ({episode.stop})"]
        by = ", ".join(f"{hops} hops {won[hops]}/{tried[hops]}" for hops in sorted(tried))
        note = f"{by}, {searches / len(episodes):.2f} searches a question" + (
            f"; {first(lost, 3)}" if lost else ""
        )
        yield Row(
            f"questions of the world answered by {name}", won.total(), tried.total(), note, NEED
        )


def _one(player: Player, task: int, seed: int) -> Player:
    return player
