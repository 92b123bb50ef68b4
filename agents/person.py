"""A person who plays in the terminal: what ends an episode is said before it, the right answer behind it."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ..envs import Message, TextEnv
from ..envs.question import QuestionEnv
from ..tools import ToolCall

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


def play(env: TextEnv, opening: Sequence[Message], console: Console) -> None:
    """Ask for replies, from the opening of an episode of `env` to its end, or until the person leaves."""
    gold = _gold(env)
    for message in opening:
        _show(console, message["role"], message["content"])
    _help(env, console)
    while (reply := _ask(env, console)) is not None:
        observation, reward, terminated, truncated, info = env.step(reply)
        if observation:
            _show(console, info["messages"][0]["role"], observation)
        if terminated or truncated:
            why = ENDS.get(info["stop"], info["stop"]) + (f": {info['error']}" if "error" in info else "")
            _show(console, "end", "\n".join([f"The episode is over: {why}.", *gold]))
            console.print(f"reward {reward:g}, {info['outcome']} ({info['stop']}) after {info['turn']} turns")
            return
    console.print("stopped before the end of the episode")


def _gold(env: TextEnv) -> list[str]:
    """Return what is shown at the end; asked for now, as an expert's actions are those from here on."""
    try:
        actions = env.gold()
    except Exception as error:  # an author's code, which may not be written for every episode, or at all
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
            kinds = {name: of["parameters"]["properties"][name] for name in of["parameters"].get("required", ())}
            blanks = {name: _BLANK.get(kind.get("type"), "…") for name, kind in kinds.items()}
            yield env.format.render(ToolCall(of["name"], blanks))
        if env.format.native:
            yield f"Calls are in the format {env.format.name}; `--option format=tags` is easier to type."
    yield ":q leaves, :help shows this again."


def _help(env: TextEnv, console: Console) -> None:
    _show(console, "how to play", "\n".join(_rules(env)))


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
                _help(env, console)
                continue
            text = f"{text}\n{line}" if text else line
            if not _open(env, f"{text}\n"):
                return text
    except (EOFError, KeyboardInterrupt):
        return None


def _open(env: TextEnv, text: str) -> bool:
    """Return whether a call begins in `text` that does not end."""
    if not (isinstance(env, QuestionEnv) and len(env.toolbox)):
        return False
    return env.format.begins(text) is not None and not env.format.complete(text)
