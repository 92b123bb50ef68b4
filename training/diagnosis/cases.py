"""The worlds that are diagnosed, each with the policy that begins in it, what it isolates, and when it is solved."""

from dataclasses import dataclass

from ...envs.diagnostic import WORLDS, Start, World
from ...envs.tasks import did_you_mean
from ..comparison.measure import Final

FILE = "start.json"  # of a policy that a seed begins with, written last: a folder that has it is whole


@dataclass(frozen=True)
class Case:
    """A world and a start; `final` says what solves it."""

    name: str
    world: World
    isolates: str
    start: Start = Start()
    success: float = 0.8
    pass_at_8: float = 0.0

    @property
    def final(self) -> Final:
        """What a trained policy is measured on, and when it has solved the world."""
        return Final(success=self.success, pass_at_8=self.pass_at_8, world=self.world)

    @property
    def env(self) -> str:
        """The id of the environment."""
        return f"turngym/{self.world.name.title().replace('-', '')}-v0"

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens of a turn: word, free word and end, and one more, so that rambling shows."""
        return 3 + self.world.free


_LATE, _USELESS, _WAYS, _FREE = WORLDS.values()
_ALL = (
    Case("late-bloomer", _LATE, "a tool that pays once it is mastered: the first turn must stay open until then"),
    Case("twin", _LATE, "the same without the trap, as the tool is in use: a control must cost nothing", Start(0.93)),
    Case(
        "useless-choice", _USELESS, "words that are allowed and useless in copying: only the first turn may stay open"
    ),
    Case(
        "many-ways", _WAYS, "six equal ways, of which a task opens three: coverage shows in pass@8", Start(), 0.4, 0.9
    ),
    Case("distractor", _FREE, "free text in every turn, whose entropy says nothing about what is decided there"),
)
CASES = {case.name: case for case in _ALL}


def find_case(name: str) -> Case:
    """Return a case by its name; raise ValueError for a name that there is not, with the nearest."""
    if name not in CASES:
        raise ValueError(f"there is no world {name!r}; {did_you_mean(name, CASES)}the worlds are {', '.join(CASES)}")
    return CASES[name]
