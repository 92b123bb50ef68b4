"""Where kinds of things are usually found: counted over the start of every game of the train split, and of no other.

`priors.json` was written by this, with the official games in FOLDER:

    Path("priors.json").write_text(to_json(count(game.world() for game in open_games(FOLDER, "train"))))
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .memory import kind_of
from .state import members
from .world import World

FILE = Path(__file__).with_name("priors.json")
RARE = 0.002  # of a kind of receptacle, or of thing, that was not counted


@dataclass(frozen=True)
class Priors:
    """What is usual.

    Args:
        found: For each kind of thing and kind of receptacle the share of such receptacles that hold such a thing, in
            the games that have both.
        shut: For each kind of receptacle the share that is closed at first.
    """

    found: dict[str, dict[str, float]]
    shut: dict[str, float]

    def chance(self, thing: str, receptacle: str) -> float:
        """Return how likely one receptacle of a kind holds a thing of a kind."""
        return max(self.found.get(thing, {}).get(receptacle, 0.0), RARE)


def count(worlds: Iterable[World]) -> Priors:
    """Count what lies where when the games begin."""
    there: dict[str, Counter[str]] = defaultdict(Counter)
    holding: dict[str, Counter[str]] = defaultdict(Counter)
    number: Counter[str] = Counter()
    shut: Counter[str] = Counter()
    for world in worlds:
        kinds = [kind_of(name) for name in world.receptacles]
        number.update(kinds)
        shut.update(kind for r, kind in enumerate(kinds) if world.shut(world.start, r))
        inside = [{kind_of(world.things[o]) for o in members(world.start.inside[r])} for r in range(len(kinds))]
        for thing in set().union(*inside):
            there[thing].update(kinds)
            holding[thing].update(kind for kind, held in zip(kinds, inside, strict=True) if thing in held)
    found = {
        thing: {kind: round(n / there[thing][kind], 4) for kind, n in sorted(holding[thing].items())}
        for thing in sorted(there)
    }
    return Priors(found, {kind: round(shut[kind] / number[kind], 4) for kind in sorted(number)})


def to_json(priors: Priors) -> str:
    """Return priors as JSON, a kind of thing a line."""
    lines = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(shares)}" for kind, shares in priors.found.items())
    return f'{{"shut": {json.dumps(priors.shut)},\n"found": {{\n{lines}\n}}}}\n'


@cache
def load_priors() -> Priors:
    """Return the priors of the train split."""
    return Priors(**json.loads(FILE.read_text("utf-8")))
