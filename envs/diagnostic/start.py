"""What a policy says in each state before it learns, and what that comes to, exactly.

A world alone isolates nothing: that a tool is dropped before it is mastered takes a policy that seldom uses it and
uses it badly. `Start` is such a policy as a table, which a warm-up imitates.
"""

from dataclasses import dataclass

from .worlds import START, WON, State, World


@dataclass(frozen=True)
class Start:
    """Chances: of the tool, of knowing which word to copy, of an idle word, and of a token drawn from all, evenly."""

    tool: float = 0.15
    skill: float = 0.4
    idle: float = 0.2
    noise: float = 0.02

    def says(self, world: World, state: State, shown: str) -> dict[str, float]:
        """Return the chance of each word that counts in a state, without noise."""
        if world.tool in state.offers:
            others = [word for word in state.offers if word != world.tool]
            return {world.tool: self.tool, **dict.fromkeys(others, (1 - self.tool) / len(others))}
        if not state.copies:
            return dict.fromkeys(state.offers, 1 / len(state.offers))
        idle = self.idle if state.leads else 0.0
        blind = (1 - self.skill - idle) / len(state.shows)
        said = dict.fromkeys(state.shows, blind) | dict.fromkeys(state.leads, idle / max(len(state.leads), 1))
        return said | {shown: blind + self.skill}

    def expects(self, world: World) -> dict[str, float]:
        """Return what this policy measures in a world. Tokens of noise count as invalid, of which few are not.

        Shares: `tool` in first turns (left out where there is none), `skill`, right words where one copies, `valid`
        turns, `success`; and `pass_at_8`.
        """
        kept = 1 - self.noise  # the share of turns without noise in the word; the end of a turn has it, too
        kept *= kept
        turns, valid, success = _walk(self, world, kept, START, world.turns)
        copying = next(state for state in world.states.values() if state.copies)
        skill = kept * self.says(world, copying, copying.shows[0])[copying.shows[0]]
        found = {"skill": skill, "valid": valid / turns, "success": success, "pass_at_8": 1 - (1 - success) ** 8}
        return found | ({"tool": kept * self.tool} if world.tool else {})


def _walk(start: Start, world: World, kept: float, at: str, left: int) -> tuple[float, float, float]:
    """Return the mean of turns, of valid turns and of success from a state on, with `left` turns."""
    if at not in world.states or not left:
        return 0.0, 0.0, float(at == WON)
    state = world.states[at]
    shown, right = next(state.draws())  # by symmetry all draws have the same chances
    turns, valid, success = 1.0, kept, 0.0
    for word, chance in start.says(world, state, shown).items():
        led = state.to if word in right else state.leads.get(word, "")
        more = _walk(start, world, kept, led, left - 1) if led else (0.0, 0.0, 0.0)
        turns, valid, success = (sum_ + kept * chance * part for sum_, part in zip((turns, valid, success), more))
    return turns, valid, success
