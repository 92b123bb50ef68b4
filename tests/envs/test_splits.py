"""The episodes of a split: by task where there are tasks, by seed elsewhere, and none in two splits."""

import gymnasium
import pytest

from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.registry import make
from turngym.envs.splits import SEEDS, begin, open_split, task_count


class Guess(TextEnv):
    """A secret number, drawn."""

    def on_reset(self, rng, options):
        self.secret, self.options = int(rng.integers(10**9)), dict(options)
        return "Which number?"

    def on_step(self, text):
        return Reply("", float(text == str(self.secret)), StopReason.ANSWERED)


class Listed(Guess):
    """As many tasks as it is told."""

    def __init__(self, size=40):
        super().__init__()
        self.tasks = range(size)


class Own(Listed):
    """Splits its tasks itself."""

    def __init__(self, split="train"):
        super().__init__({"train": 30, "valid": 4, "test": 6}[split])
        self.split = split


@pytest.fixture
def register():
    ids = []

    def register(kind):
        ids.append(f"test/{kind.__name__}-v0")
        gymnasium.register(ids[-1], entry_point=kind)
        return ids[-1]

    yield register
    for name in ids:
        del gymnasium.registry[name]


def test_where_there_are_no_tasks_every_split_has_seeds_of_its_own(register):
    register(Guess)
    opened = {split: open_split("test/Guess-v0", {"split": split}) for split in ("train", "valid", "test")}
    assert sum(len(one.tasks) for one in opened.values()) == len({i for one in opened.values() for i in one.tasks})
    assert all(len(one.tasks) == SEEDS and "begins episodes by seed" in one.note for one in opened.values())
    assert open_split("test/Guess-v0", {}).tasks == range(SEEDS)
    env = opened["train"].env
    begin(env, 7, 1)
    assert env.options == {}
    secret = env.secret
    begin(env, 7, 2)
    assert env.secret == secret == (make("test/Guess-v0").reset(seed=7), env.secret)[1]
    begin(env, 8, 1)
    assert env.secret != secret


def test_tasks_that_are_not_split_are_held_out_by_their_index(register):
    register(Listed)
    opened = {split: open_split("test/Listed-v0", {"split": split}) for split in ("train", "valid", "test")}
    assert list(opened["valid"].tasks) == [8, 18, 28, 38] and list(opened["test"].tasks) == [9, 19, 29, 39]
    assert sorted(i for one in opened.values() for i in one.tasks) == list(range(40))
    assert opened["test"].note == (
        "test/Listed-v0 takes no option 'split': test has 4 of its 40 tasks, every 10th, from 9"
    )
    assert open_split("test/Listed-v0", {}).tasks == range(40) and not open_split("test/Listed-v0", {}).note
    begin(opened["test"].env, 19, 5)
    assert opened["test"].env.options == {"task": 19}
    with pytest.raises(ValueError, match="its 9 tasks are too few to hold some out for test: at least 10 are needed"):
        open_split("test/Listed-v0", {"split": "test", "size": 9})
    assert open_split("test/Listed-v0", {"split": "train", "size": 3}).tasks == [0, 1, 2]


def test_an_environment_that_takes_a_split_is_given_it(register):
    opened = open_split(register(Own), {"split": "valid"})
    assert opened.env.split == "valid" and opened.tasks == range(4) and opened.note == ""
    assert open_split("turngym/Math-v0", {"split": "test"}).env.tasks.split == "test"


def test_what_is_wrong_is_said(register):
    with pytest.raises(ValueError, match="split is 'dev'; the splits are train, valid, test"):
        open_split(register(Guess), {"split": "dev"})
    env = Listed(0)
    with pytest.raises(ValueError, match=r"Listed\.tasks is empty; make it a sequence that holds the tasks"):
        task_count(env)
    env.tasks = 40
    with pytest.raises(ValueError, match=r"Listed\.tasks is a int, which has no length"):
        task_count(env)
    with pytest.raises(ValueError, match="takes no option 'sz'"):
        open_split(register(Listed), {"split": "test", "sz": 1})
