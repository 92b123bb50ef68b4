"""Demonstrations in the text before alfworld 0.4, replayed in the games that they were made in.

Such files do not say which game, so it is looked for: the same room, and the most lines alike. Their authors changed
some lines by hand; those are listed here, and a listed line that is the game's own is out of date.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from turngym.envs.household.play import intro, step
from turngym.envs.household.world import World
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.episodes import Episode
from turngym.tests.verify.rows import Row, first

TASK = "the task"
EMPTIED = "another text was put in place of what lies there"
EDITED: Mapping[
    tuple[str, str], str
] = {  # the end of a demonstration's id, an action of it: how its answer differs
    (
        "put_0",
        "go to cabinet 1",
    ): "two things were added that are not there, and the list has no `and`",
    ("put_1", "go to diningtable 1"): EMPTIED,
    ("put_1", "go to diningtable 2"): EMPTIED,
    ("put_1", TASK): "the task was rewritten: the game wants the apple clean",
    ("clean_1", "go to diningtable 1"): EMPTIED,
    ("clean_1", "go to diningtable 2"): EMPTIED,
    (
        "heat_0",
        "open fridge 1",
    ): "the `go to fridge 1` before it was left out, without which nothing happens",
    ("heat_0", "go to countertop 2"): EMPTIED,
    (
        "/react_cool_0",
        "take pan 1 from stoveburner 3",
    ): "the answer stands behind the thought that follows",
    ("/act_examine_0", TASK): "an `OK.` was left behind the task",
}

_ARRIVAL = re.compile(r"^You arrive at loc \d+\. ")


@dataclass
class Replayed:
    """How a demonstration went in one game: the actions whose answers differ, with what the game says."""

    game: str
    actions: int = 0
    other: dict[str, str] = field(default_factory=dict)

    @property
    def alike(self) -> int:
        """How many answers are the game's."""
        return self.actions - len(self.other)


def demo_row(catalogue: Catalogue, demos: Sequence[Episode]) -> Row:
    """Count the demonstrations whose every line is the game's, or is listed."""
    best, bad, listed = _best(catalogue, demos), list[str](), defaultdict[str, list[str]](list)
    for demo in demos:
        if demo.id not in best:
            bad.append(f"{demo.id}: its room is in none of the games")
            continue
        edited = {what: why for (end, what), why in EDITED.items() if demo.id.endswith(end)}
        other = best[demo.id].other
        bad += [
            f"{demo.id} {what!r}: the game says {text!r}"
            for what, text in other.items()
            if what not in edited
        ]
        bad += [
            f"{demo.id} {what!r}: is listed and is the game's"
            for what in edited
            if what not in other
        ]
        for what in edited:
            listed[f"{what}: {edited[what]}"].append(demo.id)
    short = {text.partition(" ")[0].rstrip(":") for text in bad}
    note = "; ".join(filter(None, [first(bad, 3), *_said(demos, best), *_lines(listed)]))
    return Row("old text: demonstrations replayed", len(demos) - len(short), len(demos), note)


def _said(demos: Sequence[Episode], best: Mapping[str, Replayed]) -> Iterator[str]:
    alike, actions = (
        sum(getattr(found, name) for found in best.values()) for name in ("alike", "actions")
    )
    thoughts = Counter(_thought(moment.action) for demo in demos for moment in demo.moments)[True]
    whole = sum(not found.other for found in best.values())
    yield f"{whole} without any other line; {alike} of {actions} lines are the games'"
    yield f"{thoughts} lines `think: …`, with their `OK.`, are the authors' own"
    yield "`You arrive at loc N.` is cut from all"


def _lines(listed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    return (f"not the game's in {', '.join(ids)}: {what}" for what, ids in listed.items())


def _best(catalogue: Catalogue, demos: Sequence[Episode]) -> dict[str, Replayed]:
    """Return for each demonstration the game with its room that answers most of it alike."""
    wanted, best = defaultdict[str, list[Episode]](list), dict[str, Replayed]()
    for demo in demos:
        wanted[demo.opening.partition("\n")[0]].append(demo)
    sizes = {len(re.findall(r"(?:, |see )(?:and )?a ", room)) for room in wanted}
    for game in catalogue:
        if (
            game.problem.lower().partition("(:goal")[0].count("(receptacleatlocation ") not in sizes
        ):  # spares reading it
            continue
        world = game.world("old")
        for demo in wanted.get(intro(world).split("\n\n")[1], ()):
            found = _replayed(game.id, world, demo)
            if demo.id not in best or found.alike > best[demo.id].alike:
                best[demo.id] = found
    return best


def _replayed(game: str, world: World, demo: Episode) -> Replayed:
    state, found = world.start, Replayed(game, actions=1)
    if demo.opening.partition("\n")[2] != world.task:
        found.other[TASK] = world.task
    for moment in demo.moments:
        if _thought(moment.action):
            continue
        found.actions += 1
        state, text = step(world, state, moment.action)
        if (text := _ARRIVAL.sub("", text)) != moment.observation:
            found.other[moment.action] = text
    if not world.is_won(state) and TASK not in found.other:
        found.other["the end"] = "the game is not won"
    return found


def _thought(action: str) -> bool:
    return action.startswith("think:")
