"""The policy that plays the real engine, on an engine of two states."""

import json
import random
from collections import Counter
from itertools import pairwise

from turngym.tests.verify.household import player


class Engine:
    """Is won by `open`, and counts its steps."""

    closed = 0

    def reset(self):
        return {
            "feedback": "a room",
            "admissible_commands": ["open", "look", "go to b"],
            "won": False,
        }

    def step(self, action):
        won = action == "open"
        return (
            {"feedback": action, "admissible_commands": ["take", "look"], "won": won},
            int(won),
            won,
        )

    def close(self):
        self.closed += 1


def test_an_episode_is_written_down_until_its_end(monkeypatch):
    engine = Engine()
    monkeypatch.setattr(player, "start", lambda path: engine)
    line = json.dumps({"id": "one", "game": {"walkthrough": ["open"]}})
    played = list(player.episodes(iter([line] * 20), 0, 6))
    assert engine.closed == 20 and {one["game_id"] for one in played} == {"one"}
    one = played[0]
    assert one["init_admissible"] == ["go to b", "look", "open"] and one["init_obs"] == "a room"
    for done in one["steps"]:
        won = done["action"] == "open"
        assert (done["reward"], done["done"], done["won"]) == (int(won), won, won)
        assert done["observation"] == done["action"] and done["admissible"] == ["look", "take"]
    assert all(not early["done"] for one in played for early, _ in pairwise(one["steps"]))
    assert played == [{**one, "seconds": two["seconds"]} for one, two in zip([one] * 20, played)]


def test_commands_are_of_all_kinds():
    drawn, rest = random.Random(0), ["walk"] * 50
    seen = Counter(player.choose(drawn, ["look", "open"], ["before"], rest) for _ in range(1000))
    assert (
        len(rest) == 0
        and seen["walk"] == 50
        and seen["open"] > seen["look"] > 20
        and seen["before"] > 20
    )
    assert sum(seen[text] for text in player.NONSENSE) > 20
