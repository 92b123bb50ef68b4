"""The promise that golds are seen nowhere: a canary takes their place, and all that leaves an episode is searched.

Searched are observations, info, schemas, journals, snapshots, forks, the environment's repr, metadata, spaces and
rendering, the texts of exceptions, logs, warnings, what is printed, and what tools are called with and give back: for
the canary and for spellings that say as much, backwards, in hexadecimal, in base64, as a common hash. Where there is a
Python tool, a program searches its own process: environment, arguments, working and temporary folders, open files,
objects. It does not read the memory of other processes: that they cannot be read is a promise of the tool's
confinement, not of the environment.
"""

import base64
import hashlib
import io
import logging
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from ...envs import TextEnv
from ...envs.question.env import QuestionEnv
from ...envs.split_episodes import task_count
from ...tools import PythonTool, Tool, ToolCall, ToolResult
from ..journal.trees import to_json
from ..players import Script, play
from . import search
from .episodes import Broken, Subject, example_calls, expert
from .steps import odd_actions

EPISODES = 4
IDS = 8  # of tasks, each beside its gold
ODD = 4  # of the odd actions, tried in each episode
DIGITS = 15  # of a canary: a number that every grader takes, and that no float rounds
_WORD = re.compile(r"[^\W_]+")


class Detector:
    """Looks for a canary in all it is shown; `seen` names where it was and what stood around it.

    The canary itself is left out there: it would be found again where a problem is written to a temporary file.
    """

    def __init__(self, canary: str) -> None:
        self.canary, self.seen = canary, dict[str, str]()
        data = canary.encode()
        hashes = (
            hashlib.new(name, data).hexdigest() for name in ("md5", "sha1", "sha256", "sha512")
        )
        # Behind so many other bytes; what the bytes beside it change is cut off.
        in_base64 = (base64.b64encode(bytes(shift) + data)[4:-4].decode() for shift in range(3))
        self.spellings = (canary, canary[::-1], data.hex(), f"{int(canary):x}", *hashes, *in_base64)

    def look(self, where: str, *things: Any) -> None:
        """Search the text of `things`, also for other spellings and for separators between the canary's digits."""
        for thing in things:
            text = thing if isinstance(thing, str) else repr(thing)
            found = next((one for one in self.spellings if one in text), None)
            if found or self.canary in re.sub(r"[\s,_]", "", text):
                start = max(text.find(found or self.canary) - 60, 0)
                self.seen.setdefault(
                    where, text[start : start + 140].replace(found or self.canary, "GOLD")
                )


class _Overheard:
    def __init__(self, tool: Tool, watch: Detector) -> None:
        self.tool, self.watch = tool, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tool, name)

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.watch.look(f"the arguments of {self.tool.name}", dict(arguments))
        result = self.tool.call(arguments)
        self.watch.look(f"the result of {self.tool.name}", result)
        return result

    def fork(self) -> Self:
        return type(self)(self.tool.fork(), self.watch)


class _Log(logging.Handler):
    def __init__(self, watch: Detector) -> None:
        super().__init__()
        self.watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        where = f"the log {record.name}"
        self.watch.look(where, vars(record))
        with suppress(Exception):  # the arguments may not fit the message; they have been looked at
            self.watch.look(where, self.format(record))


def check_canary(subject: Subject) -> str:
    """A random text in place of the gold answers appears nowhere."""
    _check_ids(subject)
    subjects = [replace(subject, seed=subject.seed + i) for i in range(EPISODES)]
    if not all(hunt(one) for one in subjects):
        return "not checked: the environment's plant() says that it holds no gold text"
    return f"{EPISODES} episodes"


def _check_ids(subject: Subject) -> None:
    """Look whether the ids of tasks hold the words by which the golds of seeds differ, which `plant` may not know."""
    golds: list[set[str]] = []
    ids: list[str] = []
    with (
        subject.bare() as env,
        suppress(Exception),
    ):  # whether there is a gold is the business of another clause
        for seed in range(subject.seed, subject.seed + IDS):
            observation, info = env.reset(seed=seed)
            ids.append(str(info["task_id"]))
            golds.append({*_WORD.findall(env.gold()[-1])} - {*_WORD.findall(observation)})
    common: set[str] = set.intersection(*golds) if golds else set()
    told = (
        common < gold <= common | {*_WORD.findall(name)}
        for gold, name in zip(golds, ids, strict=False)
    )
    if len(golds) == IDS and all(told):
        raise Broken(
            f"info['task_id'] tells the gold, as {ids[0]!r} does; name the task by its index, or not at all"
        )


def hunt(subject: Subject) -> bool:
    """Search all that is seen of an episode with a canary as gold, or raise Broken; False where gold is no text."""
    rng = np.random.default_rng((subject.seed, 0xCA))
    canary = str(rng.integers(10 ** (DIGITS - 1), 10**DIGITS))
    watch, began = Detector(canary), time.time() - 1.0  # the clock of file systems lags a little
    with subject.bare() as env, subject.bare() as plain, _everything_said(watch):
        if not env.plant(canary):
            return False
        env.reset(seed=subject.seed)
        gold = env.gold()
        if canary not in "".join(gold):
            raise Broken(
                f"{type(env).__name__}.plant returns True, but gold() is {gold!r} and holds no canary"
            )
        if isinstance(env, QuestionEnv):
            env.toolbox.tools = {
                name: cast(Tool, _Overheard(tool, watch))
                for name, tool in env.toolbox.tools.items()
            }
        known = expert(plain, subject.seed)
        odd = list(odd_actions(plain, known[-1:]))
        tried = (
            *known,
            *example_calls(plain),
            *(odd[int(i)] for i in rng.integers(len(odd), size=ODD)),
        )
        _episode(env, watch, subject.seed, tried)
        _mistakes(env, watch)
        if isinstance(plain, QuestionEnv) and isinstance(
            plain.toolbox.tools.get("python"), PythonTool
        ):
            env.reset()  # the agent searches its own process, in a call as `plain` writes it
            half = DIGITS // 2
            code = Path(search.__file__).read_text("utf-8")
            code += f"\nprint('found in', search({canary[:half]!r}, {canary[half:]!r}, {began}))"
            observation, *_ = env.step(plain.format.render(ToolCall("python", {"code": code})))
            said = re.search(r"found in \[(.*)\]", observation)
            if said is None:
                what = "the program that searches its own process did not get to its end"
                raise Broken(f"{what}: {observation!r:.300}")
            if said[1]:
                watch.seen[f"the tool's own process ({said[1]})"] = "GOLD"
    if watch.seen:
        where, text = next(iter(watch.seen.items()))
        raise Broken(
            f"seed {subject.seed}: the gold is seen in {', '.join(watch.seen)}; {where} is {text!r}"
        )
    return True


def _episode(env: TextEnv, watch: Detector, seed: int, actions: Sequence[str]) -> None:
    """Take `actions`, none of which knows the gold, in the episode of a seed; begin it again where it ends."""
    watch.look("what reset gives", env.reset(seed=seed))
    watch.look(
        "the tools' schemas",
        env.tool_schemas(),
        env.toolbox.schemas if isinstance(env, QuestionEnv) else "",
    )
    watch.look(
        "the metadata, the spec or a space",
        env.metadata,
        env.spec,
        env.observation_space,
        env.action_space,
    )
    _watched(watch, "the rendering", env.render)
    for action in actions:
        if not env.live:
            env.reset(seed=seed)
        _watched(watch, "what step gives", lambda: env.step(action))  # noqa: B023 (called at once)
    watch.look("the snapshot", env.snapshot())
    watch.look("the repr", repr(env), str(env))
    _watched(
        watch,
        "the journal",
        lambda: to_json(play(env, Script(actions), seed % task_count(env), seed)),
    )
    env.reset(seed=seed)

    def forked() -> list[Any]:
        with closing(env.fork()) as twin:
            return [*map(twin.step, actions[:1]), repr(twin), twin.snapshot()]

    _watched(watch, "what a fork gives", forked)


def _watched(watch: Detector, what: str, work: Callable[[], Any]) -> None:
    """Look at what `work` returns, or at the traceback of what it raises."""
    try:
        watch.look(what, work())
    except Exception as error:
        where = f"an exception ({type(error).__name__}) instead of {what}"
        watch.look(where, "".join(traceback.format_exception(error)))


def _mistakes(env: TextEnv, watch: Detector) -> None:
    env.reset()
    _watched(
        watch, "a restored snapshot", lambda: env.restore({**env.snapshot(), "digest": "another"})
    )
    _watched(watch, "a step with None", lambda: env.step(cast(str, None)))
    for options in ({"task": -1}, {"task": 10**DIGITS}, {"no such option": 0}):
        _watched(watch, f"a reset with {options}", lambda: env.reset(options=options))  # noqa: B023 (called at once)


@contextmanager
def _everything_said(watch: Detector) -> Iterator[None]:
    root, handler, printed = logging.getLogger(), _Log(watch), io.StringIO()
    level, disabled = root.level, root.manager.disable
    root.addHandler(handler)
    root.setLevel(logging.NOTSET + 1)
    logging.disable(logging.NOTSET)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        logging.disable(disabled)
    watch.look("what is printed", printed.getvalue())
    for warning in caught:
        watch.look("a warning", str(warning.message))
