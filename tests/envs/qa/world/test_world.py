import os
import subprocess
import sys

import pytest

from turngym.envs.qa.world import World

DIGEST = "568308770bc8ab5dfae31f8178b2b49fbd3cce8e9b8ea2557c90722c1b645662"
CODE = """
import hashlib
from turngym.envs.qa.world import World

world = World(1, "tiny")
tasks = [tasks[i] for tasks in map(world.tasks, ("train", "valid", "test")) for i in range(50)]
lines = [repr((p.id, p.title, p.text)) for p in world.passages]
lines += [repr((t.id, t.prompt, t.gold, t.passages, t.queries)) for t in tasks]
print(hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


def test_the_world_is_the_same_in_every_process_and_on_every_machine():
    digests = [
        subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert digests == [DIGEST] * 2


def test_arguments_choose_the_world(tiny):
    assert (tiny.name, tiny.size, tiny.seed) == ("world-tiny-0", "tiny", 0)
    assert World().name == "world-small-0"
    assert tiny.passages != World(1, "tiny").passages


def test_unknown_sizes_are_named():
    with pytest.raises(ValueError, match="unknown size 'smal' of a world; did you mean 'small'"):
        World(size="smal")
    with pytest.raises(ValueError, match="unknown size 'zzz' of a world; the sizes are tiny, small, medium, large"):
        World(size="zzz")


def test_passages_are_written_once(tiny):
    assert tiny.passages is tiny.passages
    assert len(tiny.passages) == 1000
