"""Play games with the real engine (alfworld, textworld) and write down what it says; a script of no other imports.

    python player.py SEED STEPS < games > episodes

Each line of the input is `{"id": ..., "game": {what a game.tw-pddl holds}}`, each line of the output an episode in the
form of the recorded ones. The policy draws admissible commands, mostly those that do something, some that were
admissible before, the walkthrough's, and nonsense.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Blank, or nearly so: the real engine answers each with `Nothing happens.`
BLANK = (
    *(
        "",
        " ",
        " \t\r\n",
        "\x0b\x0c",
        "\x1c\x85",
        "\u2028",
        "\u3000",
        "\x00",
        "\x1b",
        "\u200b",
        "\ufeff",
        "lo\x0bok",
        "lo\rok",
    ),
    *("look\x00", "the", "a", "an", "the a", "the look", "."),
)
NONSENSE = (
    *BLANK,
    *(
        "dance",
        "go to nowhere 1",
        "take",
        "move 1",
        "Look",
        "go to",
        "examine",
        "open sky 1",
        "help me",
        "  look  ",
    ),
    *(
        "use",
        "quit",
        "restart",
        "undo",
        "examine walkthrough",
        "go to  fridge 1",
        "move x to y",
        "inventory ",
        "look.",
    ),
    *("\x1clook\x1f", "\u00a0look", "look\r\n"),
)
IDLE = ("go to", "help", "look", "inventory", "examine")


def start(path: Path) -> Any:
    """Return the real engine, with a game loaded as alfworld loads it."""
    textworld = importlib.import_module("textworld")
    alfred = importlib.import_module("alfworld.agents.environment.alfred_tw_env")
    infos = textworld.EnvInfos(won=True, admissible_commands=True, feedback=True)
    return textworld.start(
        str(path), infos, wrappers=[alfred.AlfredDemangler(shuffle=False), alfred.AlfredInfos]
    )


def episode(env: Any, id: str, walk: list[str], drawn: random.Random, steps: int) -> dict[str, Any]:
    """Play a random policy and return what was seen, with the CPU seconds of the reset and of the steps."""
    began = time.process_time()
    state = env.reset()
    middle = time.process_time()
    found: dict[str, Any] = {"game_id": id, "init_obs": state["feedback"], "steps": []}
    found["init_admissible"] = sorted(state["admissible_commands"])
    before, rest = list(state["admissible_commands"]), list(walk)
    helped = drawn.random() < 0.5
    while len(found["steps"]) < steps:
        action = choose(drawn, state["admissible_commands"], before, rest if helped else [])
        state, score, done = env.step(action)
        before = (before + state["admissible_commands"])[-300:]
        said = {
            "action": action,
            "observation": state["feedback"],
            "reward": score,
            "done": done,
            "won": state["won"],
        }
        found["steps"].append({**said, "admissible": sorted(state["admissible_commands"])})
        if done:
            break
    return {**found, "seconds": [middle - began, time.process_time() - middle]}


def choose(drawn: random.Random, admissible: list[str], before: list[str], rest: list[str]) -> str:
    """Return the next command."""
    kind = drawn.random()
    doing = [command for command in admissible if not command.startswith(IDLE)]
    if kind < 0.07:
        return drawn.choice(NONSENSE)
    if kind < 0.15:
        return drawn.choice(before)
    if rest and kind < 0.5:
        return rest.pop(0)
    return drawn.choice(doing if doing and kind < 0.8 else admissible)


def episodes(lines: Iterator[str], seed: int, steps: int) -> Iterator[dict[str, Any]]:
    """Play the games of all lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.tw-pddl"
        for line in lines:
            given = json.loads(line)
            path.write_text(json.dumps(given["game"]))
            env = start(path)
            drawn = random.Random(f"{seed} {given['id']}")
            yield episode(env, given["id"], given["game"]["walkthrough"], drawn, steps)
            env.close()


if __name__ == "__main__":
    out, sys.stdout = sys.stdout, sys.stderr  # the engine's own prints go elsewhere
    for played in episodes(iter(sys.stdin), int(sys.argv[1]), int(sys.argv[2])):
        out.write(json.dumps(played) + "\n")
        out.flush()
