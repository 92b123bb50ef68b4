"""The worlds that are diagnosed, each with the policy that begins in it, what it isolates, and when it is solved."""

from __future__ import annotations

from dataclasses import dataclass

from ...envs.diagnostic import WORLDS, Start, World
from ...envs.tasks import did_you_mean


@dataclass(frozen=True)
class Case:
    """A world and a start; a run solves it that ends with at least these shares of success and pass@8."""

    name: str
    env: str
    world: World
    start: Start
    isolates: str
    success: float = 0.8
    pass_at_8: float = 0.0

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens of a turn: word, free word and end, and one more, so that rambling shows."""
        return 3 + self.world.free


_LATE = WORLDS["late-bloomer"]
CASES = {
    case.name: case
    for case in (
        Case(
            "late-bloomer",
            "turngym/LateBloomer-v0",
            _LATE,
            Start(),
            "a tool that pays only once it is mastered: entropy of the first turn must be held until then",
        ),
        Case(
            "twin",
            "turngym/LateBloomer-v0",
            _LATE,
            Start(tool=0.93),
            "the same without the trap, as the policy uses the tool already: a control must not cost success",
        ),
        Case(
            "useless-choice",
            "turngym/UselessChoice-v0",
            WORLDS["useless-choice"],
            Start(),
            "words that are allowed and useless where one copies: entropy must be held in the first turn alone",
        ),
        Case(
            "many-ways",
            "turngym/ManyWays-v0",
            WORLDS["many-ways"],
            Start(),
            "six equally good ways, of which a task leaves three open: keeping several shows in pass@8",
            success=0.4,
            pass_at_8=0.9,
        ),
        Case(
            "distractor",
            "turngym/Distractor-v0",
            WORLDS["distractor"],
            Start(),
            "free text in every turn, whose entropy says nothing about what is decided there",
        ),
    )
}


def find_case(name: str) -> Case:
    """Return a case by its name; raise ValueError for a name that there is not, with the nearest."""
    if name not in CASES:
        raise ValueError(f"there is no world {name!r}; {did_you_mean(name, CASES)}the worlds are {', '.join(CASES)}")
    return CASES[name]
