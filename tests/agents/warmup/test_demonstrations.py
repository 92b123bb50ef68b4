"""Expert play with turns that go astray."""

import pytest

from turngym.agents.warmup import pretrain
from turngym.envs.household.env import make_household
from turngym.envs.registry import make
from turngym.envs.split_episodes import task_count


def demonstrations(env, count, noise, seed):
    return pretrain.demonstrations(env, count, noise, seed, range(task_count(env)))


@pytest.fixture
def house():
    return make_household(size="tiny", difficulty=1, max_turns=12)


def test_without_noise_the_expert_wins(house):
    played = list(demonstrations(house, 12, 0.0, seed=0))
    assert [one.reward for one in played] == [1.0] * 12
    assert len({one.opening[-1]["content"] for one in played}) == 12


def test_an_episode_is_what_the_environment_said(house):
    for index, one in enumerate(demonstrations(house, 6, 0.5, seed=3)):
        _, info = house.reset(options={"task": index})
        assert (info["messages"], info["tools"]) == (one.opening, one.tools)
        answers = []
        for text in one.says:
            assert house.live
            answers.append(house.step(text)[4]["messages"])
        assert not house.live and tuple(answers[:-1]) == one.answers
        assert sum(house.turn_rewards) == one.reward


def test_noise_costs_successes_and_the_arguments_decide_it(house):
    played = list(demonstrations(house, 40, 0.6, seed=1))
    assert (
        played
        == list(demonstrations(house, 40, 0.6, seed=1))
        != list(demonstrations(house, 40, 0.6, seed=2))
    )
    assert 0 < sum(one.reward for one in played) < 32


def test_tasks_come_again_when_they_run_out():
    env = make("turngym/MathPython-v0", split="train", difficulty=(1,))
    env.tasks = [env.tasks[0], env.tasks[1]]
    played = list(demonstrations(env, 4, 0.0, seed=0))
    assert played[0].opening == played[2].opening != played[1].opening == played[3].opening
    assert [one.reward for one in played] == [1.0] * 4


def test_where_commands_are_not_listed_another_tasks_gold_leads_astray():
    env = make("turngym/Math-v0", split="train", difficulty=(1,))
    played = list(demonstrations(env, 30, 0.5, seed=0))
    wrong = [one for one in played if one.reward == 0]
    assert 5 < len(wrong) < 25 and all("boxed" in one.says[0] for one in wrong)


def test_texts_hold_all_that_is_written(house):
    one = next(demonstrations(house, 1, 0.0, seed=0))
    texts = list(one.texts())
    assert {
        one.opening[1]["content"],
        *one.says,
        *(answer[0]["content"] for answer in one.answers),
    } <= set(texts)
    assert "user\n" in texts


def test_the_expert_hears_what_was_done_in_its_place(house, monkeypatch):
    heard = []

    class Looker:
        command = ""

        def act(self, observation):
            heard.append(self.command)
            self.command = "look"
            return self.command

    monkeypatch.setattr(type(house), "expert", lambda env: Looker())
    one = next(demonstrations(house, 1, 0.5, seed=0))
    assert heard == ["", *one.says[:-1]] and len(set(one.says)) > 1
