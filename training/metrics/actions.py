"""What siblings did, as actions: how much their choices differ, which were valid, and whether they answer the prompt.

An action is a turn without its thought: the call or the answer, token by token. Siblings of a turn are the turns of its
tree that had read the same, turn by turn; paths that share a turn made it once. All in nats, from what was drawn.

    surprise         -Σ logp of the turn's tokens
    action_entropy   -Σ_a f(a) ln f(a),   f: share of action a among siblings whose action was not invalid
    choice_entropy   the same of what actions come down to (`choice_of`): the tool, the command's first word, an answer
    decision_entropy Σ H of the tokens at which these siblings part: alike up to there, and the next token not
    mutual_information of tree and action, both counted at a turn index: Σ f(x, a) ln(f(x, a) / f(x) f(a))
                     - (K_xa - K_x - K_a + 1) / 2N                       (Miller's correction, K: different values seen)

With many siblings action_entropy and decision_entropy come to the same, the entropy of the action given what was read.
With n siblings the first is at most ln n; the second looks at whole distributions of tokens, so it is less noisy. Both
are 0 where all do the same. Information that falls towards 0 while entropy stays is template collapse: the policy does
the same whatever it is asked (RAGEN-2).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import isfinite, log, nan
from statistics import fmean

import numpy as np

from ...agents.trajectory import Key, Tree
from ..data.batch import Batch
from ..data.packing import choice_of


@dataclass(frozen=True)
class Acted:
    """A turn of a path; entropies are NaN where it is invalid or no other sibling is valid."""

    surprise: float  # nats
    valid: bool | None  # None where the environment does not say
    action_entropy: float = nan  # nats, of its siblings
    choice_entropy: float = nan  # nats, of its siblings
    decision_entropy: float = nan  # nats, of its own tokens


@dataclass(eq=False)
class _Drawn:
    """A turn that was made once, however many paths share it."""

    tree: int
    index: int  # of the agent's turns on its path
    action: tuple[int, ...]  # tokens
    choice: str
    entropies: Sequence[float]  # nats, of these; 0 where one was not drawn
    found: Acted


def acted(
    trees: Sequence[Tree], batch: Batch
) -> tuple[dict[Key, tuple[Acted, ...]], dict[str, float]]:
    """Return each path's turns by its key, and means over turns, shared ones once: NAME of all, NAME/TURN by index."""
    paths, siblings = _collected(trees, batch)
    for same in siblings.values():
        _compare([turn for turn in same if turn.found.valid is not False])
    turns = [turn for same in siblings.values() for turn in same]
    indices = sorted({turn.index for turn in turns})
    named = {
        "": turns,
        **{f"/{index}": [turn for turn in turns if turn.index == index] for index in indices},
    }
    means = {
        name + end: mean
        for end, some in named.items()
        for name, mean in _means(some, by_turn=bool(end))
    }
    return {key: tuple(turn.found for turn in own) for key, own in paths.items()}, means


def mutual_information(pairs: Sequence[tuple[Hashable, Hashable]]) -> float:
    """Return the information (nats) that one of a pair has about the other, with Miller's correction.

    NaN where all have the same first, or each its own. Miller, Information Theory in Psychology (1955).
    """
    n, joint = len(pairs), Counter(pairs)
    ones, others = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    if len(ones) < 2 or len(ones) == n:
        return nan
    plain = sum(
        count / n * log(count * n / (ones[one] * others[other]))
        for (one, other), count in joint.items()
    )
    return plain - (len(joint) - len(ones) - len(others) + 1) / (2 * n)


def _collected(
    trees: Sequence[Tree], batch: Batch
) -> tuple[dict[Key, list[_Drawn]], dict[int, list[_Drawn]]]:
    starts = np.searchsorted(batch.row.numpy(), np.arange(len(batch.turns.path) + 1))
    logp, entropy = batch.logp_old.numpy(), batch.entropy.numpy()
    read: dict[tuple[int, str], int] = {}
    made: dict[tuple[int, int], _Drawn] = {}
    paths: dict[Key, list[_Drawn]] = {}
    siblings: dict[int, list[_Drawn]] = {}
    rows = pairwise(starts.tolist())
    for number, tree in enumerate(trees):
        for leaf in (leaf for leaf in tree.leaves if leaf.learned):
            seen, own = -1 - number, paths.setdefault((*tree.key, leaf.branch), [])
            for node in tree.path(leaf):
                turn = tree.turns[node]
                if turn.role != "assistant":
                    seen = read.setdefault((seen, turn.text), len(read))
                    continue
                slots = slice(*next(rows))
                if (number, node) not in made:
                    entropies = np.zeros(len(turn.tokens))
                    entropies[turn.sampled] = entropy[slots]
                    action, said = (
                        tuple(turn.tokens[turn.thought :].tolist()),
                        turn.info.get("valid"),
                    )
                    valid = said if isinstance(said, bool) else None
                    lost = -float(logp[slots].sum(dtype=np.float64))
                    about = (
                        action,
                        choice_of(turn.info),
                        entropies[turn.thought :].tolist(),
                        Acted(lost, valid),
                    )
                    made[number, node] = _Drawn(number, len(own), *about)
                    siblings.setdefault(seen, []).append(made[number, node])
                own.append(made[number, node])
    return paths, siblings


def _compare(same: Sequence[_Drawn]) -> None:
    """Fill in what siblings tell of each other; a turn alone tells nothing."""
    if len(same) < 2:
        return
    actions, choices = (
        _entropy([turn.action for turn in same]),
        _entropy([turn.choice for turn in same]),
    )
    for turn, places in zip(same, _partings([turn.action for turn in same]), strict=True):
        decided = sum(turn.entropies[place] for place in places)
        turn.found = Acted(turn.found.surprise, turn.found.valid, actions, choices, decided)


def _entropy(drawn: Sequence[Hashable]) -> float:
    return -sum(count / len(drawn) * log(count / len(drawn)) for count in Counter(drawn).values())


def _partings(actions: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return of each action the places at which another, alike up to there, has another token, or ends."""
    places: list[list[int]] = [[] for _ in actions]
    alike = [(0, list(range(len(actions))))]
    while alike:
        place, members = alike.pop()
        after = defaultdict[tuple[int, ...], list[int]](list)
        for member in members:
            after[actions[member][place : place + 1]].append(member)  # () where it ends
        for token, some in after.items():
            for member in some if token and len(after) > 1 else ():
                places[member].append(place)
            if token and len(some) > 1:
                alike.append((place + 1, some))
    return places


def _means(turns: Sequence[_Drawn], by_turn: bool) -> Iterator[tuple[str, float]]:
    for name in (field.name for field in fields(Acted)):
        known = [
            value
            for turn in turns
            if (value := getattr(turn.found, name)) is not None and isfinite(value)
        ]
        if known:
            yield {"valid": "valid_actions"}.get(name, name), fmean(map(float, known))
    possible = [(turn.tree, turn.action) for turn in turns if turn.found.valid is not False]
    if by_turn and isfinite(information := mutual_information(possible)):
        yield "mutual_information", information
