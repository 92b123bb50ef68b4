"""Diagnostic worlds: small text environments that each isolate one difficulty of entropy control.

They are `LateBloomer-v0`, `UselessChoice-v0`, `ManyWays-v0` and `Distractor-v0`. Each is a
`DiagnosticWorld`, a table of states, which `WorldEnv` plays. In a state the agent is shown a word
and says one. A right word leads on, and the last one earns 1; any other word ends the episode with
0. If `hidden` is 0, the right word is the one that is shown: the state asks for a copy. Otherwise
so many of the words are right, drawn by the task and never shown: the agent can only guess.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .outcomes import Reply, StopReason
from .tasks import choose_index, strict
from .text_env import TextEnv

# Names of the state that an episode begins in, and of how it can end.
START, WON, LOST, INVALID = "start", "won", "lost", "invalid"
# Words of the worlds.
COLOURS = ("red", "blue", "green")
DOORS = ("north", "south", "east", "west", "up", "down")
IDLE = ("wait", "look", "hum", "nod")
NOUNS = (
    "alpha",
    "bravo",
    "delta",
    "gamma",
    "hotel",
    "india",
    "kilo",
    "lima",
    "oscar",
    "papa",
    "sierra",
    "tango",
)


class StateDraw(NamedTuple):
    """What a task draws in one state: the word that is shown, and the words that are right."""

    shown: str
    right_words: frozenset[str]


@dataclass(frozen=True)
class DiagnosticState:
    """One state of a world.

    Args:
        shows: The words of which the task shows one.
        offers: The words that the agent may say.
        next_state: The state that a right word leads to; "" if no word is right.
        hidden: The number of right words that the task draws among `offers`; 0 if the word that is
            shown is right.
        leads: The states that other words lead to, by the word. A word that is neither right nor
            here ends the episode.
    """

    shows: tuple[str, ...]
    offers: tuple[str, ...]
    next_state: str = ""
    hidden: int = 0
    leads: Mapping[str, str] = field(default_factory=dict)

    @property
    def copies(self) -> bool:
        """Whether the right word is the one that is shown."""
        return bool(self.next_state) and not self.hidden

    @property
    def chance(self) -> float:
        """The chance of the best agent to say a right word."""
        return self.hidden / len(self.offers) if self.hidden else 1.0

    def possible_draws(self) -> Iterator[StateDraw]:
        """Yield each pair of a word to show and a set of right words that a task may draw here.

        Without a `next_state` no word is right. If no right word is `hidden`, it is the word that
        is shown. Otherwise it is any set of `hidden` words among the `offers`.
        """
        for shown in self.shows:
            if not self.next_state:
                yield StateDraw(shown, frozenset())
            elif not self.hidden:
                yield StateDraw(shown, frozenset({shown}))
            else:
                for right_words in combinations(self.offers, self.hidden):
                    yield StateDraw(shown, frozenset(right_words))


@dataclass(frozen=True)
class DiagnosticWorld:
    """A world: its states by name, the first of them `start`.

    Its tasks are all combinations of what each state may draw; their number is the length of the
    world.

    Args:
        name: The name of the world.
        states: Its states.
        turns: The turns of the shortest way to success, which is the limit.
        tool: The word of the first state whose use is measured; "" if none is better than the
            others.
        free: Whether an action may go on behind its first word with a text that means nothing.
    """

    name: str
    states: Mapping[str, DiagnosticState]
    turns: int
    tool: str = "ask"
    free: bool = False

    @cached_property
    def possible_draws(self) -> dict[str, list[StateDraw]]:
        """Everything that a task may draw in each state."""
        return {name: list(state.possible_draws()) for name, state in self.states.items()}

    def __len__(self) -> int:
        return math.prod(map(len, self.possible_draws.values()))

    @cached_property
    def order(self) -> list[int]:
        """The numbers of all combinations, shuffled, so that any range of tasks has all words."""
        return [int(i) for i in np.random.default_rng(0).permutation(len(self))]

    def draws_of_task(self, index: int) -> dict[str, StateDraw]:
        """Return what the task `index` draws in each state, by the state's name."""
        # Each number is a combination of draws in mixed radix: it has one digit for each state,
        # which is the index of its draw and whose base is the number of the state's possible draws.
        combination = self.order[index]
        draws = {}
        for state_name, state_draws in self.possible_draws.items():
            combination, draw_index = divmod(combination, len(state_draws))
            draws[state_name] = state_draws[draw_index]
        return draws

    def best_success(self, state: str = START, turns: int | None = None) -> float:
        """Return the highest chance of success of an agent that cannot see what is hidden.

        Args:
            state: The name of the state that the agent is in.
            turns: The number of turns that are left; by default all turns of the world.
        """
        turns = self.turns if turns is None else turns
        if state == WON:
            return 1.0
        if not turns:
            return 0.0
        present = self.states[state]
        # The chance of success after each kind of word: one that leads elsewhere, or a right one.
        chances = [self.best_success(name, turns - 1) for name in set(present.leads.values())]
        if present.next_state:
            success_after_right_word = self.best_success(present.next_state, turns - 1)
            chances.append(present.chance * success_after_right_word)
        return max(chances)


@dataclass(frozen=True)
class Start:
    """A policy before it learns, as a table of what it says in each state; a warm-up imitates it.

    Only with the right start does a world isolate anything: a tool can only be dropped before it is
    mastered by a policy that seldom uses it and uses it badly.

    Args:
        tool: The chance to use the tool.
        skill: The chance to know which word to copy.
        idle: The chance to say an idle word instead of a copy.
        noise: The chance of a token that is drawn from all tokens, evenly.
    """

    tool: float = 0.15
    skill: float = 0.4
    idle: float = 0.2
    noise: float = 0.02

    def word_chances(
        self, world: DiagnosticWorld, state: DiagnosticState, shown: str
    ) -> dict[str, float]:
        """Return the chance of each word that a state offers, without noise.

        Args:
            world: The world.
            state: One of its states.
            shown: The word that is shown there.

        Returns:
            The chances by word. They add up to 1.
        """
        if world.tool in state.offers:
            other_words = [word for word in state.offers if word != world.tool]
            chances = {world.tool: self.tool}
            chances |= dict.fromkeys(other_words, (1 - self.tool) / len(other_words))
            return chances
        if not state.copies:
            return dict.fromkeys(state.offers, 1 / len(state.offers))
        # In a state that asks for a copy, `leads` has the idle words, if there are any.
        idle_words = state.leads
        idle_chance = self.idle if idle_words else 0.0
        # With the chance that remains, the policy guesses any word, also the right one.
        guess_chance = (1 - self.skill - idle_chance) / len(state.shows)
        chances = dict.fromkeys(state.shows, guess_chance)
        for word in idle_words:
            chances[word] = idle_chance / len(idle_words)
        chances[shown] = guess_chance + self.skill
        return chances

    def expected_metrics(self, world: DiagnosticWorld) -> dict[str, float]:
        """Return the metrics of this policy in a world, computed exactly.

        A token of noise counts as invalid, though a few of them happen to be valid words.

        Returns:
            As shares: `skill` (right words among copies), `valid` (turns), `success` (episodes),
            `pass_at_8` (of eight episodes one succeeds), and, if the world has a tool, `tool` (its
            use in first turns).
        """
        # A turn has two tokens, its word and the end of the message. It is clean if neither of them
        # is noise.
        clean_token = 1 - self.noise
        clean_turn = clean_token * clean_token
        expected_counts = self._expected_counts(
            world, START, turns_left=world.turns, clean_turn=clean_turn
        )
        turns, valid_turns, success = expected_counts.tolist()
        # By symmetry, the skill is the same in every copying state and for every shown word.
        copying_state = next(state for state in world.states.values() if state.copies)
        shown = copying_state.shows[0]
        right_word_chance = self.word_chances(world, copying_state, shown)[shown]
        metrics = {
            "skill": clean_turn * right_word_chance,
            "valid": valid_turns / turns,
            "success": success,
            "pass_at_8": 1 - (1 - success) ** 8,
        }
        if world.tool:
            metrics["tool"] = clean_turn * self.tool
        return metrics

    def _expected_counts(
        self, world: DiagnosticWorld, state_name: str, turns_left: int, clean_turn: float
    ) -> NDArray[np.float64]:
        """Return what to expect of the rest of an episode.

        Args:
            world: The world.
            state_name: The state from which the episode goes on, or how it has ended.
            turns_left: How many turns it may still have.
            clean_turn: The chance that a turn is without noise.

        Returns:
            Three expected numbers: of turns, of valid turns, and of successes (0 to 1).
        """
        if state_name not in world.states or not turns_left:
            return np.array([0.0, 0.0, state_name == WON])
        state = world.states[state_name]
        draw = next(state.possible_draws())  # by symmetry, all draws have the same chances
        counts = np.array([1.0, clean_turn, 0.0])  # of this turn only
        for word, chance in self.word_chances(world, state, draw.shown).items():
            if word in draw.right_words:
                next_name = state.next_state
            elif word in state.leads:
                next_name = state.leads[word]
            else:
                continue  # a wrong word ends the episode without success
            counts_after = self._expected_counts(world, next_name, turns_left - 1, clean_turn)
            counts += clean_turn * chance * counts_after
        return counts


def _copying_states(count: int, idle: tuple[str, ...] = ()) -> dict[str, DiagnosticState]:
    """Return a chain of states `copy-1` to `copy-COUNT` in each of which a word is to be copied.

    The last leads to success. A word of `idle` leads back to the state where it is said, and costs
    a turn.
    """
    states = {}
    for number in range(1, count + 1):
        name = f"copy-{number}"
        next_name = WON if number == count else f"copy-{number + 1}"
        states[name] = DiagnosticState(
            shows=NOUNS,
            offers=(*NOUNS, *idle),
            next_state=next_name,
            leads=dict.fromkeys(idle, name),
        )
    return states


def _guess_or_ask_world(
    name: str, idle: tuple[str, ...] = (), free: bool = False
) -> DiagnosticWorld:
    """Return a world with a guess that succeeds in a third of the tasks, and a tool to be mastered.

    The word "guess" leads to the guess of a colour, the word "ask" (the tool) to three words to
    copy, which always succeeds once the policy can copy.
    """
    first = DiagnosticState(
        shows=("start",),
        offers=("guess", "ask"),
        leads={"guess": "colour", "ask": "copy-1"},
    )
    colour = DiagnosticState(shows=("colour",), offers=COLOURS, next_state=WON, hidden=1)
    states = {START: first, "colour": colour, **_copying_states(3, idle)}
    return DiagnosticWorld(name, states, turns=4, free=free)


def _many_ways_world() -> DiagnosticWorld:
    """Return a world of six doors, of which each task opens three; behind it, two words to copy."""
    first = DiagnosticState(shows=("start",), offers=DOORS, next_state="copy-1", hidden=3)
    return DiagnosticWorld("many-ways", {START: first, **_copying_states(2)}, turns=3, tool="")


_ALL = (
    _guess_or_ask_world("late-bloomer"),
    _guess_or_ask_world("useless-choice", idle=IDLE),
    _many_ways_world(),
    _guess_or_ask_world("distractor", free=True),
)
WORLDS = {world.name: world for world in _ALL}
_STOP_BY_END_STATE = {
    WON: StopReason.GOAL,
    LOST: StopReason.ANSWERED,
    INVALID: StopReason.NO_ANSWER,
}


class WorldEnv(TextEnv):
    """An environment that plays a diagnostic world; success earns 1.

    `info` of a turn has `state`, where it was taken, and `led`, where it led: a state, `won`,
    `lost`, or `invalid` if the action is none of the words that the state offers.

    Args:
        world: The world.
        max_turns: The limit of an episode.
        size: The number of tasks; 0 for all there are.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"world", "tasks", "drawn"}

    def __init__(self, world: DiagnosticWorld, max_turns: int, size: int = 0) -> None:
        super().__init__(max_turns)
        self.world = world
        self.tasks = range(min(size, len(world)) if size else len(world))
        self.state = START
        self.drawn: Mapping[str, StateDraw] = {}

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Begin an episode of the task in the options, or of a random one."""
        index = choose_index(rng, options, self.tasks)
        self.state = START
        self.drawn = self.world.draws_of_task(index)
        self.task_id = f"{self.world.name}-{index}"
        return self.drawn[START].shown

    def on_step(self, text: str) -> Reply:
        """Go from the present state to the one that the agent's word leads to.

        Returns:
            The word that the new state shows, or "" if the episode has ended; success earns 1.
        """
        state_before = self.state
        state = self.world.states[state_before]
        word = text
        if self.world.free:  # the text behind the first word means nothing
            word = text.partition(" ")[0]
        if word not in state.offers:
            self.state = INVALID
        elif word in self.drawn[state_before].right_words:
            self.state = state.next_state
        else:
            self.state = state.leads.get(word, LOST)
        stop = _STOP_BY_END_STATE.get(self.state)
        shown = "" if stop else self.drawn[self.state].shown
        return Reply(
            shown,
            reward=float(self.state == WON),
            stop=stop,
            info={"state": state_before, "led": self.state},
            valid=self.state != INVALID,
        )

    def gold(self) -> list[str]:
        """Return the words of the shortest way to success from the present state.

        In each state it is the alphabetically first right word, or, if no word is right, the word
        that leads to the state with the highest chance of success.
        """
        words = []
        state_name = self.state
        while state_name not in _STOP_BY_END_STATE:
            state = self.world.states[state_name]
            right_words = self.drawn[state_name].right_words
            if right_words:
                word = min(right_words)
                state_name = state.next_state
            else:
                success_by_word = {
                    word: self.world.best_success(next_name)
                    for word, next_name in state.leads.items()
                }
                # Of equally good words `max` takes the first.
                word = max(success_by_word, key=success_by_word.__getitem__)
                state_name = state.leads[word]
            words.append(word)
        return words


@strict
def make_late_bloomer(max_turns: int = WORLDS["late-bloomer"].turns) -> WorldEnv:
    """Make the world of a tool that succeeds once it is mastered, and a guess that does in 1/3."""
    return WorldEnv(WORLDS["late-bloomer"], max_turns)


@strict
def make_useless_choice(max_turns: int = WORLDS["useless-choice"].turns) -> WorldEnv:
    """Make the late bloomer with idle words, which are allowed while copying but cost a turn."""
    return WorldEnv(WORLDS["useless-choice"], max_turns)


@strict
def make_distractor(max_turns: int = WORLDS["distractor"].turns) -> WorldEnv:
    """Make the late bloomer with free text behind every action, which means nothing."""
    return WorldEnv(WORLDS["distractor"], max_turns)


@strict
def make_many_ways(max_turns: int = WORLDS["many-ways"].turns, size: int = 0) -> WorldEnv:
    """Make the world of six doors that are equally good, of which every task leaves three open.

    With a `size` there are only so many tasks, whose doors are open more or less often.
    """
    if size < 0:
        raise ValueError(f"size is {size}; give a number of tasks, or 0 for all there are")
    return WorldEnv(WORLDS["many-ways"], max_turns, size)
