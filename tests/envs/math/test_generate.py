import re

import pytest

from turngym.envs.math.families import FAMILIES, LEVELS
from turngym.envs.math.generate import MathTasks
from turngym.envs.tasks import SPLITS, text_share


def test_a_task_depends_on_the_arguments_and_the_index_alone():
    first, again = MathTasks("valid", (1, 3), seed=5), MathTasks("valid", (3, 1, 3), seed=5, size=10)
    ahead = [first[i] for i in (9, 3, 3)]
    assert ahead == [again[i] for i in (9, 3, 3)]
    assert [first[i].prompt for i in range(20)] != [MathTasks("valid", (1, 3), seed=6)[i].prompt for i in range(20)]
    reordered = MathTasks(families=("words", "linear"))
    assert reordered[7] == MathTasks(families=("linear", "words"))[7]


def test_the_generator_is_the_same_on_every_machine():
    task = MathTasks("train", 2, seed=1)[123]
    assert (task.id, task.prompt, task.gold, task.solution) == (
        "linear-2-train-1-123",
        "If 11(x + 17) = 242, what is x?",
        "5",
        "print(242//11-17)",
    )


def test_splits_share_no_problem_whatever_their_arguments():
    sets = {
        split: {
            MathTasks(split, level, seed=seed)[i].prompt
            for level in (1, (1, 2))
            for seed in (0, 1)
            for i in range(1500)
        }
        for split in SPLITS
    }
    assert sets["train"].isdisjoint(sets["valid"] | sets["test"])
    assert sets["valid"].isdisjoint(sets["test"])
    assert all(0.0 <= text_share(text) < 0.1 for text in sets["valid"])
    assert all(0.1 <= text_share(text) < 0.2 for text in sets["test"])


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("level", LEVELS)
def test_every_family_and_level_has_problems_for_every_split(split, level):
    for family in FAMILIES:
        tasks = MathTasks(split, level, (family,))
        assert len({tasks[i].prompt for i in range(40)}) >= 20
        assert tasks[0].id == f"{family}-{level}-{split}-0-0"


def test_families_and_levels_are_mixed_evenly():
    kinds = [MathTasks(difficulty=(1, 2))[i].id.split("-train-")[0] for i in range(3600)]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert set(counts) == {f"{family}-{level}" for family in FAMILIES for level in (1, 2)}
    assert all(140 <= count <= 260 for count in counts.values())


def test_a_task_shows_no_answer():
    tasks = MathTasks("train", LEVELS)
    for i in range(100):
        assert tasks[i].gold not in re.findall(r"gold|solution", repr(tasks[i]))
        assert tasks[i].solution is not None and tasks[i].solution not in repr(tasks[i])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"difficulty": 0}, "difficulty is 0; choose one or several of 1, 2, 3, 4, 5"),
        ({"difficulty": (1, 6)}, r"difficulty is \(1, 6\)"),
        ({"difficulty": ()}, r"difficulty is \(\)"),
        ({"families": ("word",)}, "unknown family 'word'; did you mean 'words'? the families are arithmetic, words"),
        ({"families": ("zzz",)}, "unknown family 'zzz'; the families are"),
        ({"families": ()}, "families is empty"),
        ({"split": "dev"}, "split is 'dev'; the splits are train, valid, test"),
        ({"size": 0}, "size is 0; a task set needs at least one task"),
    ],
)
def test_bad_arguments_are_named(arguments, complaint):
    with pytest.raises(ValueError, match=complaint.replace("?", r"\?")):
        MathTasks(**arguments)


def test_indices_out_of_range_are_refused():
    tasks = MathTasks(size=3)
    assert len(tasks) == 3
    for i in (-1, 3):
        with pytest.raises(IndexError, match=f"task {i} of math: there are tasks 0 to 2"):
            tasks[i]
