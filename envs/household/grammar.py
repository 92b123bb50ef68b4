"""What the game says: the sentences of ALFWorld's text grammar, in its present form and in the one before 0.4.

The forms differ in what `go to` answers and in how a thing is put down, and only the present one has `help`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOTHING = "Nothing happens."
INTRO = "-= Welcome to TextWorld, ALFRED! =-\n\n{look}\n\n{task}"

HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


@dataclass(frozen=True)
class Dialect:
    """One form of the text.

    Args:
        put: The verb of putting a thing down.
        into: The word between the thing and the receptacle.
        anywhere: The commands that are always there, sorted.
        arrives_at_place: Whether `go to` names the place (`loc 12`) instead of the receptacle.
    """

    put: str
    into: str
    anywhere: tuple[str, ...]
    arrives_at_place: bool


DIALECTS = {
    "current": Dialect("move", "to", ("help", "inventory", "look"), arrives_at_place=False),
    "old": Dialect("put", "in/on", ("inventory", "look"), arrives_at_place=True),
}


def get_dialect(name: str) -> Dialect:
    """Return the form of the text called `name`; raise ValueError where there is none."""
    if name not in DIALECTS:
        raise ValueError(
            f"text is {name!r}; it is 'current' (`move X to Y`) or 'old' (`put X in/on Y`, before alfworld 0.4)"
        )
    return DIALECTS[name]


def listed(names: Sequence[str]) -> str:
    """Return `a mug 2, a mug 1, and a pen 1`, or `nothing`."""
    if not names:
        return "nothing"
    if len(names) == 1:
        return f"a {names[0]}"
    return f"a {', a '.join(names[:-1])}, and a {names[-1]}"


def facing(names: Sequence[str]) -> str:
    """Return `cabinet 2, and cabinet 1`: receptacles come without an article here."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"


def state_of_thing(name: str, *, clean: bool, hot: bool, cool: bool, sliced: bool, on: bool) -> str:
    """Return what a look at a thing tells of it: first what was done to it, of hot and cool the heat."""
    warmth = "hot" if hot else "cool" if cool else ""
    if (sliced and (clean or warmth)) or (clean and warmth):
        words = " and ".join(word for word in (warmth, "clean" if clean else "") if word)
        return f"This is a {words}{' sliced' if sliced else ''} {name}."
    if hot or clean or cool:
        return f"This is a {'hot' if hot else 'clean' if clean else 'cold'} {name}."
    if on:
        return f"This {name} is on."
    return f"This is a sliced {name}." if sliced else f"There's nothing special about {name}."
