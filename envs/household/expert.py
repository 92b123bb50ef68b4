"""An agent that plays household tasks well from the observations alone, in either form of the text.

`Expert.act` returns its next command. It searches receptacles in the order of their chance of
success for each turn, keeps what it saw in a `Memory`, and then does the task. The chances
(`priors.json`) were counted over the start of every game of the train split, and of no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .house import LOOK, STATE_AFTER, TABLES, Chore
from .play import NOTHING_HAPPENS

FILE = Path(__file__).with_name("priors.json")
RARE = 0.002  # the chance of finding a thing where none was counted
_LAST_RESORT_WORTH = 1e-6  # of searching where nothing wanted can be, below any other worth
_TASK_PREFIX = "Your task is to:"
_ADMISSIBLE_HEADING = (
    "\n\nAdmissible commands:"  # an environment may list them; they are not needed
)


@dataclass(frozen=True)
class Priors:
    """How often things are where, and receptacles closed, at the start of a game."""

    # By kind of thing and kind of receptacle: the share of such receptacles with such a thing,
    # among the games that have one.
    found: dict[str, dict[str, float]]
    shut: dict[str, float]  # for each kind of receptacle the share that is closed

    def chance_inside(self, thing_kind: str, receptacle_kind: str) -> float:
        """Return how likely a thing of a kind is in or on one receptacle of a kind."""
        return max(self.found.get(thing_kind, {}).get(receptacle_kind, 0.0), RARE)

    def chance_closed(self, receptacle_kind: str) -> float:
        """Return how likely a receptacle of a kind is closed."""
        return self.shut.get(receptacle_kind, 0.0)


@cache
def load_priors() -> Priors:
    """Return the priors of the official train split."""
    return Priors(**json.loads(FILE.read_text("utf-8")))


class _SentenceForm(NamedTuple):
    """A way to state a task of a type."""

    task_type: str
    pattern: str  # a regex with the groups `thing` and `target`


def _make_sentence_forms() -> list[_SentenceForm]:
    forms = []
    for task_type, sentences in TABLES["sentences"].items():
        for sentence in sentences:
            pattern = sentence.format(thing=r"(?P<thing>\w+)", target=r"(?P<target>\w+)")
            forms.append(_SentenceForm(task_type, pattern))
    return forms


_SENTENCE_FORMS = _make_sentence_forms()


def parse_task(text: str) -> Chore:
    """Return the task that the first text of a game states.

    The task is in a line such as `Your task is to: put a clean mug in cabinet.`

    Raises:
        ValueError: The text states no task in ALFWorld's words.
    """
    _, prefix, text_after_prefix = text.partition(_TASK_PREFIX)
    if not prefix:
        raise ValueError(f"the text {text[:60]!r} states no task: it has no {_TASK_PREFIX!r}")
    first_line = text_after_prefix.strip().partition("\n")[0]
    sentence = first_line.rstrip(". ")
    for form in _SENTENCE_FORMS:
        match = re.fullmatch(form.pattern, sentence)
        if match:
            return Chore(form.task_type, thing=match["thing"], target=match["target"])
    raise ValueError(
        f"the task {sentence!r} is in none of ALFWorld's forms, "
        "such as 'put a clean mug in cabinet'"
    )


def kind_of(name: str) -> str:
    """Return the kind of a thing or receptacle: `mug 2` -> `mug`."""
    return name.partition(" ")[0]


# What the game says. The text before alfworld 0.4 has other words for putting a thing down.
_NAME = r"[a-z]+ \d+"
_SEEN_CONTENTS = re.compile(rf"(?:On the|The) ({_NAME})(?: is open\. In it)?, you see ([^.]*)\.")
_IS_CLOSED = re.compile(rf"The ({_NAME}) is closed\.")
_WAS_CLOSED = re.compile(rf"You close the ({_NAME})\.")
_LISTED_NAME = re.compile(rf"\ba ({_NAME})")
_TAKEN = re.compile(rf"You pick up the (?P<thing>{_NAME}) from the (?P<receptacle>{_NAME})\.")
_PUT = re.compile(
    rf"You (?:move|put) the (?P<thing>{_NAME}) (?:to|in/on) the (?P<receptacle>{_NAME})\."
)
_TREATED = re.compile(rf"You (?P<verb>clean|heat|cool) the (?P<thing>{_NAME}) using the {_NAME}\.")


@dataclass
class Memory:
    """What is known of a house. Things and receptacles are called by their names.

    Args:
        receptacles: The receptacles that the first text lists, from the last to the first.
        contents: What was last seen in or on each receptacle.
        closed: The receptacles that are closed.
        in_hand: The thing in hand, empty for none.
        states: The states of things that were treated: `clean`, `hot`, `cool`.
        within_reach: The receptacles at the agent's place, as far as known.
        same_place: For a receptacle all those known to be at its place. They share one set.
        uses_old_text: Whether the text is that before alfworld 0.4; None as long as it is not
            known.
        refused: The commands that the game answered with `Nothing happens.`
    """

    receptacles: list[str]
    contents: dict[str, list[str]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    in_hand: str = ""
    states: dict[str, set[str]] = field(default_factory=dict)
    within_reach: set[str] = field(default_factory=set)
    same_place: dict[str, set[str]] = field(default_factory=dict)
    uses_old_text: bool | None = None
    refused: set[str] = field(default_factory=set)

    @classmethod
    def from_first_text(cls, text: str) -> Memory:
        """Return the memory after the first text of a game, which lists the receptacles."""
        room = text.partition("you see ")[2].partition("\n")[0]
        names = _LISTED_NAME.findall(room)
        return cls(receptacles=names[::-1])  # the game lists `drawer 1` last

    def update(self, command: str, answer: str) -> None:
        """Learn from the game's answer to a command.

        Args:
            command: The command, such as `go to desk 1`.
            answer: The answer, such as `You arrive at desk 1. On the desk 1, you see a mug 1.`
        """
        destination = ""
        if command.startswith("go to "):
            destination = command.removeprefix("go to ")
        if answer.startswith(NOTHING_HAPPENS):
            self._learn_from_refusal(command, destination)
            return
        if destination:
            self.within_reach = self.same_place.setdefault(destination, {destination})
            # The old text names a place without meaning: `You arrive at loc 12.`
            if answer.startswith("You arrive at "):  # some wrappers leave this out
                self.uses_old_text = answer.startswith("You arrive at loc ")
        self.closed.update(_IS_CLOSED.findall(answer), _WAS_CLOSED.findall(answer))
        for receptacle, things in _SEEN_CONTENTS.findall(answer):
            self.closed.discard(receptacle)
            self.contents[receptacle] = _LISTED_NAME.findall(things)
        self._learn_about_thing(answer)

    def _learn_from_refusal(self, command: str, destination: str) -> None:
        """Learn from the answer `Nothing happens.`

        Args:
            command: The command.
            destination: The receptacle that it should have led to; empty for other commands.
        """
        if not self.within_reach or destination not in self.receptacles:
            self.refused.add(command)
            return
        # The game refuses to go where the agent is, so the destination is at the same place.
        # The set grows in place, as `same_place` shares it.
        self.within_reach |= self.same_place.get(destination, {destination})
        self.same_place.update(dict.fromkeys(self.within_reach, self.within_reach))

    def _learn_about_thing(self, answer: str) -> None:
        """Note that a thing was taken, put down or treated, if the answer says so."""
        take = _TAKEN.match(answer)
        if take:
            thing = take["thing"]
            receptacle = take["receptacle"]
            self.in_hand = thing
            contents = self.contents.get(receptacle, [])
            self.contents[receptacle] = [other for other in contents if other != thing]
            return
        put = _PUT.match(answer)
        if put:
            self.in_hand = ""
            self.contents.setdefault(put["receptacle"], []).append(put["thing"])
            return
        treatment = _TREATED.match(answer)
        if treatment:
            states = self.states.setdefault(treatment["thing"], set())
            if treatment["verb"] in ("heat", "cool"):
                states -= {"hot", "cool"}  # a thing is at most one of them
            states.add(STATE_AFTER[treatment["verb"]])

    def find_things(self, kind: str) -> list[tuple[str, str]]:
        """Return the things of a kind that were seen, each with its receptacle."""
        things = []
        for receptacle, contents in self.contents.items():
            things += [(thing, receptacle) for thing in contents if kind_of(thing) == kind]
        return things

    def list_receptacles(self, kind: str) -> list[str]:
        """Return the receptacles of a kind."""
        return [name for name in self.receptacles if kind_of(name) == kind]

    def was_seen(self, receptacle: str) -> bool:
        """Return whether it is known if a receptacle has to be opened."""
        return receptacle in self.contents or receptacle in self.closed

    def forget(self) -> None:
        """Forget what is where and what was refused, so that a search begins again."""
        self.contents.clear()
        self.refused.clear()


_MOVE = "move {} to {}"
_PUT_OLD = "put {} in/on {}"
_PUT_COMMANDS = {False: (_MOVE,), True: (_PUT_OLD,), None: (_MOVE, _PUT_OLD)}
"""The commands that may put a thing down, by `Memory.uses_old_text`."""


class _Choice(NamedTuple):
    """A command, and the receptacle where it has to be given."""

    receptacle: str
    command: str


class Expert:
    """Plays one episode after the other: a text that states a task begins a new one.

    If another action is taken than it proposed, set `command` to that action; it continues from
    there.

    Args:
        priors: Where things are usually found; those of the official train split if left out.
    """

    def __init__(self, priors: Priors | None = None) -> None:
        self.priors = priors or load_priors()
        self.memory = Memory(receptacles=[])
        self.task = Chore("", "", "")
        self.command = ""

    def act(self, observation: str) -> str:
        """Return the next command after an observation.

        Raises:
            ValueError: The first observation states no task.
        """
        text = observation.partition(_ADMISSIBLE_HEADING)[0].strip()
        if _TASK_PREFIX in text:
            self.task = parse_task(text)
            self.memory = Memory.from_first_text(text)
        elif self.command:
            self.memory.update(self.command, text)
        else:
            raise ValueError(
                f"the first text, {text[:60]!r}, states no task; "
                "begin with the first text of a game"
            )
        self.command = self._choose_command()
        if not self.command:  # everything was tried, so the search begins again
            self.memory.forget()
            self.command = self._choose_command() or "look"
        return self.command

    def _choose_command(self) -> str:
        """Return the next command, empty if nothing is left to try.

        The steps of every task are to find a wanted thing and take it, to clean, heat or cool it if
        the task asks for that, and to put it where it belongs. The last step of a look is to find a
        lamp and turn it on with the thing in hand.
        """
        memory = self.memory
        task = self.task
        if not memory.in_hand:
            return self._choose_take() or self._choose_search(task.thing)
        if kind_of(memory.in_hand) != task.thing:
            return self._choose_put(self._rank_places_for_unwanted_thing())
        if task.task_type == LOOK:
            return self._choose_use_of_lamp() or self._choose_search(task.target)
        states = memory.states.get(memory.in_hand, ())
        if task.verb and STATE_AFTER[task.verb] not in states:
            return self._choose_treatment()
        return self._choose_put(self._rank_targets())

    def _choose_take(self) -> str:
        """Return the next command on the way to taking a wanted thing that was seen, or empty."""
        receptacles_to_leave_alone = []
        if self.task.number > 1:
            # The first of two wanted things stays where it was put, and the second follows it.
            receptacles_to_leave_alone = self._rank_targets()[:1]
        choices = []
        for thing, receptacle in self.memory.find_things(self.task.thing):
            if receptacle in receptacles_to_leave_alone:
                continue
            if self._cannot_contain_wanted_thing(receptacle):
                continue
            choices.append(_Choice(receptacle, f"take {thing} from {receptacle}"))
        return self._approach(choices, reaches_inside=True)

    def _choose_use_of_lamp(self) -> str:
        """Return the next command on the way to turning on a lamp that was seen, or empty."""
        lamps = self.memory.find_things(self.task.target)
        choices = [_Choice(receptacle, f"use {lamp}") for lamp, receptacle in lamps]
        # A lamp works in a closed receptacle too.
        return self._approach(choices, reaches_inside=False)

    def _choose_treatment(self) -> str:
        """Return the next command on the way to cleaning, heating or cooling the thing in hand."""
        verb = self.task.verb
        choices = []
        for appliance in self.memory.list_receptacles(self.task.appliance):
            choices.append(_Choice(appliance, f"{verb} {self.memory.in_hand} with {appliance}"))
        # An appliance works while it is closed.
        return self._approach(choices, reaches_inside=False)

    def _choose_put(self, receptacles: list[str]) -> str:
        """Return the next command on the way to putting the thing in hand down, or empty.

        Args:
            receptacles: Where it may be put, best first.
        """
        choices = []
        for receptacle in receptacles:
            # As long as the form of the text is not known, both verbs are tried.
            for template in _PUT_COMMANDS[self.memory.uses_old_text]:
                command = template.format(self.memory.in_hand, receptacle)
                choices.append(_Choice(receptacle, command))
        return self._approach(choices, reaches_inside=True)

    def _choose_search(self, kind: str) -> str:
        """Return the next command of the search for a kind of thing, empty if all was searched."""
        memory = self.memory
        wanted_kinds = {kind}
        if self.task.task_type == LOOK and not memory.find_things(self.task.target):
            wanted_kinds.add(self.task.target)  # a lamp that is seen on the way saves a search
        unsearched = []
        for receptacle in memory.receptacles:
            ways_to_look = {f"go to {receptacle}", f"examine {receptacle}"}
            was_refused = not ways_to_look.isdisjoint(memory.refused)
            if receptacle not in memory.contents and not was_refused:
                unsearched.append(receptacle)
        if not unsearched:
            return ""

        def worth(receptacle: str) -> float:
            return self._estimate_worth(receptacle, wanted_kinds)

        best_receptacle = max(unsearched, key=worth)
        choices = [_Choice(best_receptacle, f"examine {best_receptacle}")]
        chance_closed = self.priors.chance_closed(kind_of(best_receptacle))
        if best_receptacle in memory.closed or chance_closed > 0.5:
            choices.insert(0, _Choice(best_receptacle, f"open {best_receptacle}"))
        return self._approach(choices, reaches_inside=False)

    def _approach(self, choices: Iterable[_Choice], reaches_inside: bool) -> str:
        """Return the next command on the way to giving one of several commands.

        Args:
            choices: The commands with their receptacles, best first.
            reaches_inside: Whether a closed receptacle has to be opened before the command.

        Returns:
            The first command that the game did not refuse before, or the `go to` or `open` that has
            to precede it; empty if the game refused all of them.
        """
        memory = self.memory
        for receptacle, command in choices:
            if command in memory.refused:
                continue
            if receptacle not in memory.within_reach:
                return f"go to {receptacle}"
            if reaches_inside and receptacle in memory.closed:
                return f"open {receptacle}"
            return command
        return ""

    def _rank_targets(self) -> list[str]:
        """Return the receptacles where the wanted things belong, best first.

        Those with the most such things come first. Of those with equally many, the first is the one
        that takes the fewest turns to go to and to open.
        """
        memory = self.memory

        def rank(receptacle: str) -> tuple[int, float]:
            contents = memory.contents.get(receptacle, [])
            number_of_wanted = sum(kind_of(thing) == self.task.thing for thing in contents)
            turns_to_open = float(receptacle in memory.closed)
            if not memory.was_seen(receptacle):
                # The expected number of turns.
                turns_to_open = self.priors.chance_closed(kind_of(receptacle))
            turns_to_go = float(receptacle not in memory.within_reach)
            return -number_of_wanted, turns_to_open + turns_to_go

        return sorted(memory.list_receptacles(self.task.target), key=rank)

    def _rank_places_for_unwanted_thing(self) -> list[str]:
        """Return all receptacles, the best ones for putting down an unwanted thing in hand first.

        Those where such a thing is usual, and so allowed, come first. Among these and among the
        others, those within reach come first.
        """
        memory = self.memory
        thing_kind = kind_of(memory.in_hand)

        def rank(receptacle: str) -> tuple[bool, bool]:
            chance_inside = self.priors.chance_inside(thing_kind, kind_of(receptacle))
            is_unusual = chance_inside <= RARE
            is_elsewhere = receptacle not in memory.within_reach
            return is_unusual, is_elsewhere  # False sorts before True

        return sorted(memory.receptacles, key=rank)

    def _estimate_worth(self, receptacle: str, wanted_kinds: set[str]) -> float:
        """Return the chance of finding a wanted thing in a receptacle, per turn that it takes.

        Args:
            receptacle: The receptacle, which was not searched yet.
            wanted_kinds: The kinds of things that are looked for.
        """
        if self._cannot_contain_wanted_thing(receptacle):
            return _LAST_RESORT_WORTH
        memory = self.memory
        kind = kind_of(receptacle)
        # Within reach it takes one turn to open or to examine the receptacle. Elsewhere it takes
        # one turn to go there, which shows the contents, and another to open it if it is closed.
        turns = 1.0
        if receptacle not in memory.within_reach:
            turns_to_open = 1.0
            if receptacle not in memory.closed:
                turns_to_open = self.priors.chance_closed(kind)  # the expected number of turns
            turns += turns_to_open
        chance = sum(self.priors.chance_inside(thing_kind, kind) for thing_kind in wanted_kinds)
        return chance / turns

    def _cannot_contain_wanted_thing(self, receptacle: str) -> bool:
        """Return whether a wanted thing there would mean that the task is done already."""
        task = self.task
        return kind_of(receptacle) == task.target and task.number == 1 and not task.verb
