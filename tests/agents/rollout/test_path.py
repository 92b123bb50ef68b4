"""One turn of a path at a time, with an engine that draws what it is told to and notes what it was given."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path as Folder
from typing import Any

import numpy as np
import pytest

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import Deadlines
from turngym.agents.engine import Completion, Continued, Sampling
from turngym.agents.journal.trees import Incident
from turngym.agents.models.resolve import TINY
from turngym.agents.rollout.path import (
    Actor,
    Driver,
    FirstTurn,
    Path,
    PathFailed,
    Watch,
    thought_length,
    tokens_before,
)
from turngym.agents.trajectory import Tree, Turn
from turngym.envs import EnvFailure, Outcome, Reply, StopReason, TextEnv
from turngym.tools import FORMATS, get_format


class Echo(TextEnv):
    """Says what it heard, ends at "stop", and fails at "break"."""

    tasks = range(100)

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        self.heard: list[str] = []
        self.task_id = f"echo-{options['task']}"
        return "hello"

    def on_step(self, text: str) -> Reply:
        self.heard.append(text)
        if text == "break":
            raise EnvFailure("the line is dead")
        return Reply(
            f"you said {text}",
            reward=len(text) / 10,
            stop=StopReason.ANSWERED if text == "stop" else None,
        )


class Ends:
    closers = ("</b>",)

    def complete(self, text: str) -> bool:
        return "</b>" in text


@dataclass
class Script:
    """Draws the texts it holds, one after another; a session of its own."""

    chat: Chat
    texts: list[str]
    stop: str = "end"
    asked: list[tuple[list[int], Sampling, tuple[int, ...], Any]] = field(default_factory=list)

    async def sample(
        self, tokens: Any, sampling: Sampling, key: tuple[int, ...], cut: Any = None
    ) -> Completion:
        self.asked.append((tokens.tolist(), sampling, key, cut))
        ids = np.array(self.chat.tokenizer.encode(self.texts.pop(0)).ids, np.int32)
        return Completion(
            ids, -ids.astype(np.float32), ids.astype(np.float32), self.stop, version=4
        )


@dataclass
class Scene:
    """A task that has begun, and what has been noted of it."""

    driver: Driver
    tree: Tree
    env: Any
    script: Script
    path: Path
    seen: list[Incident]

    async def turn(self) -> Any:
        return await self.driver.turn(self.path)

    def ids(self, text: str) -> list[int]:
        return self.driver.actor.chat.tokenizer.encode(text).ids


@pytest.fixture(scope="module")
def chat(qwen3_folder: Folder) -> Chat:
    return Chat.from_folder(qwen3_folder)


def play(
    chat: Chat,
    texts: list[str],
    scene: Callable[[Scene], Awaitable[Any]],
    cut: Any = None,
    **script: Any,
) -> Any:
    async def run() -> Any:
        seen: list[Incident] = []
        watch, said = Watch(Deadlines(), seen.append, 1), Script(chat, texts, **script)
        driver = Driver(Actor(None, chat, frozenset(), cut), Sampling(max_tokens=9), watch)
        tree = Tree((0, 0, 1), 1, "")
        path = Path((0, 0, 1, 2), 2, tree, session=said)
        path.env = await driver.begin(Echo(), path)
        return await scene(Scene(driver, tree, path.env, said, path, seen))

    return asyncio.run(run())


def test_a_turn_adds_what_was_drawn_and_what_was_answered(chat):
    async def scene(at: Scene) -> None:
        prompt = at.tree.turns[0].tokens
        assert await at.turn() is None
        _, said, heard = at.tree.turns
        assert (said.text, said.parent, said.reward, said.version, said.ended) == (
            "go on",
            0,
            0.5,
            4,
            "end",
        )
        assert (
            said.tokens.tolist() == at.ids("go on") and said.sampled.all() and said.temperature == 1
        )
        assert np.array_equal(said.logp_roll, -said.entropy) and (said.twin, said.copied) == (-1, 0)
        assert (heard.role, heard.text, heard.parent) == (
            "user",
            "you said go on",
            1,
        ) and not heard.sampled.any()
        assert (at.path.node, at.path.turn, at.path.score) == (2, 1, 0.5)
        leaf = await at.turn()
        assert (leaf.node, leaf.branch, leaf.outcome, leaf.stop) == (3, 2, Outcome.DONE, "answered")
        assert leaf.score == pytest.approx(0.9)
        assert [(tokens, key) for tokens, _, key, _ in at.script.asked] == [
            (prompt.tolist(), (0, 0, 1, 2, 0)),
            (heard.tokens.tolist(), (0, 0, 1, 2, 1)),
        ]
        assert at.tree.task_id == "echo-1"

    play(chat, ["go on", "stop"], scene)


def test_a_first_turn_repeats_the_first_tokens_of_a_twin_and_is_drawn_from_there(chat):
    async def scene(at: Scene) -> None:
        await at.turn()
        at.path.node, at.path.turn, twin = 0, 0, at.tree.turns[1]
        hot = Sampling(0.5, max_tokens=3)
        at.path.first = FirstTurn(hot, twin=1, copied=2)
        await at.turn()
        turn = at.tree.turns[3]
        assert (turn.twin, turn.copied, turn.parent, turn.temperature) == (1, 2, 0, 0.5)
        assert turn.tokens.tolist() == [*twin.tokens[:2], *at.ids("ne")] and turn.sampled.all()
        assert turn.text == at.env.heard[-1] == twin.text[:2] + "ne"
        for name in ("logp_roll", "entropy"):
            assert np.array_equal(getattr(turn, name)[:2], getattr(twin, name)[:2])
        tokens, sampling, _, cut = at.script.asked[1]
        assert tokens == [] and sampling is hot  # the session of the twin has its tokens already
        assert isinstance(cut, Continued) and cut.opened == twin.text[:2]
        assert at.path.first is None
        await at.turn()
        assert at.script.asked[2][1] is at.driver.sampling and isinstance(
            at.script.asked[2][3], Ends
        )

    play(chat, ["go on", "ne", "and on"], scene, cut=Ends())


def test_a_forced_token_is_given_and_not_drawn(chat):
    async def scene(at: Scene) -> None:
        prompt, (letter,) = at.tree.turns[0].tokens.tolist(), at.ids("x")
        at.path.first = FirstTurn(at.driver.sampling, forced=letter)
        await at.turn()
        first = at.tree.turns[1]
        assert at.script.asked[0][0] == [*prompt, letter] and at.script.asked[0][3] is None
        assert first.text == "xyz" and first.sampled.tolist() == [False, True, True]
        assert first.logp_roll[0] == first.entropy[0] == 0 and (first.twin, first.copied) == (-1, 0)
        at.path.node, at.path.first = (
            0,
            FirstTurn(at.driver.sampling, twin=1, copied=2, forced=letter),
        )
        await at.turn()
        second = at.tree.turns[3]
        assert at.script.asked[1][0] == [letter]
        assert second.text == "xyxw" and second.sampled.tolist() == [False, True, False, True]
        assert (second.twin, second.copied) == (1, 2)

    play(chat, ["yz", "w"], scene)


def test_a_failure_of_the_environment_ends_the_path_without_a_score(chat):
    async def scene(at: Scene) -> None:
        await at.turn()
        with pytest.raises(PathFailed, match="the line is dead") as failed:
            await at.turn()
        assert failed.value.leaf.outcome is Outcome.INFRA_ERROR and isnan(failed.value.leaf.score)
        assert at.tree.turns[failed.value.leaf.node].text == "break"

    play(chat, ["go on", "break"], scene)


def test_numbers_of_an_engine_that_are_not_finite_end_the_path(chat):
    async def scene(at: Scene) -> None:
        sample = at.script.sample

        async def broken(*given: Any) -> Completion:
            drawn = await sample(*given)
            return replace(drawn, logp=drawn.logp * np.float32("nan"))

        at.script.sample = broken
        with pytest.raises(PathFailed, match="drew turn 0 with numbers that are not finite"):
            await at.turn()
        assert len(at.tree.turns) == 1

    play(chat, ["go on"], scene)


@pytest.mark.parametrize(("text", "added"), [("", 0), ("go on", 1)])
def test_a_full_context_ends_the_path_with_its_score(chat, text, added):
    async def scene(at: Scene) -> None:
        leaf = await at.turn()
        assert (leaf.outcome, leaf.stop, leaf.node) == (Outcome.TRUNCATED, "context", added)
        assert leaf.score == len(text) / 10 and len(at.tree.turns) == 1 + added

    play(chat, [text], scene, stop="context")


def test_an_environment_that_cannot_be_closed_is_an_incident(chat):
    class Sticky(Echo):
        def close(self) -> None:
            raise RuntimeError("stuck")

    async def scene(at: Scene) -> None:
        await at.driver.close(Sticky())
        (incident,) = at.seen
        assert (
            incident.kind == "close"
            and incident.what.endswith("RuntimeError: stuck")
            and "Sticky" in incident.what
        )

    play(chat, [], scene)


def test_the_prefix_of_a_turn_is_what_is_not_drawn_of_it():
    tree = Tree((0, 0, 0), 0, "")
    tree.add(Turn.unsampled(-1, "user", "?", np.arange(3, dtype=np.int32)))
    assert len(FirstTurn(Sampling()).prefix(tree).tokens) == 0
    assert FirstTurn(Sampling(), forced=7).prefix(tree).tokens.tolist() == [7]


# --- where thought ends in a turn

CALL = {
    "hermes": 'Let me see. <tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>',
    "tags": "Let me see. <python>1</python>",
    "fenced": "Let me see. ```python\n1\n```",
}


@pytest.mark.parametrize("name", sorted(set(CALL) & set(FORMATS)))
def test_thought_ends_where_the_first_call_begins(name):
    text, format = CALL[name], get_format(name)
    assert text[thought_length(text, format.find_start(text)) :].startswith(
        text.removeprefix("Let me see. ")
    )
    hidden = f"<think>{text}</think>{text}"
    assert thought_length(hidden, format.find_start(hidden)) == len(
        f"<think>{text}</think>Let me see. "
    )


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("go to desk 1", ""),
        ("<think>where?</think>go to desk 1", "<think>where?</think>"),
        ("6 times 7 is \\boxed{42}", "6 times 7 is "),
        ("\\boxed{1} or rather \\boxed{42}.", "\\boxed{1} or rather "),
        ("<think>\\boxed{1}</think>so it is 42", "<think>\\boxed{1}</think>"),
        ("so <answer>42</answer>", "so "),
    ],
)
def test_without_a_call_thought_ends_at_the_box_or_with_the_last_thought_in_tags(text, thought):
    assert text[: thought_length(text, get_format("tags").find_start(text))] == thought


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (CALL["hermes"], '1"}}'),
        (CALL["tags"], None),  # not of this format
        ("6 times 7 is \\boxed{42}", "42"),
        ("it is \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("it is \\boxed{4", None),
        ("go to desk 1", None),
    ],
)
def test_a_turn_says_which_of_its_tokens_are_arguments_or_a_marked_answer(text, values):
    chat = Chat.from_folder(TINY)
    tokens = np.array(chat.tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
    found = Actor(None, chat, frozenset(), format=get_format("hermes")).spans(text, tokens)[
        "values"
    ]
    shown = None if found is None else chat.tokenizer.decode(tokens[slice(*found)].tolist())
    assert (
        shown == values if values != '1"}}' else shown.startswith(values)
    )  # a token is where it begins


def test_tokens_are_counted_up_to_the_one_that_holds_the_character():
    tokenizer = Chat.from_folder(TINY).tokenizer
    for text in ("Let me see: héllo 🍎 \\boxed{42}", "a", "42 is it"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for place in range(len(text) + 1):
            count = tokens_before(np.array(ids, np.int32), place, tokenizer.decode)
            assert len(tokenizer.decode(ids[:count])) <= place or count == 0
            assert count == len(ids) or len(tokenizer.decode(ids[: count + 1])) > place
