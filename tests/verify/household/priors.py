"""How often things are where, counted over the start of games; `priors.json` of the expert was written by this:

Path("priors.json").write_text(to_json(count(game.world() for game in open_games(FOLDER, "train"))))
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable

from turngym.envs.household import World
from turngym.envs.household.expert import Priors, kind_of
from turngym.envs.household.pddl import iterate_bits


def count(worlds: Iterable[World]) -> Priors:
    """Return the priors counted over the start of some games."""
    there: dict[str, Counter[str]] = defaultdict(Counter)
    holding: dict[str, Counter[str]] = defaultdict(Counter)
    number: Counter[str] = Counter()
    shut: Counter[str] = Counter()
    for world in worlds:
        kinds = [kind_of(name) for name in world.receptacle_names]
        number.update(kinds)
        shut.update(kind for r, kind in enumerate(kinds) if world.is_closed(world.start, r))
        inside = [
            {kind_of(world.thing_names[o]) for o in iterate_bits(world.start.inside[r])}
            for r in range(len(kinds))
        ]
        for thing in set().union(*inside):
            there[thing].update(kinds)
            holding[thing].update(
                kind for kind, held in zip(kinds, inside, strict=True) if thing in held
            )
    found = {
        thing: {
            kind: round(n / there[thing][kind], 4) for kind, n in sorted(holding[thing].items())
        }
        for thing in sorted(there)
    }
    return Priors(found, {kind: round(shut[kind] / number[kind], 4) for kind in sorted(number)})


def to_json(priors: Priors) -> str:
    """Return priors as JSON, one line for each kind of thing."""
    lines = ",\n".join(
        f"  {json.dumps(kind)}: {json.dumps(shares)}" for kind, shares in priors.found.items()
    )
    return f'{{"shut": {json.dumps(priors.shut)},\n"found": {{\n{lines}\n}}}}\n'
