"""Players that act by text: an expert that knows the gold, an observer, a script. Their episodes are trees too.

For a person at the terminal what ends an episode is said before it, and the right answer behind it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ..envs import Message, StopReason, TextEnv
from ..envs.question.env import QuestionEnv
from ..envs.registry import takes_option
from ..envs.split_episodes import begin
from ..tools import ToolCall
from ..tools.formats import text_format
from ..tools.progress import track
from .engine import EngineFailure
from .trajectory import NO_TOKENS, Leaf, Tree, Turn, failed_step, root_turn, step

LEAVE, HELP = (":q", ":quit"), (":h", ":help")
ENDS = {
    "answered": "the reply was the final answer",
    "no_answer": "the reply was the final answer, and the grader found no answer in it that it could read",
    "goal": "the goal is reached",
    "max_turns": "the turn limit is reached",
    "tool_error": "a tool could not run",
    "infra_error": "the environment could not go on",
}
_BLANK = {"string": "…", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}


class ContextFull(Exception):
    """What has been said does not fit into the context of who should answer."""

    fault = "context"


@dataclass(frozen=True)
class Action:
    """An action, why the model stopped there (`end`, or `length` at its token limit), and the tokens of its answer."""

    text: str
    ended: str = ""
    tokens: int = 0


class Player(Protocol):
    """Who plays an episode."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str | Action | None:
        """Return the action for what was last observed; None to leave.

        Raises ContextFull or EngineFailure for what ends the episode, with its score so far or as a failure.
        """


class GoldPlayer:
    """Plays the environment's own gold actions: what a perfect agent would earn."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        return env.gold()[0]


class Observer:
    """Plays from what it is shown alone, by the policy that the environment offers as `expert()`, if any."""

    def __init__(self) -> None:
        self._minds: WeakKeyDictionary[TextEnv, Any] = WeakKeyDictionary()

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Return the policy's next action; every environment has a policy of its own."""
        if env not in self._minds:
            check_player("observer", env)
            make: Callable[[], Any] = getattr(env, "expert")  # noqa: B009 (no method of TextEnv)
            self._minds[env] = make()
        return str(self._minds[env].act(observation))


class Script:
    """Says what is written, one text a turn, then leaves: for one episode."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = iter(texts)

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str | None:
        return next(self.texts, None)


PLAYERS: dict[str, Callable[[], Player]] = {"expert": GoldPlayer, "observer": Observer}


def check_player(name: str, env: TextEnv) -> None:
    """Raise TypeError if an environment lacks what the player of this name plays by."""
    if name == "observer" and not hasattr(env, "expert"):
        raise TypeError(
            f"{type(env).__name__} has no expert() that plays from observations; use `expert`"
        )


def play(env: TextEnv, player: Player, task: int, seed: int = 0) -> Tree:
    """Let a player play one task in a fork of `env` and return a tree of one path, without tokens.

    What the environment raises while it answers, and an `EngineFailure`, end the path as an infrastructure failure. A
    path that the player left has no leaf. What else the player raises, and a `reset` that fails, is raised.
    """
    env = env.fork()
    try:
        observation, info = begin(env, task, seed)
        tree = Tree((seed, 0, task), task, info["task_id"])
        node, score = tree.add(root_turn(observation, info, NO_TOKENS)), 0.0
        while (action := player.act(env, observation, info)) is not None:
            action = action if isinstance(action, Action) else Action(action)
            try:
                result = step(env, action.text)
            except Exception as error:
                result = failed_step({"error": f"{type(error).__name__}: {error}"})
            score += result.reward
            turn = Turn.unsampled(node, "assistant", action.text, NO_TOKENS)
            said = replace(turn, ended=action.ended, counted=action.tokens)
            node = tree.add(replace(said, reward=result.reward, info=result.info))
            if result.stop is not None:
                tree.leaves.append(Leaf.ended(node, 0, result.stop, score, result.info))
                break
            role, observation = (str(result.messages[0][name]) for name in ("role", "content"))
            node = tree.add(Turn.unsampled(node, role, observation, NO_TOKENS))
            info = {"messages": result.messages, **result.info}
    except ContextFull:
        tree.leaves.append(Leaf.ended(node, 0, StopReason.CONTEXT, score, {}))
    except EngineFailure as error:
        found = {"error": str(error), "engine": str(error.fault)}
        tree.leaves.append(Leaf.ended(node, 0, StopReason.INFRA_ERROR, score, found))
    finally:
        env.close()
    return tree


def play_all(
    env: TextEnv,
    player_of: Callable[[int, int], Player],
    episodes: Sequence[tuple[int, int]],
    on_tree: Callable[[Tree], None] = lambda tree: None,
    threads: int = 8,
    on_failure: Callable[[], None] = lambda: None,
) -> list[Tree]:
    """Play episodes, each given by its task and its seed, and return their trees in this order.

    `env` is forked for each, `player_of` returns who plays a task with a seed, and `threads` are the most at a time.
    `on_tree` is called with each tree when its episode is over, in this thread; `on_failure` where one raises, and on
    Ctrl-C: it ends those that are under way. No other begins then.
    """
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(lambda t, s: play(env, player_of(t, s), t, s), task, seed)
            for task, seed in episodes
        ]
        try:
            for job in track(as_completed(jobs), "episodes", len(jobs)):
                on_tree(job.result())
        except BaseException:
            pool.shutdown(
                wait=False, cancel_futures=True
            )  # before those under way end: no worker may begin another
            on_failure()
            raise
    return [job.result() for job in jobs]


def play_at_terminal(env: TextEnv, opening: Sequence[Message], console: Console) -> None:
    """Ask for replies, from the opening of an episode of `env` to its end, or until the person leaves."""
    gold = _gold(env)
    for message in opening:
        _show(console, message["role"], message["content"])
    _show(console, "how to play", "\n".join(_rules(env)))
    while (reply := _ask(env, console)) is not None:
        observation, reward, terminated, truncated, info = env.step(reply)
        if observation:
            _show(console, info["messages"][0]["role"], observation)
        if terminated or truncated:
            why = ENDS.get(info["stop"], info["stop"]) + (
                f": {info['error']}" if "error" in info else ""
            )
            _show(console, "end", "\n".join([f"The episode is over: {why}.", *gold]))
            console.print(
                f"reward {reward:g}, {info['outcome']} ({info['stop']}) after {info['turn']} turns"
            )
            return
    console.print("stopped before the end of the episode")


def _gold(env: TextEnv) -> list[str]:
    """Return what is shown at the end; asked for now, as an expert's actions are those from here on."""
    try:
        actions = env.gold()
    except (
        Exception
    ) as error:  # an author's code, which may not be written for every episode, or at all
        return [f"The right answer is not known: {error}"]
    if isinstance(env, QuestionEnv):
        return [f"The right answer: {actions[-1]}"]
    return ["An expert would have played:", *actions]


def _rules(env: TextEnv) -> Iterator[str]:
    if not isinstance(env, QuestionEnv):
        yield f"A line is an action. The episode ends at its goal, or at the turn limit, which is {env.max_turns}."
    elif not len(env.toolbox):
        yield "A line is the final answer and ends the episode."
    else:
        yield (
            "A line without a call is the final answer and ends the episode; so does the turn limit, which is "
            f"{env.max_turns}. This is a call; while it is not closed, the prompt is a dot and asks for its next line:"
        )
        for schema in env.toolbox.schemas:
            of = schema["function"]
            kinds = {
                name: of["parameters"]["properties"][name]
                for name in of["parameters"].get("required", ())
            }
            blanks = {name: _BLANK.get(kind.get("type"), "…") for name, kind in kinds.items()}
            yield env.format.render(ToolCall(of["name"], blanks))
        if env.format.native and env.spec is not None and takes_option(env.spec.id, "format"):
            easier = f"`--option format={text_format(env.toolbox.schemas).name}` is easier to type."
            yield f"Calls are in the format {env.format.name}; {easier}"
    yield ":q leaves, :help shows this again."


def _show(console: Console, title: str, text: str) -> None:
    console.print(Panel(Text(text), title=title, title_align="left"))


def _ask(env: TextEnv, console: Console) -> str | None:
    """Return a reply, a call up to where it closes; None where the person leaves."""
    text = ""
    try:
        while True:
            line = console.input("[bold]. [/bold]" if text else "[bold]> [/bold]")
            if line.strip() in LEAVE:
                return None
            if not text and line.strip() in (*HELP, ""):
                _show(console, "how to play", "\n".join(_rules(env)))
                continue
            text = f"{text}\n{line}" if text else line
            calls = env.format if isinstance(env, QuestionEnv) and len(env.toolbox) else None
            if (
                calls is None
                or calls.find_start(f"{text}\n") is None
                or calls.complete(f"{text}\n")
            ):  # else a call is open
                return text
    except (EOFError, KeyboardInterrupt):
        return None
