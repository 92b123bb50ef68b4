import pytest

from turngym.envs.math.grading.grader import Grade
from turngym.envs.math.reasoning.tasks import offered
from turngym.envs.qa import QAGrader
from turngym.envs.tasks import ListTasks, Task
from turngym.tests.verify import constants
from turngym.tests.verify.constants import Source, may_earn, on_the_prompt, row


class Pays:
    """Pays for every answer that holds one of some texts."""

    def __init__(self, *texts):
        self.texts = texts

    def grade(self, *, completion, gold):
        return Grade(float(any(text in completion for text in self.texts)), completion, "string")


TASKS = ListTasks(
    [Task(f"{i}", f"Is {i} next to the Bridge {i + 1}?", f"word{i}") for i in range(20)],
    "twenty",
    "test",
)


def counted(grader, floor=0.1):
    return row("x", [Source("twenty", TASKS, TASKS, grader, floor)], 0, 20, "<answer>@</answer>")


def test_a_grader_that_looks_at_the_answer_holds():
    held = counted(QAGrader())
    assert held.good and held.of > 120 and "1 sources" in held.note


@pytest.mark.parametrize("text", ["nan", "0", "word", "Bridge", ">False<"])
def test_an_answer_that_is_always_paid_falls_short(text):
    short = counted(Pays(text))
    assert not short.good and "earns 1.00, floor 0.1" in short.note


def test_a_floor_that_is_declared_is_no_fault():
    assert counted(Pays(">nan<"), floor=0.6).good


def test_floors_are_read_for_data_sets_that_can_be_used():
    pytest.importorskip("reasoning_gym")
    floors = constants.floors()
    assert (len(floors), floors["syllogism"], floors["game_of_life"]) == (28, 0.7, 0.15)
    assert set(floors) <= set(offered()) and all(
        constants.LEAST < floor < 1 for floor in floors.values()
    )


def test_what_an_answer_may_earn_leaves_room_for_chance_alone():
    assert may_earn(0.1, 8) == 0.75 and may_earn(0.1, 100) < 0.3 and may_earn(0.65, 8) == 1.0


def test_answers_are_read_off_a_prompt_by_their_place():
    shown = dict(on_the_prompt("Is 3 or 'x y' the name of Anna?\n12 or 3"))
    assert (
        shown["number 0"],
        shown["number -1"],
        shown["largest number"],
        shown["count of numbers"],
    ) == (
        "3",
        "3",
        "12",
        "3",
    )
    assert (shown["quote 0"], shown["name 1"], shown["line -1"]) == ("x y", "Anna", "12 or 3")
    assert shown["most frequent number"] == "3" and constants.CONSTANTS.count("nan") == 1


def test_a_matrix_is_read_off_a_prompt_as_a_whole():
    prompt = "Rotate the matrix of 2 lines:\n1 2 3\n4 5 6\nby 90 degrees.\n7 8"
    assert dict(on_the_prompt(prompt))["block"] == "1 2 3\n4 5 6"
    assert "block" not in dict(on_the_prompt("What is 1 + 2?"))
