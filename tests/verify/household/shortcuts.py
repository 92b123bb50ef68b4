"""Shortcuts, searched for: a reward without the deeds of the task, and words that tell where a hidden thing lies.

What a task wants is read from its sentence, and what was done from the commands alone: neither asks the engine.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.generate import DIFFICULTIES, SIZES, Houses, make_house
from turngym.envs.household.house import OPENABLE, House
from turngym.envs.household.pddl import State
from turngym.envs.household.play import commands, intro, step
from turngym.envs.household.world import World, get_dialect, make_world
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.goals import Aim, aim_of, aim_of_task
from turngym.tests.verify.rows import Row, Tally

STATES = 1000  # that are searched from each state of a walkthrough
IDLE = ("help", "look", "inventory", "examine")
PLAY = 200  # commands in a pair of houses
SIGMAS = 4.5  # by which a share may be off its chance
FLOOR = 0.5  # share of the houses of a size that play at random must not win


def shortcut_rows(catalogue: Catalogue, seed: int, houses: int) -> Iterator[Row]:
    """Yield the rows of generated houses, then those of given games."""
    yield _openings(seed, houses)
    yield _breadth(seed)
    yield _hidden(seed, houses)
    yield _places(seed, houses)
    for size in ("tiny", "small"):
        yield from _random_play(size, seed, houses)
    yield _left_out(catalogue, seed)


def _houses(
    seed: int, count: int, sizes: Sequence[str] = tuple(SIZES)
) -> Iterator[tuple[House, World]]:
    """Yield houses of every size, difficulty and task type, the same number of each size and difficulty."""
    for size in sizes:
        for difficulty in DIFFICULTIES:
            drawn = Houses("train", size, difficulty, seed=seed)
            for i in range(max(count // (len(sizes) * len(DIFFICULTIES)), len(TASK_TYPES))):
                yield make_house(i, drawn.options)[1], drawn.open(i)[1]


def _openings(seed: int, count: int) -> Row:
    said = Tally(
        "houses are not won at the start, give no two things one name, and state their task once"
    )
    for house, world in _houses(seed, count):
        names, aim = (*world.thing_names, *world.receptacle_names), aim_of_task(world.task)
        fault = "is won" if world.is_won(world.start) or aim.reached(world, world.start) else ""
        fault = fault or ("has a name twice" if len(set(names)) < len(names) else "")
        said.add(
            house.signature,
            fault or (intro(world).count("Your task is to: ") != 1 and "states no task, or two"),
        )
    return said.row()


def _breadth(seed: int) -> Row:
    """Search breadth-first from every state of the walkthroughs of tiny houses of all chores and difficulties."""
    said = Tally("states, breadth-first, are paid exactly where the task's sentence is true")
    for house, world in _houses(seed, 0, ("tiny",)):
        aim, state = aim_of_task(world.task), world.start
        starts = [state]
        for command in house.walkthrough():
            state, _ = step(world, state, command)
            starts.append(state)
        for found in _reached(world, starts):
            said.add(world.task, world.is_won(found) != aim.reached(world, found))
    return said.row()


def _reached(world: World, starts: Sequence[State]) -> set[State]:
    seen = set(starts)
    for start in starts:
        queue, budget = deque([start]), STATES
        while queue and budget > 0:
            state = queue.popleft()
            for command in commands(world, state):
                after, _ = step(world, state, command)
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
                    budget -= 1
    return seen


def done(aim: Aim, said: Sequence[str]) -> bool:
    """Return whether these commands, all of them allowed, can have done the task; read from their words alone."""
    words = [command.split() for command in said]
    if aim.task_type == "look_at_obj_in_light":
        used = any(word[:2] == ["use", aim.target] for word in words)
        return used and any(word[:2] == ["take", aim.kind] for word in words)
    verb = {"pick_clean": "clean", "pick_heat": "heat", "pick_cool": "cool"}.get(
        aim.task_type.partition("_then")[0]
    )
    ready, placed = set[str](), Counter[str]()
    for word in words:
        if word[0] == verb and word[1] == aim.kind:
            ready.add(word[2])
        elif (
            word[0] == "move"
            and word[1] == aim.kind
            and word[4] == aim.target
            and (not verb or word[2] in ready)
        ):
            placed[word[2]] += 1
    return len(placed) >= (2 if aim.task_type == "pick_two_obj_and_place" else 1)


def _random_play(size: str, seed: int, count: int) -> Iterator[Row]:
    """Play at random, half of it with a will: count what is not won, and the wins in which the deeds were done."""
    drawn, deeds = (
        random.Random(f"play {size} {seed}"),
        Tally(f"wins in {size} houses in which the task's deeds were done"),
    )
    won = tried = 0
    for house, world in _houses(seed, count, (size,)):
        aim, turns = aim_of_task(world.task), SIZES[size].turns
        for willing in (False, True):
            said, state = list[str](), world.start
            while not world.is_won(state) and len(said) < turns * (5 if willing else 1):
                allowed = commands(world, state)
                doing = [one for one in allowed if willing and not one.startswith(IDLE)]
                said.append(drawn.choice(doing or allowed))
                state, _ = step(world, state, said[-1])
            tried, won = tried + (not willing), won + (not willing and world.is_won(state))
            if world.is_won(state):
                deeds.add(house.signature, not done(aim, said))
    note = f"{100 * won / tried:.1f} % won"
    yield Row(
        f"{size} houses that commands drawn from the admissible ones do not win",
        tried - won,
        tried,
        note,
        FLOOR,
    )
    yield deeds.row()


@dataclass(frozen=True)
class Twins:
    """Two houses that differ in one thing: in which of two closed receptacles it lies."""

    thing: str
    shut: tuple[str, str]
    worlds: tuple[World, World]


def twins(house: House) -> Twins | None:
    """Return the house with its first wanted thing in two closed receptacles; None where it has no two."""
    closed = [i for i, one in enumerate(house.receptacles) if one.kind in OPENABLE][:2]
    if len(closed) < 2:
        return None
    both = [
        replace(house, things=(house.things[0]._replace(inside=i), *house.things[1:]))
        for i in closed
    ]
    one, other = (make_world(twin.problem(), twin.task, get_dialect("current")) for twin in both)
    first, second = (house.receptacles[i].name for i in closed)
    return Twins(house.things[0].name, (first, second), (one, other))


def _hidden(seed: int, count: int) -> Row:
    """Play pairs of houses alike, opening neither of the two receptacles: no answer and no list may tell them apart.

    `slice` does, as in ALFWorld: a knife reaches into what is closed.
    """
    said, sliced, pairs = (
        Tally("moves in pairs of houses that do not tell where a hidden thing lies"),
        0,
        0,
    )
    drawn = random.Random(f"twins {seed}")
    for pair in filter(None, (twins(house) for house, _ in _houses(seed, count))):
        pairs += 1
        sliced += _tells(pair, drawn, said)
    return said.row(f"{pairs} pairs, {sliced} told apart by slice, as in ALFWorld")


def _tells(pair: Twins, drawn: random.Random, said: Tally) -> bool:
    one, other = pair.worlds
    names, state, twin, sliced = (
        (*one.thing_names, *one.receptacle_names),
        one.start,
        other.start,
        False,
    )
    said.add("the opening", intro(one) != intro(other))
    for _ in range(PLAY):
        lists = [set(commands(one, state)), set(commands(other, twin))]
        apart = lists[0] ^ lists[1]
        slices = {command for command in apart if command.startswith("slice ")}
        sliced |= bool(slices)
        if drawn.random() < 0.7:
            command = drawn.choice(sorted(lists[0] & lists[1]))
        else:
            verb = drawn.choice(("examine", "use", "open", "close", "go to", "take", "heat"))
            command = f"{verb} {drawn.choice((pair.thing, *pair.shut, *names))}"
            command += f" from {drawn.choice(pair.shut)}" if verb == "take" else ""
        if command in {f"open {name}" for name in pair.shut}:
            continue
        state, answer = step(one, state, command)
        twin, same = step(other, twin, command)
        said.add(command, answer != same or apart > slices)
    return sliced


def _places(seed: int, count: int) -> Row:
    """Count the guesses `the k-th of its kind` that find the wanted thing about as often as chance does."""
    found: dict[int, Counter[int]] = {}
    for house, _ in _houses(seed, count * 4, ("tiny", "small", "medium")):
        home = house.receptacles[house.things[0].inside]
        alike = sum(one.kind == home.kind for one in house.receptacles)
        found.setdefault(alike, Counter())[home.number] += 1
    said = Tally(
        "policies that always look in the k-th receptacle of a kind find what is wanted as often as by chance"
    )
    for alike, numbers in sorted(found.items()):
        total, chance = numbers.total(), 1 / alike
        for k in range(1, alike + 1) if alike > 1 else ():
            off = abs(numbers[k] - total * chance) / sqrt(total * chance * (1 - chance))
            said.add(f"{k} of {alike}", f"{numbers[k]} of {total}" if off > SIGMAS else "")
    return said.row(f"{sum(one.total() for one in found.values())} houses")


def _left_out(catalogue: Catalogue, seed: int, games: int = 60) -> Row:
    """Leave one deed out of walkthroughs of given games: nothing may be won."""
    said = Tally("walkthroughs with one deed left out win nothing")
    for i in random.Random(f"left out {seed}").sample(
        range(len(catalogue)), min(games, len(catalogue))
    ):
        game = catalogue.read(i)
        world, walk, aim = game.world(), game.walk("current"), aim_of(game)
        for left in (
            at
            for at, command in enumerate(walk)
            if not command.startswith(("go to", "open", "close", *IDLE))
        ):
            state = world.start
            won = False
            for command in (*walk[:left], *walk[left + 1 :]):
                state, _ = step(world, state, command)
                won = won or world.is_won(state) or (aim is not None and aim.reached(world, state))
            said.add(f"{game.id} without {walk[left]!r}", won)
    return said.row()
