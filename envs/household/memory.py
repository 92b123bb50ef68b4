"""What an agent knows from the observations alone: the task, and what it has seen of the house."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .play import NOTHING

MARK = "Your task is to:"

_STATE_WORDS = {"clean": "clean", "heat": "hot", "hot": "hot", "cool": "cool"}
_SENTENCES = (
    r"put (?P<number>two) (?P<kind>\w+) in (?P<target>\w+)",
    r"find (?P<number>two) (?P<kind>\w+) and put them in (?P<target>\w+)",
    r"put (?:a|some) (?:(?P<state>clean|hot|cool) )?(?P<kind>\w+) (?:in|on) (?P<target>\w+)",
    r"(?P<state>clean|heat|cool) some (?P<kind>\w+) and put it in (?P<target>\w+)",
    r"find some (?P<kind>\w+) and put it in (?P<target>\w+)",
    r"examine the (?P<kind>\w+) with the (?P<lamp>\w+)",
    r"look at (?P<kind>\w+) under the (?P<lamp>\w+)",
)


@dataclass(frozen=True)
class ParsedTask:
    """The parts of the sentence that states a task.

    Args:
        kind: The kind of thing, as in `mug`.
        target: The kind of receptacle it goes to; empty where it is to be looked at.
        state: `clean`, `hot`, `cool` or empty.
        number: How many things.
        lamp: The kind of lamp to look at the thing with; empty where it is to be put somewhere.
    """

    kind: str
    target: str = ""
    state: str = ""
    number: int = 1
    lamp: str = ""


def parse_task(text: str) -> ParsedTask:
    """Return the task that the first text of a game states.

    Raises:
        ValueError: it states none, or in words that ALFWorld's templates do not have.
    """
    _, mark, rest = text.partition(MARK)
    sentence = rest.strip().partition("\n")[0].rstrip(". ")
    if not mark:
        raise ValueError(f"the text {text[:60]!r} states no task: it has no {MARK!r}")
    for pattern in _SENTENCES:
        if match := re.fullmatch(pattern, sentence):
            found = {name: value or "" for name, value in match.groupdict().items()}
            return ParsedTask(
                found["kind"],
                found.get("target", ""),
                _STATE_WORDS.get(found.get("state", ""), ""),
                2 if found.get("number") else 1,
                found.get("lamp", ""),
            )
    raise ValueError(f"the task {sentence!r} is in none of ALFWorld's forms, such as 'put a clean mug in cabinet'")


_NAME = r"[a-z]+ \d+"
_SEEN = re.compile(rf"(?:On the|The) ({_NAME})(?: is open\. In it)?, you see ([^.]*)\.")
_SHUT = re.compile(rf"The ({_NAME}) is closed\.")
_CLOSED = re.compile(rf"You close the ({_NAME})\.")
_LISTED = re.compile(rf"\ba ({_NAME})")
_TAKEN = re.compile(rf"You pick up the ({_NAME}) from the ({_NAME})\.")
_PUT = re.compile(rf"You (?:move|put) the ({_NAME}) (?:to|in/on) the ({_NAME})\.")
_TREATED = re.compile(rf"You (clean|heat|cool) the ({_NAME}) using the {_NAME}\.")
_STATES = {"clean": "clean", "heat": "hot", "cool": "cool"}


def kind_of(name: str) -> str:
    """Return `mug` for `mug 2`."""
    return name.partition(" ")[0]


@dataclass
class Memory:
    """What is known of a house.

    Args:
        receptacles: The receptacles that the first text lists, from the last to the first.
        contents: What was last seen in or on each receptacle that was looked into.
        shut: The receptacles that are closed.
        held: The thing in hand, empty for none.
        states: For each thing that was treated, `clean`, `hot` or `cool`; both where both were done.
        here: The receptacles within reach, as far as known.
        groups: For each receptacle those that are known to be at the same place, itself among them.
        old: Whether the text is that before alfworld 0.4; None while that is not known.
        refused: The commands that the game answered with `Nothing happens.`.
    """

    receptacles: list[str]
    contents: dict[str, list[str]] = field(default_factory=dict)
    shut: set[str] = field(default_factory=set)
    held: str = ""
    states: dict[str, set[str]] = field(default_factory=dict)
    here: set[str] = field(default_factory=set)
    groups: dict[str, set[str]] = field(default_factory=dict)
    old: bool | None = None
    refused: set[str] = field(default_factory=set)

    @classmethod
    def of_room(cls, text: str) -> Memory:
        """Return the memory after the first text of a game."""
        room = text.partition("you see ")[2].partition("\n")[0]
        return cls(_LISTED.findall(room)[::-1])  # the last is that with the number 1

    def read(self, command: str, text: str) -> None:
        """Update the memory with the answer `text` to `command`."""
        if text.startswith(NOTHING):
            self._refuse(command)
            return
        if command.startswith("go to "):
            self.here = self.groups.setdefault(command[6:], {command[6:]})
            if text.startswith("You arrive at "):  # some wrappers leave this out
                self.old = text.startswith("You arrive at loc ")
        self.shut.update(_SHUT.findall(text), _CLOSED.findall(text))
        for name, listed in _SEEN.findall(text):
            self.shut.discard(name)
            self.contents[name] = _LISTED.findall(listed)
        self._handle(text)

    def things(self, kind: str) -> list[tuple[str, str]]:
        """Return the things of a kind that were seen, each with its receptacle."""
        return [(thing, place) for place, seen in self.contents.items() for thing in seen if kind_of(thing) == kind]

    def of_kind(self, kind: str) -> list[str]:
        """Return the receptacles of a kind."""
        return [name for name in self.receptacles if kind_of(name) == kind]

    def known(self, receptacle: str) -> bool:
        """Return whether it is known if a receptacle has to be opened."""
        return receptacle in self.contents or receptacle in self.shut

    def forget(self) -> None:
        """Forget what is where and what was refused, so that a search begins anew."""
        self.contents.clear()
        self.refused.clear()

    def _handle(self, text: str) -> None:
        if found := _TAKEN.match(text):
            self.held = found[1]
            self.contents[found[2]] = [thing for thing in self.contents.get(found[2], []) if thing != found[1]]
        elif found := _PUT.match(text):
            self.held = ""
            self.contents.setdefault(found[2], []).append(found[1])
        elif found := _TREATED.match(text):
            states = self.states.setdefault(found[2], set())
            states -= {"hot", "cool"} if found[1] != "clean" else set()
            states.add(_STATES[found[1]])

    def _refuse(self, command: str) -> None:
        name = command[6:]
        if command.startswith("go to ") and self.here and name in self.receptacles:
            # One cannot go where one is: it is at this place too.
            self.here |= self.groups.get(name, {name})
            for other in self.here:
                self.groups[other] = self.here
        else:
            self.refused.add(command)
