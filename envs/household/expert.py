"""An agent that plays household tasks well from the observations alone, in either form of the text.

It searches receptacles in the order of their chance of success for each turn, remembers what it saw, and then does the
task. The chances (`priors.json`) were counted over the start of every game of the train split, and of no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .house import BECOMES, LOOK, TABLES, Chore
from .play import NOTHING

FILE = Path(__file__).with_name("priors.json")
RARE = 0.002  # of a kind of receptacle, or of thing, that was not counted


@dataclass(frozen=True)
class Priors:
    """How often things are where at the start of a game."""

    found: dict[
        str, dict[str, float]
    ]  # by kinds of thing and receptacle: the share that holds such a thing
    shut: dict[str, float]  # for each kind of receptacle the share that is closed at first

    def chance(self, thing: str, receptacle: str) -> float:
        """Return how likely one receptacle of a kind holds a thing of a kind."""
        return max(self.found.get(thing, {}).get(receptacle, 0.0), RARE)


@cache
def load_priors() -> Priors:
    return Priors(**json.loads(FILE.read_text("utf-8")))


MARK = "Your task is to:"

_SENTENCES = [
    (task_type, form.format(thing=r"(?P<thing>\w+)", target=r"(?P<target>\w+)"))
    for task_type, forms in TABLES["sentences"].items()
    for form in forms
]


def parse_task(text: str) -> Chore:
    """Return the task of a game's first text. Raises ValueError where none is stated in ALFWorld's words."""
    _, mark, rest = text.partition(MARK)
    sentence = rest.strip().partition("\n")[0].rstrip(". ")
    if not mark:
        raise ValueError(f"the text {text[:60]!r} states no task: it has no {MARK!r}")
    for task_type, form in _SENTENCES:
        if match := re.fullmatch(form, sentence):
            return Chore(task_type, match["thing"], match["target"])
    raise ValueError(
        f"the task {sentence!r} is in none of ALFWorld's forms, such as 'put a clean mug in cabinet'"
    )


_NAME = r"[a-z]+ \d+"
_SEEN = re.compile(rf"(?:On the|The) ({_NAME})(?: is open\. In it)?, you see ([^.]*)\.")
_SHUT = re.compile(rf"The ({_NAME}) is closed\.")
_CLOSED = re.compile(rf"You close the ({_NAME})\.")
_LISTED = re.compile(rf"\ba ({_NAME})")
_TAKEN = re.compile(rf"You pick up the ({_NAME}) from the ({_NAME})\.")
_PUT = re.compile(rf"You (?:move|put) the ({_NAME}) (?:to|in/on) the ({_NAME})\.")
_TREATED = re.compile(rf"You (clean|heat|cool) the ({_NAME}) using the {_NAME}\.")


def kind_of(name: str) -> str:
    """Return `mug` for `mug 2`."""
    return name.partition(" ")[0]


@dataclass
class Memory:
    """What is known of a house."""

    receptacles: list[str]  # the receptacles that the first text lists, from the last to the first
    contents: dict[str, list[str]] = field(
        default_factory=dict
    )  # what was last seen in or on each receptacle
    shut: set[str] = field(default_factory=set)  # the receptacles that are closed
    held: str = ""  # the thing in hand, empty for none
    states: dict[str, set[str]] = field(
        default_factory=dict
    )  # of things that were treated: `clean`, `hot`, `cool`
    here: set[str] = field(default_factory=set)  # the receptacles within reach, as far as known
    groups: dict[str, set[str]] = field(
        default_factory=dict
    )  # receptacles known to be at the same place, by each
    old: bool | None = (
        None  # whether the text is that before alfworld 0.4; None while that is not known
    )
    refused: set[str] = field(
        default_factory=set
    )  # the commands that the game answered with `Nothing happens.`

    @classmethod
    def of_room(cls, text: str) -> Memory:
        """Return the memory after the first text of a game."""
        room = text.partition("you see ")[2].partition("\n")[0]
        return cls(_LISTED.findall(room)[::-1])  # the last is that with the number 1

    def read(self, command: str, text: str) -> None:
        """Update the memory with the answer `text` to `command`."""
        goes_to = command[6:] if command.startswith("go to ") else ""
        if text.startswith(NOTHING):
            if not self.here or goes_to not in self.receptacles:
                self.refused.add(command)
                return
            self.here |= self.groups.get(
                goes_to, {goes_to}
            )  # one cannot go where one is: it is at this place too
            self.groups.update(dict.fromkeys(self.here, self.here))
            return
        if goes_to:
            self.here = self.groups.setdefault(goes_to, {goes_to})
            if text.startswith("You arrive at "):  # some wrappers leave this out
                self.old = text.startswith("You arrive at loc ")
        self.shut.update(_SHUT.findall(text), _CLOSED.findall(text))
        for name, listed in _SEEN.findall(text):
            self.shut.discard(name)
            self.contents[name] = _LISTED.findall(listed)
        if found := _TAKEN.match(text):
            self.held = found[1]
            self.contents[found[2]] = [
                thing for thing in self.contents.get(found[2], []) if thing != found[1]
            ]
        elif found := _PUT.match(text):
            self.held = ""
            self.contents.setdefault(found[2], []).append(found[1])
        elif found := _TREATED.match(text):
            states = self.states.setdefault(found[2], set())
            states -= {"hot", "cool"} if found[1] != "clean" else set()
            states.add(BECOMES[found[1]])

    def things(self, kind: str) -> list[tuple[str, str]]:
        """Return the things of a kind that were seen, each with its receptacle."""
        return [
            (thing, place)
            for place, seen in self.contents.items()
            for thing in seen
            if kind_of(thing) == kind
        ]

    def of_kind(self, kind: str) -> list[str]:
        return [name for name in self.receptacles if kind_of(name) == kind]

    def known(self, receptacle: str) -> bool:
        """Return whether it is known if a receptacle has to be opened."""
        return receptacle in self.contents or receptacle in self.shut

    def forget(self) -> None:
        """Forget what is where and what was refused, so that a search begins anew."""
        self.contents.clear()
        self.refused.clear()


_MOVE, _PUT_OLD = "move {} to {}", "put {} in/on {}"
_FORMS = {False: (_MOVE,), True: (_PUT_OLD,), None: (_MOVE, _PUT_OLD)}  # by `Memory.old`
_ADMISSIBLE = "\n\nAdmissible commands:"  # an environment may list them; they are not needed


class Expert:
    """Plays one episode after the other: a text that states a task begins a new one.

    If another action is taken than it proposed, set `command` to that action; it continues from there. `priors` say
    where things are usually found; they are those of the official train split when left out.
    """

    def __init__(self, priors: Priors | None = None) -> None:
        self.priors = priors or load_priors()
        self.memory = Memory([])
        self.task = Chore("", "", "")
        self.command = ""

    def act(self, observation: str) -> str:
        """Return the next command after what the game said. Raises ValueError where a first text states no task."""
        text = observation.partition(_ADMISSIBLE)[0].strip()
        if MARK in text:
            self.task, self.memory = parse_task(text), Memory.of_room(text)
        elif not self.command:
            raise ValueError(
                f"the first text, {text[:60]!r}, states no task; begin with the first text of a game"
            )
        else:
            self.memory.read(self.command, text)
        self.command = self._next()
        if not self.command:  # a new search begins
            self.memory.forget()
            self.command = self._next() or "look"
        return self.command

    def _next(self) -> str:
        """Return the next command; empty where nothing is left to try."""
        memory, task = self.memory, self.task
        if not memory.held:
            return self._take() or self._search(task.thing)
        if kind_of(memory.held) != task.thing:
            return self._put_into(self._spare())
        if task.task_type == LOOK:
            lamps = ((place, f"use {lamp}") for lamp, place in memory.things(task.target))
            return self._first(lamps, inside=False) or self._search(task.target)
        if task.verb and BECOMES[task.verb] not in memory.states.get(memory.held, ()):
            places = memory.of_kind(task.tool)
            return self._first(
                ((place, f"{task.verb} {memory.held} with {place}") for place in places),
                inside=False,
            )
        return self._put_into(self._targets())

    def _take(self) -> str:
        kept = self._targets()[:1] if self.task.number > 1 else []
        seen = self.memory.things(self.task.thing)
        wanted = (
            (thing, place)
            for thing, place in seen
            if place not in kept and not self._needless(place)
        )
        return self._first((place, f"take {thing} from {place}") for thing, place in wanted)

    def _put_into(self, places: list[str]) -> str:
        held, forms = self.memory.held, _FORMS[self.memory.old]
        return self._first((place, form.format(held, place)) for place in places for form in forms)

    def _first(self, choices: Iterable[tuple[str, str]], inside: bool = True) -> str:
        """Return what leads to the first command that the game does not refuse, of (place, command); empty for none.

        That is to go to the place first and, where the command reaches `inside` it, to open it.
        """
        memory = self.memory
        place, command = next(
            (choice for choice in choices if choice[1] not in memory.refused), ("", "")
        )
        if place and place not in memory.here:
            return f"go to {place}"
        return f"open {place}" if inside and place in memory.shut else command

    def _targets(self) -> list[str]:  # best first: those that hold such things, then the nearest
        memory, kind = self.memory, self.task.thing

        def work(place: str) -> tuple[int, float]:
            already = sum(kind_of(thing) == kind for thing in memory.contents.get(place, []))
            opening = float(place in memory.shut)
            if not memory.known(place):
                opening = self.priors.shut.get(kind_of(place), 0.0)
            return -already, opening + (place not in memory.here)

        return sorted(memory.of_kind(self.task.target), key=work)

    def _spare(
        self,
    ) -> list[
        str
    ]:  # where to put a thing that is not wanted, best first: usual places, then near ones
        memory, kind = self.memory, kind_of(self.memory.held)
        unlikely = {
            place
            for place in memory.receptacles
            if self.priors.chance(kind, kind_of(place)) <= RARE
        }
        return sorted(
            memory.receptacles, key=lambda place: (place in unlikely, place not in memory.here)
        )

    def _search(self, kind: str) -> str:
        """Return the next command of the search, towards the most promising receptacle; empty where all were seen."""
        memory, task = self.memory, self.task
        wanted = (
            {kind, task.target}
            if task.task_type == LOOK and not memory.things(task.target)
            else {kind}
        )
        left = [place for place in memory.receptacles if place not in memory.contents]
        left = [
            place for place in left if not {f"go to {place}", f"examine {place}"} & memory.refused
        ]
        if not left:
            return ""
        place = max(left, key=lambda place: self._worth(place, wanted))
        likely_shut = place in memory.shut or self.priors.shut.get(kind_of(place), 0.0) > 0.5
        looks = [f"open {place}"] * likely_shut + [f"examine {place}"]
        return self._first(((place, look) for look in looks), inside=False)

    def _worth(self, place: str, wanted: set[str]) -> float:
        """Return the chance of finding something wanted in a receptacle, for each turn that it takes."""
        if self._needless(place):
            return 1e-6
        memory, kind = self.memory, kind_of(place)
        turns = 1.0  # what is within reach is opened, or else examined, in one
        if place not in memory.here:
            turns += 1.0 if place in memory.shut else self.priors.shut.get(kind, 0.0)
        return sum(self.priors.chance(thing, kind) for thing in wanted) / turns

    def _needless(self, place: str) -> bool:
        """Return whether no such thing can be there yet: the task would have been done at the start."""
        task = self.task
        return kind_of(place) == task.target and task.number == 1 and not task.verb
