"""Deadlines, retries and stalls of rollouts, with environments, tools and engines that never answer."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import Deadlines
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.torch.engine import TorchSession
from turngym.agents.journal.trees import Incident, to_json
from turngym.agents.policy import load_policy
from turngym.agents.rollout import path
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.agents.trajectory import Leaf, Tree
from turngym.envs import EnvFailure, Outcome, TextEnv
from turngym.envs.question.env import QuestionEnv
from turngym.envs.tasks import ListTasks, Task
from turngym.tests.support.faulty import Flaky, StuckEngine, Troubled
from turngym.tools import Tool, ToolFailure, tool

SHORT = Sampling(max_tokens=6)
SOON = Deadlines(turn_deadline=1.0, episode_deadline=1.5, step_deadline=60, retries=0)


@pytest.fixture(scope="module")
def actor(qwen3_folder: Path) -> Iterator[Actor]:
    policy = load_policy(qwen3_folder)
    engine = TorchEngine(policy)
    yield Actor(engine, Chat.from_folder(qwen3_folder), policy.end_ids)
    engine.close()


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set when the test is over, so that no thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


def grow(
    actor: Actor, env: TextEnv, group: int = 2, **options: Any
) -> tuple[list[Tree], list[Incident]]:
    seen: list[Incident] = []
    options = {"sampling": SHORT, "deadlines": SOON, "on_incident": seen.append, **options}
    return collect(actor, env, range(3), group=group, key=(3, 5), **options), seen


@pytest.fixture(scope="module")
def undisturbed(actor: Actor) -> list[Tree]:
    return grow(actor, Troubled(), deadlines=Deadlines())[0]


def same(trees: list[Tree], others: list[Tree]) -> bool:
    return [to_json(tree) for tree in trees] == [to_json(tree) for tree in others]


def failures(tree: Tree) -> list[Leaf]:
    """The leaves of a tree that all failed, without a score."""
    assert all(leaf.outcome is Outcome.INFRA_ERROR and isnan(leaf.score) for leaf in tree.leaves)
    return tree.leaves


@pytest.mark.parametrize("place", ["reset", "step", "fork"])
def test_what_never_answers_fails_its_own_paths_in_time_and_changes_no_others(
    actor, undisturbed, never, place
):
    (first, stuck, last), incidents = grow(actor, Troubled(place, never.wait))
    assert same([first, last], [undisturbed[0], undisturbed[2]])
    for leaf in failures(stuck):
        # The second branch waits for the first one's fork, on the time of its episode.
        assert leaf.info["deadline"] == (
            "episode" if (place, leaf.branch) == ("fork", 1) else "turn"
        )
        assert "deadline of 1" in leaf.info["error"] and " s passed" in leaf.info["error"]
    assert [leaf.branch for leaf in stuck.leaves] == [0, 1]
    assert {incident.kind for incident in incidents} == {"failed"}
    assert all(incident.key[:3] == (3, 5, 1) for incident in incidents)


def test_the_drawn_turn_before_a_deadline_is_kept(actor, undisturbed, never):
    (_, stuck, _), _ = grow(actor, Troubled("step", never.wait))
    for leaf, before in zip(stuck.leaves, undisturbed[1].leaves, strict=True):
        assert (
            stuck.turns[leaf.node].text
            == undisturbed[1].turns[undisturbed[1].replies(before)[0]].text
        )
        assert isnan(stuck.turns[leaf.node].reward)


def test_deadlines_hold_off_the_main_thread_too(actor, never):
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(grow(actor, Troubled("step", never.wait))))
    thread.start()
    thread.join(10)
    assert len(failures(box[0][0][1])) == 2


def test_an_environment_that_cannot_be_closed_is_left_behind_and_named(
    actor, undisturbed, never, monkeypatch
):
    monkeypatch.setattr(path, "CLOSING", 0.2)
    trees, incidents = grow(actor, Troubled("close", never.wait), deadlines=Deadlines())
    assert same(trees, undisturbed)
    assert {incident.kind for incident in incidents} == {"close"}
    assert "closing Troubled failed or took over 0.2 s" in incidents[0].what


def test_what_a_late_fork_returns_is_closed(actor, never):
    env = Troubled("fork", lambda: never.wait(10))
    grow(actor, env)
    closed = env.closed.count(1)
    never.set()
    while env.closed.count(1) == closed:  # the test's own timeout ends a wait in vain
        time.sleep(0.01)


def test_an_engine_that_never_answers_fails_the_paths_that_wait_for_it(actor, undisturbed):
    (first, stuck, last), _ = grow(replace(actor, engine=StuckEngine(actor.engine)), Troubled())
    assert same([first, last], [undisturbed[0], undisturbed[2]])
    for leaf in failures(stuck):
        assert "drawing turn 1 was not over" in leaf.info["error"]
        assert len(stuck.replies(leaf)) == 1 and stuck.turns[leaf.node].role == "user"


@pytest.mark.parametrize("column", ["logp", "entropy"])
def test_numbers_of_an_engine_that_are_not_finite_fail_their_path_before_they_reach_a_journal(
    actor, undisturbed, monkeypatch, column
):
    draw = TorchSession.sample

    async def spoiled(
        self: Any, tokens: Any, sampling: Sampling, key: tuple[int, ...], cut: Any
    ) -> Any:
        drawn = await draw(self, tokens, sampling, key, cut)
        return replace(drawn, **{column: drawn.logp * np.float32("nan")}) if key[2] == 1 else drawn

    monkeypatch.setattr(TorchSession, "sample", spoiled)
    (first, bad, last), incidents = grow(actor, Troubled())
    assert same([first, last], [undisturbed[0], undisturbed[2]])
    assert all(
        "turn 0 with numbers that are not finite" in leaf.info["error"] for leaf in failures(bad)
    )
    assert [incident.kind for incident in incidents] == ["failed"] * 2


def test_an_episode_of_many_slow_turns_has_a_deadline_of_its_own(actor):
    env = Troubled("step", lambda: time.sleep(0.25))
    (_, slow, _), _ = grow(actor, env, deadlines=Deadlines(5, 0.4, retries=0))
    assert {leaf.info["deadline"] for leaf in failures(slow)} == {"episode"}


def test_the_deadline_of_the_step_fails_what_is_under_way_and_what_waits_without_another_try(
    actor, undisturbed, never
):
    options = {"deadlines": Deadlines(step_deadline=1.0, retries=5), "in_flight": 1}
    trees, incidents = grow(actor, Troubled("reset", never.wait), **options)
    assert sum(leaf.info.get("deadline") == "step" for tree in trees for leaf in tree.leaves) >= 2
    assert [len(tree.leaves) for tree in trees] == [2, 2, 2]
    assert "retry" not in {incident.kind for incident in incidents}
    failed = sum(not leaf.rewarded for tree in trees for leaf in tree.leaves)
    # A tree that could not begin is one incident for all its paths.
    assert sum(incident.kind == "failed" for incident in incidents) >= failed / 2


def test_a_stall_names_who_waits_for_what(actor, never):
    _, incidents = grow(
        actor, Troubled("step", never.wait), deadlines=Deadlines(1.0, stall_after=0.2, retries=0)
    )
    stalls = [incident.what for incident in incidents if incident.kind == "stall"]
    waited = [
        stall for stall in stalls if "3/5/1/0 (the environment's answer to turn 0)" in stall
    ]  # others may draw
    assert waited and "3/5/1/1" in waited[0]


def test_a_straggler_changes_no_others_and_not_itself(actor, undisturbed):
    trees, incidents = grow(actor, Troubled("step", lambda: time.sleep(0.3)), deadlines=Deadlines())
    assert same(trees, undisturbed) and not incidents


@pytest.mark.parametrize("place", ["reset", "step", "fork"])
@pytest.mark.parametrize("error", [EnvFailure("lost"), ToolFailure("lost"), OSError("lost")])
def test_a_failure_is_tried_again_with_the_same_key_and_leaves_no_trace_in_the_tree(
    actor, undisturbed, place, error
):
    trees, incidents = grow(actor, Troubled(place, Flaky(2, error)), deadlines=Deadlines(retries=2))
    assert same(trees, undisturbed)
    assert [incident.kind for incident in incidents] == ["retry"] * 2
    assert all("lost" in incident.what and incident.key[:3] == (3, 5, 1) for incident in incidents)


def test_a_path_that_fails_every_time_is_a_typed_leaf_and_one_failed_incident(actor):
    (_, broken, _), incidents = grow(
        actor, Troubled("step", Flaky(99, ToolFailure("gone"))), deadlines=replace(SOON, retries=1)
    )
    assert {leaf.outcome for leaf in broken.leaves} == {Outcome.TOOL_ERROR}
    kinds = [incident.kind for incident in incidents]
    assert (kinds.count("retry"), kinds.count("failed")) == (2, 2)


def test_a_tree_whose_environment_cannot_begin_has_all_its_paths_failed(actor):
    (_, broken, _), incidents = grow(
        actor, Troubled("reset", Flaky(99, OSError("no disk"))), group=3
    )
    assert [leaf.branch for leaf in failures(broken)] == [0, 1, 2]
    assert broken.turns[0].text == "" and not len(broken.turns[0].tokens)
    assert broken.leaves[0].info == {"error": "OSError: no disk"}
    assert [incident.key for incident in incidents] == [(3, 5, 1)]


class Exact:
    def grade(self, *, completion: str, gold: str) -> Any:
        raise AssertionError("nothing is graded here")


def test_a_tool_that_never_answers_is_a_tool_error_in_time(never):
    @tool
    def look() -> str:
        """Look for ever."""
        never.wait()
        return "seen"

    tools: list[Tool] = [look]
    env = QuestionEnv(ListTasks([Task("a", "Look.", "1")]), Exact(), tools, tool_timeout=0.2)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(
        '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    )
    assert isnan(reward) and truncated and not terminated
    assert (info["outcome"], info["error"]) == (
        "tool_error",
        "the tool look did not answer within 0.2 s",
    )


@pytest.mark.parametrize(
    "name", ["turn_deadline", "episode_deadline", "step_deadline", "stall_after"]
)
def test_a_deadline_that_is_no_time_is_refused(actor, name):
    with pytest.raises(ValueError, match=rf"{name} is 0; it must be above 0"):
        grow(actor, Troubled(), deadlines=Deadlines(**{name: 0}))
