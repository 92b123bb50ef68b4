"""`turngym verify replay`: episodes of a scripted agent that errs in many ways come out of a journal again."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from turngym.tests.verify.rows import Row, first

if TYPE_CHECKING:
    from turngym.agents.trajectory import Tree

ENV = "turngym/MathPython-v0"
TURNS = 5
CODE = (
    "x = {n}",
    "x += {n}; print(x)",
    "import random; print(random.random(), {{'a', 'b', 'c'}}, hash('a'))",
    "print(sum(range({n})))",
    "x / 0",
    "def broken(:",
    "undefined_{n}",
    "import sys; sys.exit({n})",
    "import os; os._exit({n})",
    "print('\ud800')",
    "print('\\x00é🍎' * {n})",
    "'y' * 10**5",
)
TEXT = (
    "\\boxed{{{n}}}",
    "I do not know. \ufffd\u202e\x00",
    "<tool_call>",
    '<tool_call>{{"name": "pyton", "arguments": {{}}}}</tool_call>',
    '<tool_call>{{"name": "python", "arguments": {{"code": {n}}}}}</tool_call>',
    '<tool_call>{{"name": "python", "arguments"</tool_call> \\boxed{{{n}}}',
    "",
)


@dataclass(frozen=True)
class Replay:
    """Scripted episodes with a Python tool: calls that run, fail, die or are no calls, and answers."""

    episodes: int = 1000
    """Episodes to play and to play again."""
    changes: int = 200
    """Episodes of whose journal one value is changed, which a replay must find."""
    seed: int = 0
    """Chooses what is said, the tasks and the changes."""

    def rows(self) -> Iterator[Row]:
        """Yield a row for episodes that must come out again, and one for changes that must be found."""
        from turngym.agents.journal.replay import replay, replay_journal
        from turngym.agents.journal.trees import origin_of, read_trees, write_trees
        from turngym.agents.players import Script, play
        from turngym.envs.registry import make

        env, rng = make(ENV, max_turns=TURNS, timeout=60.0), np.random.default_rng(self.seed)
        tasks = rng.choice(10**5, self.episodes, replace=False).tolist()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trees.jsonl"
            write_trees(
                path, [play(env, Script(script(rng)), task) for task in tasks], origin_of(env)
            )
            results, trees = (
                list(replay_journal(path, options={"timeout": 60.0})),
                list(read_trees(path)),
            )
        wrong = [str(result.divergence) for result in results if result.divergence]
        yield Row(
            "episodes come out of their journal again",
            self.episodes - len(wrong),
            self.episodes,
            first(wrong) or _mix(trees),
        )
        made = [(change(tree, rng), tree) for tree in trees[: self.changes]]
        missed = [what for what, tree in made if replay(env, tree) is None]
        yield Row(
            "changes of one value are found", len(made) - len(missed), len(made), first(missed)
        )


def script(rng: np.random.Generator) -> list[str]:
    """Return what an agent says: calls, and words that are none or end the episode."""
    texts = []
    for _ in range(TURNS):
        calls = rng.random() < 0.75
        text = str(rng.choice(CODE if calls else TEXT)).format(n=int(rng.integers(100)))
        call = json.dumps({"name": "python", "arguments": {"code": text}})
        texts.append(f"<tool_call>\n{call}\n</tool_call>" if calls else text)
    return texts


def change(tree: Tree, rng: np.random.Generator) -> str:
    """Change one value of a tree and return which."""
    node = int(rng.integers(len(tree.turns)))
    turn, leaf = tree.turns[node], tree.leaves[0]
    if node == 0:
        tree.turns[0], what = replace(turn, text=turn.text + "?"), "text"
    elif turn.role != "assistant":
        tree.turns[node], what = replace(turn, text=turn.text[:-1] + "\x01"), "text"
    elif rng.random() < 0.5:
        tree.turns[node], what = replace(turn, reward=float(np.nextafter(turn.reward, 2))), "reward"
    else:
        tree.leaves[0], what = replace(leaf, stop="goal"), "stop"
    return f"{what} of turn {node} of {tree.task_id}"


def _mix(trees: Sequence[Tree]) -> str:
    """Return what the episodes were made of."""
    turns = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
    said = Counter(str(turn.info.get("tool_status", "answer")) for turn in turns)
    ends = Counter(leaf.stop for tree in trees for leaf in tree.leaves)
    return ", ".join(f"{count} {name}" for name, count in sorted((said + ends).items()))
