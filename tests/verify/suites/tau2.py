"""Rows of tau2: verdicts beside those of its own orchestrator and evaluator on the same calls; floors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from turngym.tests.verify.rows import Row, first
from turngym.tools import ToolCall

if TYPE_CHECKING:
    from turngym.envs.suites.tau2 import Tau2

WORDS = "I think that this is solved."
STOP = "###STOP###"
Script = list[ToolCall | str]  # calls, and what is said


class Customer:
    """A user who says what he wants at first, and ends the conversation when he is spoken to."""

    def answer(self, scenario: str, talk: Sequence[Any]) -> str:
        """Return what he says next."""
        return "Please help me." if len(talk) == 1 else STOP


def rows(seed: int, mutations: int, floors: int) -> Iterator[Row]:
    """Yield the rows.

    Args:
        seed: Keys all randomness.
        mutations: Mutated golds, and as many random trajectories, in telecom; elsewhere a quarter.
        floors: The most tasks of a domain on which players that know nothing are measured.
    """
    from turngym.envs.suites import tau2

    rng = random.Random(seed)
    for domain in tau2.DOMAINS:
        user: Any = None if domain == "telecom" else Customer()
        env = tau2.Tau2(tau2.Tau2Tasks(domain, "all", held=True), user)
        every = range(len(env.tasks))
        pool = [
            call
            for task in env.tasks
            for call in _gold(task, user is None)
            if isinstance(call, ToolCall)
        ]
        count = mutations if user is None else mutations // 4
        if user is None:
            yield _held(env)
        yield _same("gold", env, every, lambda task: _gold(task, user is None), right=True)  # noqa: B023
        some = rng.choices(every, k=count)
        yield _same(
            "mutated gold",
            env,
            some,
            lambda task: _mutated(rng, _gold(task, user is None), pool),  # noqa: B023
        )
        some = rng.choices(every, k=count)
        yield _same(
            "random calls",
            env,
            some,
            lambda task: _random(rng, _gold(task, user is None), pool),  # noqa: B023
        )
        yield _floors(tau2.Tau2(tau2.Tau2Tasks(domain, "all"), user), rng, pool, floors)


def _gold(task: Any, solo: bool) -> Script:
    criteria = task.evaluation_criteria
    calls: Script = [ToolCall(one.name, dict(one.arguments)) for one in criteria.actions or []]
    return [
        *calls,
        ToolCall("done", {}) if solo else " ".join(["Done.", *(criteria.communicate_info or [])]),
    ]


def _mutated(rng: random.Random, script: Script, pool: Sequence[ToolCall]) -> Script:
    """Return gold with one thing changed: a call left out, repeated, moved, replaced or added, a value, or the end."""
    calls, end = script[:-1], script[-1]
    place = rng.randrange(len(calls) + 1)
    match rng.randrange(7):
        case 0:
            del calls[place : place + 1]
        case 1:
            calls[place:place] = calls[place : place + 1]
        case 2:
            rng.shuffle(calls)
        case 3:
            calls[place : place + 1] = [rng.choice(pool)]
        case 4:
            calls.insert(place, rng.choice(pool))
        case 5:
            for one in calls[place : place + 1]:
                assert isinstance(one, ToolCall)
                values = dict(one.arguments)
                for name in list(values)[:1]:
                    values[name] = rng.choice(("", "other", 7, None, True))
                calls[place] = ToolCall(one.name, values)
        case 6:
            end = WORDS
    return [*calls, end]


def _random(
    rng: random.Random, script: Script, pool: Sequence[ToolCall], knows: float = 0.6
) -> Script:
    """Return up to 14 calls, of which so large a share is of the task's own gold."""
    own = [one for one in script if isinstance(one, ToolCall)] or pool
    return [
        *(rng.choice(own if rng.random() < knows else pool) for _ in range(rng.randint(0, 14))),
        script[-1],
    ]


def played(env: Tau2, index: int, script: Script) -> tuple[float, str]:
    """Return the reward of an episode, and why it ended."""
    env.reset(seed=0, options={"task": index})
    info: dict[str, Any] = {}
    for one in script:
        *_, info = env.step(one if isinstance(one, str) else env.format.render(one))
        if not env.live:
            break
    return sum(env.turn_rewards), str(info.get("termination"))


def _same(
    what: str, env: Tau2, tasks: Sequence[int], make: Callable[[Any], Script], right: bool = False
) -> Row:
    """Count the episodes whose verdict is that of the official orchestrator; with `right`, that it is 1."""
    from turngym.tests.verify.suites import official

    wrong, kinds = [], Counter[str]()
    for index in tasks:
        task = env.tasks[index]
        script = make(task)
        ours, known = (
            played(env, index, script),
            official.served(env.tasks.domain, task, script, env.user is None),
        )
        kinds[f"{known[1]} {known[0]:g}"] += 1
        if ours != known or (right and known[0] != 1):
            wrong.append(f"{task.id[:60]}: {ours}, officially {known}")
    note = first(wrong, 3) or ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common())
    return Row(f"tau2 {env.tasks.domain}: the verdict on {what} is the official one", len(tasks) - len(wrong),
               len(tasks), note)  # fmt: skip


def _held(env: Tau2) -> Row:
    """Compare the list of tasks that are left out with those whose assertions hold before anything was done."""
    from turngym.envs.suites.tau2 import HELD

    found = set()
    for index, task in enumerate(env.tasks):
        env.reset(seed=0, options={"task": index})
        wanted = task.evaluation_criteria.env_assertions or []
        if all(env.world.run_env_assertion(one, raise_assertion_error=False) for one in wanted):
            found.add(task.id)
    wrong = found ^ set(HELD)
    note = first(sorted(wrong)) or f"{len(found)} are left out"
    return Row("tau2 telecom: the tasks whose assertions hold at the start are listed", len(env.tasks) - len(wrong),
               len(env.tasks), note)  # fmt: skip


def _floors(env: Tau2, rng: random.Random, pool: Sequence[ToolCall], most: int) -> Row:
    """Measure what the end at once, empty replies and random calls earn; it is a figure."""
    earned = dict.fromkeys(("constant", "empty", "random"), 0.0)
    count = min(len(env.tasks), most)
    for index in range(count):
        task = env.tasks[index]
        end = _gold(task, env.user is None)[-1] if env.user is None else WORDS
        scripts: dict[str, Script] = {"constant": [end], "empty": [""] * 10}
        scripts["random"] = [*(rng.choice(pool) for _ in range(8)), end]
        for name, script in scripts.items():
            earned[name] += played(env, index, script)[0]
    note = ", ".join(f"{name} {100 * found / count:.1f} %" for name, found in earned.items())
    return Row(f"tau2 {env.tasks.domain}: floors", count, count, note)
