"""The trees of a step as the page shows them: texts, tokens with their numbers, ends of paths; long ones are cut.

Numbers are rounded: entropies and advantages to 1e-4, log-probabilities to 1e-4, mismatches to 1e-6.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .data import DAMAGE, Run, Slots, number, path_of

CHARS, TOKENS, INFO = 20_000, 6_000, 2_000  # most of a turn, and most characters of what an environment said


def transcripts(run: Run, step: int, most: int, pieces: Sequence[bytes]) -> dict[str, Any]:
    """Return the trees of a step, as many as fit into about `most` characters of JSON, and at least one.

    `of` is how many there are, `pieces` the text of each token in them, as a list of bytes where it is none alone.
    """
    kept: list[dict[str, Any]] = []
    used, size, slots = set[int](), 0, run.slots(step)
    for data in run.trees(step):
        try:
            tree = _tree(data, slots)
        except DAMAGE as error:
            run.note(f"step {step}: a tree is not what this version knows ({type(error).__name__}: {error})"[:200])
            continue
        size += sum(len(turn["x"]) + 24 * len(turn.get("ids", ())) + 200 for turn in tree["turns"])
        if size > most and kept:
            break
        kept.append(tree)
        used.update(token for turn in tree["turns"] for token in turn.get("ids", ()))
    known = {token: _text(pieces[token]) for token in sorted(used) if 0 <= token < len(pieces)}
    return {"step": step, "trees": kept, "of": sum(1 for _ in run.rows(step)), "pieces": known, "learned": bool(slots)}


def _tree(data: Mapping[str, Any], slots: Mapping[tuple[int, ...], Slots]) -> dict[str, Any]:
    turns = data["turns"]
    leaves = [_leaf(leaf, turns, slots.get((*data["key"], leaf["branch"]))) for leaf in data["leaves"]]
    return {"task": data["task"], "id": _cut(str(data["task_id"]), 200)[0], "turns": list(map(_turn, turns))} | {
        "leaves": leaves
    }


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    text, left = _cut(str(turn["text"]), CHARS)
    found: dict[str, Any] = {"p": turn["parent"], "r": turn["role"], "x": text, "n": len(turn["sampled"])}
    if left:
        found["left"] = left
    if turn["parent"] < 0:
        messages = turn["info"].get("messages", ())
        said = [(str(one["role"]), one["content"]) for one in messages]
        texts = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, default=str) for _, one in said)
        found["messages"] = [[role, *_cut(text, CHARS)] for (role, _), text in zip(said, texts)]
        found["tools"] = len(turn["info"].get("tools", ()))
        return found
    if turn["role"] != "assistant":
        return found
    found |= {"reward": number(turn["reward"]), "ended": turn["ended"], "t": turn["temperature"], "v": turn["version"]}
    info, named = turn["info"], {"tool": "tool", "status": "tool_status"}
    found |= {name: info[key] for name, key in named.items() if key in info}
    if turn["twin"] >= 0:
        found |= {"twin": turn["twin"], "copied": turn["copied"]}
    if drawn := sum(turn["sampled"]):
        found |= {"ids": turn["tokens"][:TOKENS], "th": turn["thought"], "sampled": drawn}
        found["e"] = [round(value, 4) for value in turn["entropy"][:TOKENS]]
        found["l"] = [round(value, 4) for value in turn["logp_roll"][:TOKENS]]
        found["mean"] = sum(turn["entropy"]) / drawn  # which is 0 where nothing was drawn
        if drawn < len(turn["sampled"]):
            found["s"] = turn["sampled"][:TOKENS]
        if turn["estimate"]:
            found["estimate"] = True
    return found


def _leaf(leaf: Mapping[str, Any], turns: Sequence[Mapping[str, Any]], slots: Slots | None) -> dict[str, Any]:
    found = {name: leaf[name] for name in ("node", "branch", "parent", "fork", "token", "trained")}
    found |= {name: str(leaf[name]) for name in ("outcome", "stop")} | {"score": number(leaf["score"])}
    nodes = path_of(turns, leaf["node"])
    found["info"] = _cut(json.dumps(leaf["info"], ensure_ascii=False, default=str), INFO)[0]
    replies = [turns[node] for node in nodes if turns[node]["role"] == "assistant"]
    roll = [value for turn in replies for value, drawn in zip(turn["logp_roll"], turn["sampled"]) if drawn]
    if slots is not None and len(roll) == len(slots.logp):
        found["a"] = _column(slots.advantage, 4)
        found["w"] = _column(slots.weight, 4)
        found["m"] = _column(slots.logp - np.asarray(roll, np.float32), 6)
    return found


def _column(values: NDArray[np.float32], digits: int) -> list[float | None] | float | None:
    """Return a column of rounded numbers, None where one is not finite; its one value where all are the same."""
    found = [number(value) for value in np.round(values.astype(np.float64), digits).tolist()]
    return found[0] if found and found.count(found[0]) == len(found) else found


def _cut(text: str, most: int) -> tuple[str, int]:
    """Return a text, its middle left out where it is long, and how many characters were."""
    if len(text) <= most:
        return text, 0
    head, tail = most * 3 // 4, most // 4
    return f"{text[:head]}\n…\n{text[-tail:]}", len(text) - head - tail


def _text(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
