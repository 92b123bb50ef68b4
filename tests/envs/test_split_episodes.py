"""The episodes of a split: by task where there are tasks, by seed elsewhere, and none in two splits."""

import gymnasium
import pytest

from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.registry import make
from turngym.envs.split_episodes import (
    SEEDS_PER_SPLIT,
    begin,
    open_split,
    open_training,
    task_count,
)


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


class Few(Listed):
    """Three tasks."""

    def __init__(self):
        super().__init__(3)


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
    opened = {
        split: open_split("test/Guess-v0", {"split": split}) for split in ("train", "valid", "test")
    }
    assert sum(len(one.tasks) for one in opened.values()) == len(
        {i for one in opened.values() for i in one.tasks}
    )
    assert all(
        len(one.tasks) == SEEDS_PER_SPLIT and "begins episodes by seed" in one.note
        for one in opened.values()
    )
    assert open_split("test/Guess-v0", {}).tasks == range(SEEDS_PER_SPLIT)
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
    opened = {
        split: open_split("test/Listed-v0", {"split": split})
        for split in ("train", "valid", "test")
    }
    assert list(opened["valid"].tasks) == [8, 18, 28, 38] and list(opened["test"].tasks) == [
        9,
        19,
        29,
        39,
    ]
    assert sorted(i for one in opened.values() for i in one.tasks) == list(range(40))
    assert opened["test"].note == (
        "test/Listed-v0 takes no option 'split': test has 4 of its 40 tasks, every 10th, from 9"
    )
    assert (
        open_split("test/Listed-v0", {}).tasks == range(40)
        and not open_split("test/Listed-v0", {}).note
    )
    begin(opened["test"].env, 19, 5)
    assert opened["test"].env.options == {"task": 19}
    with pytest.raises(
        ValueError,
        match="its 9 tasks are too few to hold some out for test: at least 10 are needed",
    ):
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
    with pytest.raises(
        ValueError, match=r"Listed\.tasks is empty; make it a sequence that holds the tasks"
    ):
        task_count(env)
    env.tasks = 40
    with pytest.raises(ValueError, match=r"Listed\.tasks is a int, which has no length"):
        task_count(env)
    with pytest.raises(ValueError, match="takes no option 'sz'"):
        open_split(register(Listed), {"split": "test", "sz": 1})


# --- environments without splits


def test_an_evaluation_that_names_no_split_has_the_test_tasks_or_all(register):
    few, many, own = (
        open_split(register(Few), {"split": ""}),
        open_split(register(Listed), {"split": ""}),
        register(Own),
    )
    assert (
        few.tasks == range(3)
        and few.note == "test/Few-v0 has no splits: the evaluation has all of its 3 tasks"
    )
    assert (
        many.tasks == range(40)
        and "all of its 40 tasks, also those that training has; --split test" in many.note
    )
    assert open_split(own, {"split": ""}).env.split == "test"
    assert open_split(register(Guess), {"split": ""}).tasks[0] == 2 * SEEDS_PER_SPLIT


def test_all_tasks_are_a_split_where_they_can_be_listed(register, tmp_path):
    assert open_split(register(Listed), {"split": "all"}).tasks == range(40)
    with pytest.raises(
        ValueError, match="split is 'all', but test/Guess-v0 has no tasks that can be listed"
    ):
        open_split(register(Guess), {"split": "all"})
    with pytest.raises(
        ValueError,
        match=r"split is 'all', which test/Own-v0 does not have \(KeyError: 'all'\); choose",
    ):
        open_split(register(Own), {"split": "all"})
    with pytest.raises(
        ValueError,
        match="split is 'all', which is for tasks of a list or a file; choose train, valid",
    ):
        open_split("turngym/Math-v0", {"split": "all"})
    (tmp_path / "t.csv").write_text("question,answer\n1+1?,2\n2+2?,4\n")
    assert open_split(
        "turngym/Math-v0", {"split": "all", "tasks": str(tmp_path / "t.csv")}
    ).tasks == range(2)


def test_a_few_tasks_are_all_trained_on_and_the_validation_says_so(register):
    train, valid = open_training(register(Few), {})
    assert (
        [*train.tasks] == [*valid.tasks] == [0, 1, 2]
        and not train.repeats_training
        and valid.repeats_training
    )
    assert valid.note == (
        "test/Few-v0 has 3 tasks and no splits, so the validation is on the training tasks: "
        "with 10 or more, some are held out"
    )
    train, valid = open_training(register(Listed), {})
    assert not {*train.tasks} & {*valid.tasks} and not valid.repeats_training


def test_a_split_that_is_ignored_is_said_before_training(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"question": "1+1?", "answer": "2"}\n{"question": "2+2?", "answer": "4"}\n')
    _, valid = open_training("turngym/Math-v0", {"tasks": str(path)})
    assert (
        valid.repeats_training
        and "train and valid of turngym/Math-v0 are the same tasks" in valid.note
    )
    _, valid = open_training("turngym/Math-v0", {})
    assert not valid.repeats_training


def test_a_factory_is_given_only_the_options_that_it_names(register):
    def make_listed(**options):
        return Listed(**options)

    name = register(make_listed)
    assert open_split(name, {"split": "train", "size": 20}).tasks == [
        i for i in range(20) if i % 10 < 8
    ]
    assert open_split(name, {"split": "", "size": 3}).tasks == range(3)
