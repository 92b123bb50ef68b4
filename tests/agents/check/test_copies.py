import multiprocessing
import os
import time

import numpy as np
import pytest

from turngym.agents.check import copies
from turngym.agents.check.episodes import Broken, Subject
from turngym.envs import Reply, TextEnv


def breaks(problems, *clauses):
    return set(problems) == set(clauses) and all(problems.values())


# --- fork


def test_state_that_twins_share_is_seen(world, broken):
    class Entangled(world):
        shared = TextEnv.shared | {"thoughts"}

    problems = broken(Entangled)
    assert breaks(problems, "fork")
    assert (
        "forked before turn 1, a twin goes another way (do twins share state?): at turn 1"
        in problems["fork"]
    )


def test_an_original_that_a_twin_changes_is_seen(world, problem):
    class Led(world):
        """What its twin does happens to it as well."""

        shared = TextEnv.shared | {"original"}
        original = None

        def fork(self):
            twin = super().fork()
            twin.original = self
            return twin

        def on_reset(self, rng, options):
            self.original = None
            return super().on_reset(rng, options)

        def on_step(self, text):
            if self.original is not None:
                self.original.thoughts.append(1)
            return super().on_step(text)

    assert "forked before turn 1, what a twin does changes the original: at turn 1" in problem(
        "fork", Led
    )


def test_a_twin_that_the_original_changes_is_seen(world, problem):
    class Leading(world):
        """What it does happens to its twins as well."""

        followers = ()

        def fork(self):
            twin = super().fork()
            twin.followers, self.followers = [], [*self.followers, twin]
            return twin

        def on_reset(self, rng, options):
            self.followers = []
            return super().on_reset(rng, options)

        def on_step(self, text):
            for follower in self.followers:
                follower.thoughts.append(1)
            return super().on_step(text)

    assert "what the original does changes a twin" in problem("fork", Leading)


def test_what_only_a_twin_that_goes_astray_shows_is_seen(world, problem):
    class Noting(world):
        """What was said first in a turn counts, in whichever twin."""

        shared = TextEnv.shared | {"notes"}

        def __init__(self):
            super().__init__()
            self.notes = {}

        def on_reset(self, rng, options):
            self.notes.clear()
            return super().on_reset(rng, options)

        def on_step(self, text):
            return super().on_step(self.notes.setdefault(self.turn, text))

    assert problem("fork", Noting)


def test_a_twin_with_another_generator_is_seen(world, problem):
    class Reseeding(world):
        def fork(self):
            twin = super().fork()
            twin.np_random = np.random.default_rng(3)
            return twin

    assert "a twin goes another way" in problem("fork", Reseeding)


def test_a_twin_that_forgets_is_seen_at_the_turn_where_it_shows(world, problem):
    class Forgetting(world):
        def fork(self):
            twin = super().fork()
            twin.thoughts = []
            return twin

    assert "forked before turn 2, a twin goes another way" in problem("fork", Forgetting)


def test_a_twin_whose_end_is_everyones_end_is_seen(world, problem):
    class Slamming(world):
        shared = TextEnv.shared | {"door"}

        def __init__(self):
            super().__init__()
            self.door = ["open"]

        def on_reset(self, rng, options):
            self.door[0] = "open"
            return super().on_reset(rng, options)

        def on_step(self, text):
            if self.door[0] != "open":
                raise OSError("the door is closed")
            return super().on_step(text)

        def close(self):
            self.door[0] = "closed"

    assert "the door is closed" in problem("fork", Slamming)


def test_a_tool_that_twins_share_is_seen(quiz, memory, problem):
    class Single(memory):
        name = "single"

        def fork(self):
            return self

    class Sharing(quiz):
        def __init__(self):
            super().__init__([Single()])

    assert problem("fork", Sharing)


def test_the_fork_through_wrappers_is_tried_too(world, problem, monkeypatch):
    monkeypatch.setattr(copies, "fork", lambda env: env)
    assert problem("fork", world)


# --- snapshot


def test_a_snapshot_that_json_cannot_hold_is_seen(world, problem):
    class Unwritable(world):
        def snapshot(self):
            return {**super().snapshot(), "seen": {1, 2}}

    assert "set is not JSON serializable" in problem("snapshot", Unwritable)


def test_a_snapshot_that_json_changes_is_seen(world, problem):
    class Renamed(world):
        def snapshot(self):
            return {**super().snapshot(), "seen": {1: 2}}

    assert "comes back from JSON as" in problem("snapshot", Renamed)


def test_a_restored_environment_that_goes_another_way_is_seen(world, broken):
    class Forgetful(world):
        def restore(self, snapshot):
            last = super().restore(snapshot)
            self.thoughts = self.thoughts[:1]
            return last

    problems = broken(Forgetful)
    assert (
        breaks(problems, "snapshot") and "snapshot after 2 turns, restored" in problems["snapshot"]
    )


def test_a_restored_environment_that_says_something_else_of_itself_is_seen(world, problem):
    class Dated(world):
        restored = 0

        def restore(self, snapshot):
            self.restored = 1
            return super().restore(snapshot)

        def snapshot(self):
            return {**super().snapshot(), "restored": self.restored}

    assert "once restored, the snapshot is" in problem("snapshot", Dated)


# --- journal


def test_an_environment_that_refuses_a_task_is_seen(world, problem):
    class Choosy(world):
        def on_reset(self, rng, options):
            if options:
                raise ValueError(f"there are no options {options}")
            return super().on_reset(rng, options)

    assert "there are no options {'task': 0}" in problem("journal", Choosy)


def test_a_journal_whose_replay_is_another_is_seen(world, broken):
    class Counting(world):
        plays = [0]  # noqa: RUF012

        def on_reset(self, rng, options):
            self.plays[0] += len(options)
            return super().on_reset(rng, options) + (f" ({self.plays[0]})" if options else "")

    problems = broken(Counting)
    assert (
        breaks(problems, "journal")
        and "a replay of the journal diverges: task 0" in problems["journal"]
    )


def test_an_info_that_no_journal_can_hold_is_seen(world, problem):
    class Bagging(world):
        def on_step(self, text):
            reply = super().on_step(text)
            return reply if reply.stop else type(reply)(reply.text, info={"bag": {1}})

    assert "the info of an environment must be JSON data" in problem("journal", Bagging)


@pytest.fixture
def vector(problem):
    """What is wrong with vectors of an environment, in both modes; no process is left."""

    def vector(maker):
        found = problem("vector", maker)
        assert multiprocessing.active_children() == []
        return found

    return vector


def test_infos_that_a_vector_cannot_hold_are_seen(world, broken):
    class Mixed(world):
        """Its info has a number where that of another task has text."""

        def on_step(self, text):
            reply = super().on_step(text)
            return Reply(
                reply.text, reply.reward, reply.stop, info={"mood": "bad" if self.number % 2 else 1}
            )

    problems = broken(Mixed)
    assert set(problems) == {"vector"} and "invalid literal for int()" in problems["vector"]


def test_what_only_a_worker_process_does_is_seen(world, vector):
    class Parental(world):
        def on_step(self, text):
            text = "of a child" if multiprocessing.current_process().daemon else text
            return super().on_step(text)

    assert "is another episode in a vector in async mode: at turn 1" in vector(Parental)


def test_what_raises_in_a_worker_process_is_seen(world, vector):
    class Parental(world):
        def on_step(self, text):
            if multiprocessing.current_process().daemon:
                raise AssertionError("daemonic processes are not allowed to have children")
            return super().on_step(text)

    assert "daemonic processes" in vector(Parental)


def test_what_does_not_answer_is_left_and_ended(world, vector, monkeypatch):
    class Sleeping(world):
        def on_step(self, text):
            if multiprocessing.current_process().daemon:
                time.sleep(600)
            return super().on_step(text)

    monkeypatch.setattr(copies, "SECONDS", 0.5)
    assert vector(Sleeping) == "a vector in async mode did not answer within 0.5 s"


def test_an_observation_over_the_limit_of_the_space_is_seen_in_its_place(world, vector):
    class Capital(world):
        """In the process of the test it keeps to the space."""

        def on_step(self, text):
            reply = super().on_step(text)
            long = os.getpid() != here and not reply.stop
            return Reply(
                "x" * 70_000 if long else reply.text, reply.reward, reply.stop, info=reply.info
            )

    here = os.getpid()
    assert "does not fit in TextSpace(max_bytes=65536)" in vector(Capital)


def test_a_reset_in_a_vector_that_is_another_is_seen(world, vector):
    class Restless(world):
        """Where an episode is begun again without a seed, a worker process begins another."""

        def on_reset(self, rng, options):
            if self.resets and multiprocessing.current_process().daemon:
                rng.random()
            self.resets += 1
            return super().on_reset(rng, options)

        resets = 0

    assert "in async mode" in vector(Restless)


def test_good_ones_keep_the_clause_in_both_modes(world, quiz, register):
    for maker in (world, quiz):
        case = Subject(register(maker), {})
        assert copies.check_vector(
            case
        ) == f"{max(len(p.actions) for p in case.scenarios[1:3]) + 2} rounds of 2 " + (
            "environments in 2 modes"
        )


def test_options_reach_the_environments_of_a_vector(world, register):
    class Option(world):
        def __init__(self, fine=True):
            super().__init__()
            self.fine = fine

        def on_reset(self, rng, options):
            unlike = not self.fine and multiprocessing.current_process().daemon
            return super().on_reset(rng, options) + ("!" if unlike else "")

    env_id = register(Option)
    copies.check_vector(Subject(env_id, {}))
    with pytest.raises(Broken, match="in async mode: at reset"):
        copies.check_vector(Subject(env_id, {"fine": False}))
