"""The clause on tasks: each variant that cannot be trained on is told with its fix."""

import pytest

from turngym.agents.check.clauses import CLAUSES, run
from turngym.agents.check.episodes import Subject


@pytest.fixture
def split(world):
    """A world that splits its tasks itself."""

    class Split(world):
        def __init__(self, split="train"):
            super().__init__()
            first = {"train": 0, "valid": 100, "test": 200}[split]
            self.tasks = range(first, first + 100)

        def on_reset(self, rng, options):
            return super().on_reset(
                rng, {"task": self.tasks[options.get("task", int(rng.integers(100)))]}
            )

    return Split


def note(register, maker, **options):
    (clause,) = [clause for clause in CLAUSES if clause.name == "tasks"]
    result = run(clause, Subject(register(maker), options))
    assert result.ok, result.problem
    return result.note


def test_what_is_right_is_said(world, split, register):
    class Seeded(world):
        tasks = None

    assert note(register, world) == (
        "1000 tasks; without an option `split`, every tenth is for valid and every tenth for test"
    )
    assert note(register, Seeded).startswith("there are no tasks: episodes begin by seed")
    assert note(register, split) == "100 tasks; three splits"
    assert (
        note(register, split, split="valid")
        == "100 tasks; the splits of these options are not compared"
    )
    (clause,) = [clause for clause in CLAUSES if clause.name == "tasks"]
    assert run(clause, Subject("turngym/Math-v0", {})).note.endswith("tasks; three splits")


def test_options_that_are_ignored_are_seen(world, problem):
    class Deaf(world):
        def on_reset(self, rng, options):
            return super().on_reset(rng, {})

    assert "task 0 has the id 'number-" in problem(
        "tasks", Deaf
    ) and "begin the task options['task']" in problem("tasks", Deaf)

    class Nameless(Deaf):
        def on_reset(self, rng, options):
            text = super().on_reset(rng, options)
            self.task_id = ""
            return text

    assert "all 1000 tasks are one and the same episode" in problem("tasks", Nameless)


def test_options_that_are_refused_are_seen(world, problem):
    class Strict(world):
        def on_reset(self, rng, options):
            raise RuntimeError("no options please")

    assert (
        problem("tasks", Strict)
        == "reset(options={'task': 0}) raises RuntimeError: no options please"
    )


@pytest.mark.parametrize(
    ("tasks", "words"),
    [([], "tasks is empty; make it a sequence"), (40, "tasks is a int, which has no length")],
)
def test_tasks_that_are_none_are_seen(tasks, words, world, problem):
    class Odd(world):
        pass

    Odd.tasks = tasks
    assert words in problem("tasks", Odd)


def test_a_split_that_is_ignored_is_said(split, register):
    class Ignoring(split):
        def __init__(self, split="train"):
            super().__init__("train")

    said = "100 tasks; the option `split` is accepted and ignored, so a validation is on the training tasks; "
    assert note(register, Ignoring) == f"{said}choose `tasks` by it, or leave it out"


def test_a_split_with_the_tasks_of_one_other_is_seen(split, problem):
    class Overlapping(split):
        def __init__(self, split="train"):
            super().__init__("train" if split == "valid" else split)

    assert problem("tasks", Overlapping) == (
        "split='valid' has the tasks of split='train'; choose `tasks` by the option `split`"
    )


def test_a_few_tasks_without_a_split_are_no_fault(world, register):
    class Few(world):
        tasks = range(3)

    said = "3 tasks; without an option `split`, all are played by eval, and train is validated on its training tasks"
    assert note(register, Few) == said


def test_a_split_that_is_missing_is_seen(split, problem):
    class Two(split):
        def __init__(self, split="train"):
            super().__init__({"train": "train", "test": "test"}[split])

    assert problem("tasks", Two).startswith(
        "it cannot be made with split='valid' (KeyError: 'valid'); training takes"
    )


def test_hidden_information_is_compared_where_it_shows(world, register, problem):
    class Guess(world):
        tasks = None

        def on_reset(self, rng, options):
            super().on_reset(rng, {})
            self.task_id = ""
            return "Which multiple of seven?"

        def on_step(self, text):
            return super().on_step(text) if text.startswith("answer") else super().on_step("")

    class Constant(Guess):
        def on_reset(self, rng, options):
            text = super().on_reset(rng, options)
            self.number, self.secret = 6, self.canary or "42"
            return text

        def on_step(self, text):
            self.np_random.bit_generator.state = type(self.np_random.bit_generator)(0).state
            return super().on_step(text)

    assert problem("seeds", Guess) == problem("tasks", Guess) == problem("canary", Guess) == ""
    assert "16 seeds give one and the same episode" in problem("seeds", Constant)


def test_a_secret_in_the_id_of_a_task_is_seen(world, problem):
    class Telling(world):
        def plant(self, canary):
            return False  # it knows of no gold text

        def on_reset(self, rng, options):
            text = super().on_reset(rng, options)
            self.task_id = f"secret-{self.secret}"
            return text

    assert "info['task_id'] tells the gold, as 'secret-" in problem("canary", Telling)

    class Planted(Telling):
        plant = world.plant

    assert "info['task_id'] tells the gold" in problem("canary", Planted)

    class Named(Telling):
        def on_reset(self, rng, options):
            text = super().on_reset(rng, options)
            self.task_id = f"number-{self.number}"
            return text

    assert problem("canary", Named) == ""
