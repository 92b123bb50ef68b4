"""Area `suites`: scores of suites beside those of their official scorers; floors of players that know nothing."""

from __future__ import annotations

import ast
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turngym.tests.verify.evaluation import killed
from turngym.tests.verify.rows import Row, first

if TYPE_CHECKING:
    from turngym.envs.suites.bfcl import BFCL, BFCLTask

Turns = list[list[list[str]]]  # calls by turn of the user and step
VALUES = (
    *(
        "None",
        "foo",
        "-3",
        "1+2",
        "(1,2)",
        "[1,'a']",
        "{'a':1}",
        "f(x=1)",
        "f()",
        "a[0]",
        "'%s'",
        "not True",
    ),
    *("lambda: 1", "...", "x.y", "-x", "1e999", "{1}", "True", "+3", "2*3.5", "-(1)", "f(g(x=1))"),
)
REPLIES = (
    "",
    "[]",
    "None",
    "I cannot do this.",
    "Use f(x).",
    "[f(x=1)]",
    "f(x=1)",
    "[[f(x=1)]]",
    "[f(1)(2)]",
)
CONSTANT = "[f(x=1)]"


@dataclass(frozen=True)
class Suites:
    """Suites of tool use: verdicts equal to the official ones, on gold, on mutations of gold and on random play."""

    seed: int = 0
    """Keys all randomness."""
    mutations: int = 4000
    """Mutated gold, of conversations and of single replies each."""
    trajectories: int = 4000
    """Random conversations."""
    golds: int = 300
    """Variations of ScienceWorld whose gold path is played."""
    floors: int = 10_000
    """Tasks of each domain of tau2 on which players that know nothing are measured, at most."""
    replies: int = 300
    """Hostile replies in each environment of a suite."""
    only: str = ""
    """One suite: `bfcl`, `scienceworld` or `tau2`; all when left out."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of every suite."""
        from turngym.tests.verify import replies
        from turngym.tests.verify.suites import scienceworld, tau2

        suites: dict[str, tuple[str, Callable[[], Iterator[Row]]]] = {
            "bfcl": ("bfcl_eval", self._bfcl),
            "scienceworld": ("scienceworld", lambda: scienceworld.rows(self.seed, self.golds)),
            "tau2": ("tau2", lambda: tau2.rows(self.seed, self.mutations // 8, self.floors)),
        }
        if self.only and self.only not in suites:
            raise ValueError(f"only is {self.only!r}; the suites are {', '.join(suites)}")
        for name, (package, rows) in suites.items():
            if self.only in ("", name):
                if find_spec(package) is None:
                    raise ValueError(
                        f"{name} needs a package of its own: `make test-suites` installs it and counts"
                    )
                yield from rows()
                for place in replies.suites(package):
                    yield replies.play(place, self.replies, self.seed)

    def _bfcl(self) -> Iterator[Row]:
        from turngym.envs.suites.bfcl import CONVERSATIONS, SINGLE, make_bfcl

        rng = random.Random(self.seed)
        talks, singles = make_bfcl(CONVERSATIONS), make_bfcl(SINGLE)
        pool = [call for task in talks.tasks for turn in task.gold for call in turn]
        yield _same(
            "gold conversations",
            talks,
            range(len(talks.tasks)),
            lambda task: _steps(task.gold),
            right=True,
        )
        yield _same(
            "gold replies", singles, range(len(singles.tasks)), lambda task: task.answer, right=True
        )
        some = rng.choices(range(len(talks.tasks)), k=self.mutations)
        yield _same(
            "mutated gold of conversations", talks, some, lambda task: _mutated(rng, task, pool)
        )
        some = rng.choices(range(len(talks.tasks)), k=self.trajectories)
        yield _same("random conversations", talks, some, lambda task: _random(rng, task, pool))
        some = rng.choices(range(len(singles.tasks)), k=self.mutations)
        answers = [*REPLIES, *(task.answer for task in singles.tasks)]
        yield _same(
            "mutated gold of replies",
            singles,
            some,
            lambda task: _changed(rng, task.answer, answers),
        )
        yield _prompts((*SINGLE, *CONVERSATIONS))
        for category in (*SINGLE, *CONVERSATIONS):
            yield _floors(make_bfcl(category), rng, pool)
        with tempfile.TemporaryDirectory(prefix="turngym-suites-") as folder:
            command = "eval --suite bfcl-multi-turn --policy expert --episodes 100"
            yield killed(Path(folder), command, 20, rng, "bfcl-multi-turn")


def _same(
    what: str,
    env: BFCL,
    tasks: Sequence[int],
    make: Callable[[BFCLTask], str | Turns],
    right: bool = False,
) -> Row:
    """Count the episodes whose error type is the official one; with `right`, that it is none."""
    from turngym.tests.verify.suites import official

    wrong, kinds = [], Counter[str]()
    for index in tasks:
        task = env.tasks[index]
        done = make(task)
        if isinstance(done, str):
            known = official.single(task.category, task.functions, task.gold, done)
        else:
            known = official.conversation(task.row, task.gold, done)
        ours = played(env, index, done)
        kinds[known or "right"] += 1
        if ours != known or (right and known):
            wrong.append(f"{task.id}: {ours or 'right'}, officially {known or 'right'}")
    note = first(wrong, 3) or ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    return Row(f"BFCL: the verdict on {what} is the official one, error type included", len(tasks) - len(wrong),
               len(tasks), note)  # fmt: skip


def played(env: BFCL, index: int, done: str | Turns) -> str:
    """Return the error type of an episode of one reply, or of calls by turn and step."""
    env.reset(seed=0, options={"task": index})
    replies = (
        [done]
        if isinstance(done, str)
        else [reply for turn in done for reply in (*map(_written, turn), "Done.")]
    )
    info: dict[str, Any] = {}
    for reply in replies:
        *_, info = env.step(reply)
    return str(info["error_type"])


def _written(calls: Sequence[str]) -> str:
    return f"[{', '.join(calls)}]"


def _steps(gold: Sequence[Sequence[str]]) -> Turns:
    return [[list(turn)] if turn else [] for turn in gold]


def _mutated(rng: random.Random, task: BFCLTask, pool: Sequence[str]) -> Turns:
    """Return gold with one thing changed: a call left out, repeated, moved, replaced, added, or in steps of its own."""
    turns = _steps(task.gold)
    number = rng.choice([number for number, turn in enumerate(turns) if turn])
    calls = turns[number][0]
    place = rng.randrange(len(calls))
    match rng.randrange(8):
        case 0:
            del calls[place]
            turns[number] = [calls] if calls else []
        case 1:
            calls.insert(place, rng.choice(calls))
        case 2:
            rng.shuffle(calls)
        case 3:
            calls[place] = rng.choice(pool)
        case 4:
            calls.insert(place, rng.choice(pool))
        case 5:
            calls[place] = _changed(rng, calls[place], [calls[place]])
            turns[number] = [calls] if all(map(_is_call, calls)) else []
        case 6:
            turns[number] = [[call] for call in calls]
        case 7:
            turns[number] = []
    return turns


def _is_call(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Call)
    except SyntaxError:
        return False


def _random(rng: random.Random, task: BFCLTask, pool: Sequence[str], knows: float = 0.7) -> Turns:
    """Return up to three steps a turn of up to three calls each; so large a share is of the task's own gold."""
    own = [call for turn in task.gold for call in turn]
    return [
        [
            [rng.choice(own if rng.random() < knows else pool) for _ in range(rng.randint(1, 3))]
            for _ in range(steps)
        ]
        for steps in (rng.randint(0, 3) for _ in task.gold)
    ]


def _changed(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """Return a reply with one thing changed: a character, a constant, an argument, the order; or another reply."""
    place = rng.randrange(len(text) + 1)
    match kind := rng.randrange(9):
        case 0:
            return text[:place] + rng.choice("()[]{},='\"x1 -") + text[place:]
        case 1:
            return text[:place] + text[place + 1 :]
        case 2:
            return rng.choice(others)
        case 3:
            return rng.choice((text[1:-1], f"```{text}```", f"'{text}'"))
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return text
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.keywords]
    if kind == 4 and isinstance(tree.body, ast.List):
        rng.shuffle(tree.body.elts)
    elif calls:
        keywords = rng.choice(calls).keywords
        place = rng.randrange(len(keywords))
        if kind == 5:
            del keywords[place]
        elif kind == 6:
            keywords[place].value = ast.parse(rng.choice(VALUES), mode="eval").body
        elif kind == 7:
            keywords[place].arg = "another"
        else:
            constants = [
                node for node in ast.walk(keywords[place].value) if isinstance(node, ast.Constant)
            ]
            for node in constants[:1]:
                node.value = _other(rng, node.value)
    return ast.unparse(tree)


def _other(rng: random.Random, value: Any) -> Any:
    if isinstance(value, str):
        return rng.choice((f"{value}x", value.upper(), value.replace(" ", "")))
    return (
        (not value)
        if isinstance(value, bool)
        else value + rng.choice((1, 0.5))
        if value is not None
        else 3
    )


def _prompts(categories: Sequence[str]) -> Row:
    """Count the openings, and what announces functions later, that are the official ones."""
    from turngym.envs.suites.bfcl import make_bfcl
    from turngym.tests.verify.suites import official

    handler, wrong, count = official.utilities().handler, [], 0
    later = handler.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING
    for category in categories:
        env, known = make_bfcl(category), official.entries(category)
        for index, task in enumerate(env.tasks):
            entry, count = known[task.id], count + 1
            _, info = env.reset(seed=0, options={"task": index})
            opening = handler.system_prompt_pre_processing_chat_model(
                [dict(message) for message in entry["question"][0]], entry["function"], task.id
            )
            more = {
                int(turn): later.format(functions=held)
                for turn, held in entry.get("missed_function", {}).items()
            }
            if info["messages"] != opening or any(
                task.messages(n)[0]["content"] != text for n, text in more.items()
            ):
                wrong.append(task.id)
    return Row(
        "BFCL: prompts are the official ones of its default format",
        count - len(wrong),
        count,
        first(wrong),
    )


def _floors(env: BFCL, rng: random.Random, pool: Sequence[str]) -> Row:
    """Measure what a constant reply, an empty one and random calls earn; it is a figure, every episode holds."""
    earned = dict.fromkeys(("constant", "empty", "random"), 0)
    for index, task in enumerate(env.tasks):
        turns: dict[str, str | Turns] = {
            "constant": CONSTANT,
            "empty": "",
            "random": rng.choice(pool),
        }
        if task.is_conversation:
            turns = {
                "constant": [[[CONSTANT[1:-1]]] for _ in task.gold],
                "empty": [[] for _ in task.gold],
                "random": _random(rng, task, pool, knows=0),
            }
        for name, done in turns.items():
            earned[name] += not played(env, index, done)
    count = len(env.tasks)
    note = ", ".join(f"{name} {100 * found / count:.1f} %" for name, found in earned.items())
    return Row(f"BFCL {env.tasks[0].category}: floors", count, count, note)
