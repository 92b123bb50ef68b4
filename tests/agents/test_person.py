"""A person at the terminal: what is said before the first turn, what is asked for, and what the end shows."""

import io

import pytest
from rich.console import Console

from turngym.agents import players
from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.registry import make
from turngym.tools.formats import FORMATS


class Door(TextEnv):
    """Opens to `push`."""

    def on_reset(self, rng, options):
        return "A door."

    def on_step(self, text):
        return Reply("It is shut.") if text != "push" else Reply("It opens.", 1.0, StopReason.GOAL)


class Known(Door):
    def gold(self):
        return ["knock", "push"]


def played(env, *lines, task=None):
    """What is shown to who writes these lines, before and behind the first question; and what the questions were."""
    console, asked, left = Console(file=io.StringIO(), width=100, highlight=False), [], list(lines)

    def answer(prompt):
        asked.append(prompt.replace("[bold]", "").replace("[/bold]", ""))
        if len(asked) == 1:
            console.print("=====")
        return left.pop(0)

    console.input = answer
    _, info = env.reset(seed=0, options={} if task is None else {"task": task})
    players.play_at_terminal(env, info["messages"], console)
    env.close()
    assert not left
    before, _, after = console.file.getvalue().partition("=====")
    return " ".join(before.split()), " ".join(after.split()), asked


def test_what_ends_an_episode_is_said_first_and_the_right_answer_last():
    env = make("turngym/Math-v0")
    before, after, asked = played(env, "7", task=1)
    assert "A line is the final answer and ends the episode." in before and asked == ["> "]
    assert env.task.gold not in before.replace(env.task.prompt, "")
    assert (
        "The episode is over: the reply was the final answer, and the grader found no answer in it"
        in after
    )
    assert f"The right answer: \\boxed{{{env.task.gold}}}" in after and after.endswith(
        "(no_answer) after 1 turns"
    )


def test_an_expert_of_a_world_is_asked_before_it_moves():
    before, after, asked = played(Known(), "", ":help", "look", "push")
    assert (
        "The episode ends at its goal, or at the turn limit, which is 8." in before
        and "knock" not in before
    )
    assert asked == ["> "] * 4 and after.count("how to play") == 2  # an empty line is no action
    assert (
        "An expert would have played: │ │ knock" in after
        and "reward 1, done (goal) after 2 turns" in after
    )
    assert "The right answer is not known: Door has no expert" in played(Door(), "push")[1]


@pytest.mark.parametrize("name", FORMATS)
def test_the_call_that_is_shown_is_one_in_every_format(name):
    env = make("turngym/MathPython-v0", format=name, max_turns=1)
    shown = list(players._rules(env))[1]
    parsed = env.format.parse(shown, ["python"])
    assert parsed.call.arguments == {"code": "…"} and parsed.error is None
    lines = shown.splitlines()
    _, after, asked = played(env, *lines, task=0)
    assert (
        asked == ["> "] + [". "] * (len(lines) - 1) and "reward 0, truncated (max_turns)" in after
    )


def test_a_person_can_leave_in_the_middle_of_a_call():
    _, after, asked = played(make("turngym/MathPython-v0"), "<tool_call>", "", ":q")
    assert asked == ["> ", ". ", ". "] and after == "stopped before the end of the episode"
