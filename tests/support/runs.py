"""Run folders written without training: as many steps, tasks, branches and turns as a test asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from turngym.agents.journal.trees import VOCABULARY, Incident, Origin, write_file
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import StopReason
from turngym.training.runs.config import TrainConfig, to_toml
from turngym.training.runs.folder import CONFIG, Logbook, to_line, write_summary

WORDS = [" the", " answer", " is", " 4", "2", "\n", " call", "é"]
PIECES = [*WORDS, "\udcc3", "\udca9", "<|im_end|>"]  # two bytes of one letter, and a control token
ORIGIN = Origin("turngym/MathPython-v0", {})
Speak = Callable[[int, int, int], str]  # what the tool says: step, branch, turn


def write_run(
    folder: Path,
    steps: int = 3,
    tasks: int = 2,
    group: int = 4,
    turns: int = 2,
    tokens: int = 12,
    speak: Speak = lambda step, branch, turn: f"result {turn}",
) -> Path:
    """Write the folder of a finished run, whose last path of every group fails and is cut, and return it."""
    folder.mkdir(parents=True)
    write_file(
        folder / CONFIG,
        to_toml(TrainConfig().changed(steps=steps, out=str(folder)), {"version": "0.1.0"}),
    )
    write_file(folder / VOCABULARY, json.dumps(PIECES))
    book, rng = Logbook(folder), np.random.default_rng(7)
    for step in range(steps + 1):
        valid = {
            "valid/success": step / (steps + 1),
            "valid/low": step / (steps + 2),
            "valid/high": 0.99,
        }
        numbers = {
            f"entropy_turn/{turn}": 1.5 / (1 + step + turn) for turn in range(min(turns, 40))
        }
        state = {
            "control/turn-pi/0/error": 0.01 * step,
            "entropy_coef_turn/0": 0.001 * step - 0.001,
        }
        shares = {
            "tool_calls_path": 1.0,
            "tool_ok": 1 / 3,
            "reward": step / steps,
            "loss": float("nan"),
        }
        line = (
            {"tokens": 100, "refused": "", "alarms": [], **shares, **numbers, **state}
            if step
            else {}
        )
        book.add_metrics(to_line({"step": step, **line, **valid}))
        if step:
            trees = [_tree(rng, step, task, group, turns, tokens, speak) for task in range(tasks)]
            book.add_trees(step, trees, ORIGIN)
            _learn(book, step, trees, rng)
    book.add_incident(steps, Incident("alarm", "entropy-collapse: entropy_turn/1 is low", ()))
    write_summary(folder, 12.0)
    return folder


def _tree(
    rng: np.random.Generator,
    step: int,
    task: int,
    group: int,
    turns: int,
    tokens: int,
    speak: Speak,
) -> Tree:
    tree = Tree((0, step - 1, task), task, f"task-{task}")
    opening = {"messages": [{"role": "user", "content": f"What is {task} + 1?"}], "tools": []}
    tree.add(Turn(-1, "user", f"What is {task} + 1?", **_columns(rng, 4, False), info=opening))
    for branch in range(group):
        node, fails = 0, branch == group - 1
        for turn in range(turns):
            last = turn == turns - 1
            info = {"answer": "42"} if last else {"tool": "python", "tool_status": "ok"}
            ended = "length" if last and fails else "end"
            node = tree.add(
                Turn(
                    node,
                    "assistant",
                    "the answer",
                    **_columns(rng, tokens, True),
                    ended=ended,
                    info=info,
                )
            )
            if not last:
                node = tree.add(
                    Turn(node, "tool", speak(step, branch, turn), **_columns(rng, 3, False))
                )
        stop = StopReason.NO_ANSWER if fails else StopReason.ANSWERED
        tree.leaves.append(Leaf.ended(node, branch, stop, 0.0 if fails else 1.0, {"turn": turns}))
    return tree


def _columns(rng: np.random.Generator, n: int, drawn: bool) -> dict[str, Any]:
    ids = rng.integers(0, len(WORDS), n).astype(np.int32)
    ids[-3:] = [8, 9, 10]
    logp = -rng.random(n).astype(np.float32) * drawn
    entropy = (rng.random(n) * drawn).astype(np.float32)
    return {"tokens": ids, "sampled": np.full(n, drawn), "logp_roll": logp, "entropy": entropy}


def _learn(book: Logbook, step: int, trees: list[Tree], rng: np.random.Generator) -> None:
    paths = [(tree, leaf) for tree in trees for leaf in tree.leaves]
    counts = [
        sum(len(tree.turns[node].tokens) for node in tree.replies(leaf)) for tree, leaf in paths
    ]
    logp = np.concatenate(
        [tree.turns[node].logp_roll for tree, leaf in paths for node in tree.replies(leaf)]
    )
    path = np.repeat(np.arange(len(paths)), counts)
    slots = {
        "advantage": np.where(path % 2, -0.5, 0.5),
        "weight": np.ones(len(path)),
        "logp": logp + 0.001,
    }
    book.add_slots(step, [(*tree.key, leaf.branch) for tree, leaf in paths], path, slots)
