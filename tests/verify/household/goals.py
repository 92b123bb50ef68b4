"""What a game wants, read from its name or from its task's sentence alone: a reading beside that of its PDDL goal.

Official games are called `split/TASK_TYPE-OBJECT-MOVABLE-RECEPTACLE-ROOM/trial`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turngym.envs.household.game import TASK_TYPES, Game
from turngym.envs.household.pddl import State, iterate_bits
from turngym.envs.household.world import World

_PLACE, _LOOK, _CLEAN, _HEAT, _COOL, _TWO = TASK_TYPES
_SAID = {"clean": _CLEAN, "heat": _HEAT, "hot": _HEAT, "cool": _COOL, "two": _TWO}
_LIT = re.compile(r"(?:look at|examine the) (\w+) (?:under|with) the (\w+)\.?")
_PUT = re.compile(
    r"(?:put|clean|heat|cool|find) (?:a |some )?(?:(clean|hot|cool|two) )?(\w+).* (?:in|on) (\w+)\.?"
)
_BASINS = {"sink": "sinkbasin", "bathtub": "bathtubbasin"}


@dataclass(frozen=True)
class Aim:
    """A task: `kind` is the kind of thing, `target` the kind of receptacle, or of lamp."""

    task_type: str
    kind: str
    target: str

    def reached(self, world: World, state: State) -> bool:
        """Return whether a state is what was wanted."""
        things = [o for o, name in enumerate(world.thing_names) if _kind(name) == self.kind]
        if self.task_type == "look_at_obj_in_light":
            lit = [
                o
                for o, name in enumerate(world.thing_names)
                if _kind(name) == self.target and state.toggled >> o & 1
            ]
            near = any(
                state.inside[r] >> o & 1 for o in lit for r in world.receptacles_at[state.place]
            )
            return near and state.in_hand in things
        done = {"pick_clean": state.clean, "pick_heat": state.hot, "pick_cool": state.cool}
        treated = done.get(self.task_type.partition("_then")[0], -1)
        wanted = 2 if self.task_type == "pick_two_obj_and_place" else 1
        homes = [r for r, name in enumerate(world.receptacle_names) if _kind(name) == self.target]
        fit = [
            [o for o in iterate_bits(state.inside[r]) if o in things and treated >> o & 1]
            for r in homes
        ]
        return any(len(found) >= wanted for found in fit)


def aim_of(game: Game) -> Aim | None:
    """Return what a game's name says of its task; None where it says nothing."""
    folder = next((part for part in game.id.split("/") if part.partition("-")[0] in TASK_TYPES), "")
    parts = folder.split("-")
    if len(parts) != 5:
        return None
    target = parts[3].lower()
    return Aim(parts[0], parts[1].lower(), _BASINS.get(target, target))


def aim_of_task(task: str) -> Aim:
    """Return what the sentence of a task says.

    Raises:
        ValueError: it is no sentence of a task.
    """
    said = task.removeprefix("Your task is to: ")
    if lit := _LIT.fullmatch(said):
        return Aim(_LOOK, lit[1], lit[2])
    if put := _PUT.fullmatch(said):
        return Aim(_SAID.get(put[1] or said.partition(" ")[0], _PLACE), put[2], put[3])
    raise ValueError(f"{task!r} is the sentence of no task")


def _kind(name: str) -> str:
    return name.partition(" ")[0]
