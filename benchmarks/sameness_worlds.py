"""Items of `sameness.py` from the lower rooms: what a policy reads, what is read from it, and what it is paid."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import gymnasium

import turngym
from turngym.benchmarks.sameness_items import Item, LeftOut, Scope, to_text
from turngym.benchmarks.sameness_reach import reach

KEYS = (
    (0, 200),
    (200, 1000),
    (1000, 2000),
)  # of the generator of a problem; the first range is the quick part
GAMES = "data/household/games_valid_seen_A.jsonl.xz"  # in the shared folder
TOOL_NAMES = ("python", "search", "visit", "calculate", "get_weather")
DEADLINE = 60.0  # seconds for an answer, so that no verdict depends on how busy the machine is


# --- environments, and the options with which they are made


@dataclass(frozen=True)
class World:
    """An environment with options.

    Args:
        env_id: As it is registered.
        options: Keyword arguments of `gymnasium.make`.
        games: Whether it plays the recorded games of the shared folder.
    """

    env_id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    games: bool = False

    @property
    def name(self) -> str:
        """The id without its namespace, and the options."""
        options = [f"{name}={value}" for name, value in self.options.items()]
        return " ".join([self.env_id.removeprefix("turngym/"), *options])

    def make(self, scope: Scope) -> gymnasium.Env[str, str]:
        """Make the environment. Raises whatever it raises if the machine lacks something that it needs."""
        options = dict(self.options)
        if self.games:
            options["games"] = str(scope.shared / GAMES)
        return gymnasium.make(self.env_id, **options)


FORMAT_NAMES = ("hermes", "tags", "fenced", "llama-json", "pythonic")
OPTIONS: dict[str, list[dict[str, Any]]] = {  # beside the defaults
    "turngym/Math-v0": [
        {"system": True},
        {"system": "Answer in a box."},
        {"answers": "lenient"},
        {"difficulty": [3, 4, 5], "split": "test"},
        {"families": "sums", "split": "valid"},
        {"tasks": "reasoning-gym:chain_sum,number_sorting"},
    ],
    "turngym/MathPython-v0": [
        {"system": True},
        *({"format": name} for name in FORMAT_NAMES),
        {"format": "tags", "system": True},
        {"level": "rlimits-only", "timeout": 2.0, "memory_mb": 256},
    ],
    "turngym/Search-v0": [
        {"system": True},
        {"size": "tiny", "hops": 1, "k": 1},
        {"size": "medium", "hops": 3, "split": "test"},
        *({"format": name} for name in FORMAT_NAMES if name != "fenced"),
        {"visit": True, "format": "hermes"},
    ],
    "turngym/Household-v0": [
        {"size": "tiny"},
        {"size": "medium", "difficulty": 4},
        {"size": "large", "difficulty": 5, "split": "test"},
        {"text": "old"},
        {"admissible": True},
    ],
    "turngym/ALFWorld-v0": [{"split": "valid_seen", "admissible": True}],
    "turngym/BFCL-v0": [{"category": "multi_turn_base"}],
    "turngym/ManyWays-v0": [{"size": 40}],
}


def worlds() -> Iterator[World]:
    """Yield every registered environment with its defaults, then with other options."""
    for env_id in sorted(name for name in gymnasium.registry if name.startswith("turngym/")):
        games = env_id == "turngym/ALFWorld-v0"
        for options in [{}, *OPTIONS.get(env_id, [])]:
            split = {"split": "valid_seen"} if games and "split" not in options else {}
            yield World(env_id, {**options, **split}, games)


def one_line(error: Exception) -> str:
    """Return the type and the first line of an exception."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def environments(scope: Scope) -> Iterator[Item | LeftOut]:
    """Yield what an agent reads first, by environment and options: observation, prompt, schemas of tools."""
    resets = 30  # a reset takes little beside making the environment
    for world in worlds():
        if scope.quick and world.options and not world.games:
            continue
        try:
            env = world.make(scope)
        except (ValueError, FileNotFoundError, ImportError) as error:
            yield LeftOut(world.name, one_line(error))
            continue
        with closing(env):
            lines = []
            for seed in range(resets):
                observation, info = env.reset(seed=seed)
                lines.append(to_text([observation, info]))
            for task in range(resets):
                observation, info = env.reset(seed=0, options={"task": task})
                lines.append(to_text([observation, info, *gold_actions(env)]))
        yield Item(world.name, "\n".join(lines))


def gold_actions(env: gymnasium.Env[str, str]) -> list[str]:
    """Return what the expert would do next; nothing if there is no expert."""
    try:
        actions: list[str] = env.get_wrapper_attr("gold")()
    except TypeError:
        return []
    return actions[:1]


# --- generated problems


def problems(scope: Scope) -> Iterator[Item]:
    """Yield every kind of generated problem with what it draws for each key."""
    keyed_random = reach("KeyedRandom")
    for family, levels in reach("PROBLEM_FAMILIES").items():
        for level, kinds in sorted(levels.items()):
            for number, draw in enumerate(kinds):
                for start, stop in KEYS[: scope.part(len(KEYS), 1)]:
                    drawn = [draw(keyed_random(key, family, level)) for key in range(start, stop)]
                    lines = [to_text([one.text, one.gold, one.solution]) for one in drawn]
                    yield Item(
                        f"{family} {level} kind {number} keys {start}-{stop - 1}", "\n".join(lines)
                    )


# --- chat templates


def templates(scope: Scope) -> Iterator[Item | LeftOut]:
    """Yield what each recorded chat template writes around an opening and around the answer to a call."""
    file = scope.shared / "data/tokenizer/chat_templates.jsonl"
    if not file.is_file():
        yield LeftOut(
            "chat templates", "the shared folder has no data/tokenizer/chat_templates.jsonl"
        )
        return
    openings = {}
    for env_id, options in (
        ("Math-v0", {}),
        ("MathPython-v0", {}),
        ("Search-v0", {"format": "hermes"}),
    ):
        with closing(gymnasium.make(f"turngym/{env_id}", **options)) as env:
            _, info = env.reset(seed=1, options={"task": 1})
            openings[env_id] = info["messages"], info["tools"]
    rows = read_rows(file)
    for number, row in list(enumerate(rows))[:: scope.part(1, 8)]:
        yield Item(f"{number} {row['name']}", "\n".join(rendered(row["text"], openings)))


def rendered(source: str, openings: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Yield what a template makes of openings (messages and tools) and of answers, and whether it is accepted."""
    try:
        template = reach("Template")(source)
    except ValueError as error:
        yield f"raises {type(error).__name__}"
        return
    for env_id, (messages, schemas) in openings.items():
        yield f"{env_id}: {result_or_error(template.render, messages, schemas, generate=True)!s}"
    for role in ("tool", "user"):
        answer = [{"role": role, "content": "<tool_response>42</tool_response> ✓"}]
        yield f"{role}: {result_or_error(template.after_turn, answer)!s}"
    yield f"accepted: {result_or_error(template.check)}"


def result_or_error(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what a function returns; for an exception the name of its type, as its words are for people."""
    try:
        return function(*arguments, **options)
    except (ValueError, AttributeError, TypeError) as error:
        return f"raises {type(error).__name__}"


# --- episodes of experts


@dataclass(frozen=True)
class Played:
    """Episodes of an expert in a world: tasks 0 to `episodes` - 1, fewer in the quick part."""

    world: World
    episodes: int
    quick: int
    most_turns: int = 120


PLAYED = (
    Played(World("turngym/Household-v0", {"size": "tiny"}), 10, 2),
    Played(World("turngym/Household-v0"), 20, 2),
    Played(World("turngym/Household-v0", {"size": "medium", "difficulty": 5}), 15, 1),
    Played(World("turngym/Household-v0", {"text": "old", "admissible": True}), 5, 1),
    Played(World("turngym/ALFWorld-v0", {"split": "valid_seen"}, games=True), 10, 2),
    Played(World("turngym/Search-v0"), 30, 3),
    Played(World("turngym/Search-v0", {"size": "tiny", "hops": 1, "format": "hermes"}), 10, 2),
    Played(World("turngym/MathPython-v0"), 20, 2),
    Played(World("turngym/MathPython-v0", {"difficulty": [4, 5], "format": "fenced"}), 5, 1),
    Played(World("turngym/Math-v0"), 20, 4),
    Played(World("turngym/Math-v0", {"tasks": "reasoning-gym:chain_sum,number_sorting"}), 10, 2),
    Played(World("turngym/BFCL-v0"), 10, 2),
    Played(World("turngym/BFCL-v0", {"category": "multi_turn_base"}), 10, 1),
    Played(World("turngym/ScienceWorld-v0"), 3, 1),
    Played(World("turngym/Tau2-v0"), 3, 1),
    Played(World("turngym/LateBloomer-v0"), 5, 2),
    Played(World("turngym/UselessChoice-v0"), 5, 2),
    Played(World("turngym/ManyWays-v0"), 5, 2),
    Played(World("turngym/Distractor-v0"), 5, 2),
)


def experts(scope: Scope) -> Iterator[Item | LeftOut]:
    """Yield whole episodes in which an environment's expert says what to do."""
    for played in PLAYED:
        try:
            env = played.world.make(scope)
        except (ValueError, FileNotFoundError, ImportError) as error:
            yield LeftOut(played.world.name, one_line(error))
            continue
        with closing(env):
            for task in range(scope.part(played.episodes, played.quick)):
                yield Item(
                    f"{played.world.name} task {task}",
                    "\n".join(transcript(env, task, played.most_turns)),
                )


def transcript(env: gymnasium.Env[str, str], task: int, most_turns: int) -> Iterator[str]:
    """Yield an episode of the expert's, a line for the reset and one for each step."""
    observation, info = env.reset(seed=7, options={"task": task})
    yield to_text([observation, info])
    for _ in range(most_turns):
        action = gold_actions(env)[0]
        answer = env.step(action)
        yield to_text([action, *answer])
        if answer[2] or answer[3]:
            return


# --- tools


class Place(TypedDict, total=False):
    """A place on a map."""

    name: str
    position: list[float]


def book(
    place: Place,
    nights: int = 1,
    names: list[str] | None = None,
    price: float = 9.5,
    breakfast: bool = False,
) -> str:
    """Book a room.

    A second paragraph, which says more.

    Args:
        place: Where the room is.
        nights: How many nights,
            on two lines.
        names: The guests.
        price: The most it may cost.
        breakfast: Whether there is breakfast.
    """
    if nights < 0:
        raise ValueError("nights is negative")
    return f"{nights} nights in {place.get('name')} at {price}, breakfast {breakfast}, for {names}"


BOOKINGS: tuple[dict[str, Any], ...] = (
    {},
    {"place": {"name": "Ulm"}},
    {"place": {"name": "Ulm", "position": [1, 2.5]}, "nights": 2, "names": ["A", "B"], "price": 3},
    {"place": {"name": "Ulm"}, "nights": "2"},
    {"place": {"name": "Ulm"}, "nights": 2.0},
    {"place": {"name": "Ulm"}, "nights": True},
    {"place": {"name": "Ulm"}, "nights": -1},
    {"place": "Ulm"},
    {"place": {"name": 3}},
    {"place": {"name": "Ulm"}, "names": "A"},
    {"place": {"name": "Ulm"}, "names": [1]},
    {"place": {"name": "Ulm"}, "breakfast": "yes"},
    {"place": {"name": "Ulm"}, "night": 1},
    {"place": None},
)
PROGRAMS = (
    "print(6*7)",
    "1/0",
    "print(",
    "x = 1\nx",
    "import os\nprint(os.getcwd() == '/')",
    "raise ValueError('ab' * 10)",
    "print('x' * 20000)",
    "import no_such_module",
    "def f():\n    return g()\ndef g():\n    return [][1]\nf()",
    "print('é', '\\x00', '</tool_response>')",
    "exit(3)",
    "",
)
REPLIES = (  # to any environment
    "",
    "hello",
    "<tool_call>\n{}\n</tool_call>",
    '<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "python", "arguments": {"cod": "1"}}\n</tool_call>',
    '<tool_call>\n{"name": "python", "arguments": {"code": 1}}\n</tool_call>',
    '<tool_call>\n{"name": "search", "arguments": {"query": ""}}\n</tool_call>',
    '<tool_call>\n{"name": "python", "arguments"',
    "<search></search>",
    "<search>who founded it?</search>",
    "<think>so \\boxed{3}</think> go to cabinet 1",
    "<action>look</action>",
    "inventory",
    "take apple 1 from fridge 1",
    "open",
    "<answer></answer>",
    "\\boxed{}",
    "\\boxed{17}",
)


def tools(scope: Scope) -> Iterator[Item | LeftOut]:
    """Yield schemas from docstrings, results and errors of tools, and answers of environments to odd replies."""
    booking = turngym.tool(book)
    yield Item("schema of a function", json.dumps(booking.schema, indent=1))
    answers = [to_text([arguments, vars(booking.call(arguments))]) for arguments in BOOKINGS]
    yield Item("calls of a function", "\n".join(answers))
    yield Item("calls of python", "\n".join(results_of_programs()))
    household = [row["input"] for row in bugs(scope, "household")]
    for world in worlds():
        if world.options and not (world.games or "format" in world.options):
            continue
        if scope.quick and world.options:
            continue
        try:
            env = world.make(scope)
        except (ValueError, FileNotFoundError, ImportError) as error:
            yield LeftOut(f"replies to {world.name}", one_line(error))
            continue
        replies = [*REPLIES, *household] if "Household" in world.env_id else REPLIES
        with closing(env):
            lines = [to_text([reply, *env_answer(env, reply)]) for reply in replies]
        yield Item(f"replies to {world.name}", "\n".join(lines))


def results_of_programs() -> Iterator[str]:
    """Yield what the Python tool answers to programs, each in an episode of its own."""
    with closing(gymnasium.make("turngym/MathPython-v0")) as env:
        for program in PROGRAMS:
            call = json.dumps({"name": "python", "arguments": {"code": program}})
            yield to_text([program, *env_answer(env, f"<tool_call>\n{call}\n</tool_call>")])


def env_answer(env: gymnasium.Env[str, str], reply: str) -> Sequence[Any]:
    """Return what an environment answers to the first reply of an episode."""
    env.reset(seed=2, options={"task": 2})
    answer: Sequence[Any] = env.step(reply)
    return answer


# --- parsers and graders


def parsers(scope: Scope) -> Iterator[Item | LeftOut]:
    """Yield what each format of calls, and each way to find an answer, reads in recorded completions."""
    files = completions(scope)
    if not files:
        yield LeftOut("recorded completions", f"there are none in {scope.shared.name}")
    for file, texts in files.items():
        texts = texts[: scope.part(len(texts), 60)]
        for name, style in reach("FORMATS").items():
            yield Item(
                f"format {name}, {file}, {len(texts)}",
                "\n".join(read_by(style, text) for text in texts),
            )
        for name, extract in reach("EXTRACTIONS").items():
            lines = [to_text(extract(text)) for text in texts]
            yield Item(f"answers by {name}, {file}, {len(texts)}", "\n".join(lines))
        yield Item(
            f"thoughts, {file}, {len(texts)}", "\n".join(thoughts_of(text) for text in texts)
        )
    yield Item("results in a frame", "\n".join(framed_results()))
    yield Item("calls written", "\n".join(written_calls()))


def read_by(style: Any, text: str) -> str:
    """Return all that a format says of a text, as one line."""
    parsed = style.parse(text, TOOL_NAMES)
    call = None if parsed.call is None else [parsed.call.name, parsed.call.arguments]
    foreign = reach("foreign_call")(
        text, style.name, TOOL_NAMES, malformed=parsed.error is not None
    )
    said = style.without_thoughts(text)
    places = [style.complete(text), style.find_start(text), style.find_arguments(text)]
    return to_text([call, parsed.error, len(parsed.text), places, said, foreign])


def thoughts_of(text: str) -> str:
    """Return a text without its thoughts and without a fence, as one line."""
    return to_text(
        [reach("without_thoughts")(text), reach("outside_thoughts")(text), reach("unfenced")(text)]
    )


def framed_results() -> Iterator[str]:
    """Yield how each format shows results of tools."""
    results = (
        "42\n",
        "</result>",
        "```\nx\n```",
        "<｜/tool_response>",
        "a [/ information] b",
        "</tool_call>",
    )
    for style in reach("FORMATS").values():
        for result in results:
            yield to_text(
                [
                    style.name,
                    result,
                    *(style.observe(result, tool) for tool in ("python", "search", None)),
                ]
            )


def written_calls() -> Iterator[str]:
    """Yield how each format writes calls; the name of an error's type if it cannot."""
    tool_call = reach("ToolCall")
    calls = (
        tool_call("python", {"code": "print(6*7)\n"}),
        tool_call("python", {"code": "</python>"}),
        tool_call("search", {"query": "two\nlines “quoted”"}),
        tool_call("calculate", {"x": 1, "y": [2.5, None, True], "z": {"a": "</think>"}}),
    )
    for style in reach("FORMATS").values():
        for call in calls:
            yield to_text([style.name, result_or_error(style.render, call)])


def grader(scope: Scope) -> Iterator[Item | LeftOut]:
    """Yield verdicts of the graders over recorded answers."""
    cases = graded_cases(scope)
    if not cases:
        yield LeftOut("recorded answers", f"there are none in {scope.shared.name}")
    for file, pairs in cases.items():
        pairs = pairs[: scope.part(len(pairs), 40)]
        for extract in ("box", "lenient")[: scope.part(2, 1)]:
            judge = reach("MathGrader")(DEADLINE, extract=extract)
            with closing(judge):
                lines = [verdict(judge, gold, text) for gold, text in pairs]
            yield Item(f"math, {extract}, {file}, {len(pairs)}", "\n".join(lines))
        for lenient in (False, True):
            judge = reach("QAGrader")(lenient)
            lines = [verdict(judge, gold, text) for gold, text in pairs]
            yield Item(f"facts, {lenient=}, {file}, {len(pairs)}", "\n".join(lines))


def verdict(judge: Any, gold: str, completion: str) -> str:
    """Return whether a gold answer is accepted, and the grade of a completion, as one line."""
    fault = result_or_error(judge.check_gold, gold)
    grade = result_or_error(judge.grade, completion=completion, gold=gold)
    if isinstance(grade, str):
        return to_text([gold, fault, grade])
    fields = grade._asdict()
    if "error" in fields:  # its words are for people
        fields["error"] = fields["error"] is not None
    return to_text([gold, fault, fields])


# --- recorded data


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file (`.gz` too); none if it is not there."""
    if not file.is_file():
        return []
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in text.decode("utf-8").split("\n") if line.strip()]


def bugs(scope: Scope, area: str) -> list[dict[str, Any]]:
    """Return the recorded bugs of an area."""
    return [
        row for row in read_rows(scope.shared / "corpora/turn3/bugs.jsonl") if row["area"] == area
    ]


def adversarial(scope: Scope) -> list[dict[str, Any]]:
    """Return the recorded hostile completions, of those that are written in parts the whole text."""
    rows = read_rows(scope.shared / "corpora/adversarial_answers.jsonl")
    return [
        {
            **row,
            "text": "".join(text * times for text, times in row.get("parts", [[row["text"], 1]])),
        }
        for row in rows
    ]


def completions(scope: Scope) -> dict[str, list[str]]:
    """Return recorded completions by the file they are from."""
    calls = [row["input"]["completion"] for row in bugs(scope, "tool calls")]
    graded = [
        row["input"]["completion"]
        for row in bugs(scope, "math grader")
        if isinstance(row["input"], dict)
    ]
    lenient = [row["input"] for row in bugs(scope, "math grader (lenient)")]
    household = [row["input"] for row in bugs(scope, "household")]
    folder = scope.shared / "data"
    files = {
        "calls of bugs": calls,
        "answers of bugs": graded + lenient,
        "replies of bugs": household,
        "hostile": [row["text"] for row in adversarial(scope)],
        "model predictions": [
            row["response"]
            for row in read_rows(folder / "answer_equiv/model_predictions_math.jsonl")
        ],
    }
    for name in ("completions", "arpo_python_result", "roll_trajectories"):
        files[name] = [row["text"] for row in read_rows(folder / f"tool_calls/{name}.jsonl")]
    return {name: texts for name, texts in files.items() if texts}


def graded_cases(scope: Scope) -> dict[str, list[tuple[str, str]]]:
    """Return recorded golds and completions by the file they are from."""
    math = [row["input"] for row in bugs(scope, "math grader") if isinstance(row["input"], dict)]
    spoken = [row["input"].rpartition(" | ") for row in bugs(scope, "math grader (lenient)")]
    facts = [row["input"].partition(" | ") for row in bugs(scope, "search grader")]
    equal = read_rows(scope.shared / "data/answer_equiv/equiv_cases.jsonl")
    predicted = read_rows(scope.shared / "data/answer_equiv/model_predictions_math.jsonl")
    hostile = [row for row in adversarial(scope) if isinstance(row.get("gold"), str)]
    cases = {
        "bugs": [(row["gold"], row["completion"]) for row in math],
        "lenient bugs": [(gold, text) for text, _, gold in spoken],
        "search bugs": [(gold, f"<answer>{answer}</answer>") for answer, _, gold in facts],
        "equivalence": [
            (row["gold"], f"The answer is $\\boxed{{{row['pred']}}}$.") for row in equal
        ],
        "model predictions": [(row["gold"], row["response"]) for row in predicted],
        "hostile": [(row["gold"], row["text"]) for row in hostile],
    }
    return {name: pairs for name, pairs in cases.items() if pairs}
