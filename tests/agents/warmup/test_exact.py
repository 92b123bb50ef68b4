"""The warm-up to a table: its targets are the table, a trained policy says them, and a seed gives the same weights."""

import random

import pytest
import torch

from turngym.agents.warmup import exact
from turngym.agents.warmup.supervised import END
from turngym.envs.diagnostic import WORLDS, Start
from turngym.envs.registry import make
from turngym.envs.split_episodes import Split, open_split

IDS = ("LateBloomer", "UselessChoice", "ManyWays", "Distractor")


START = Start()


def teacher_of(name, start=START):
    return exact.Teacher(open_split(f"turngym/{name}-v0", {"split": "train"}), start)


@pytest.mark.parametrize("name", IDS)
def test_targets_are_the_table_behind_what_the_agent_reads(name):
    teacher, rng = teacher_of(name), random.Random(3)
    words = {index: word for word, index in teacher.ids.items()}
    for _ in range(20):
        tokens, targets = teacher.episode(rng)
        for place, chances in targets.items():
            assert chances.sum() == pytest.approx(1, abs=1e-5) and bool((chances > 0).all())
            said = words[
                tokens[place + 1]
            ]  # what the demonstration goes on with is possible in the table
            assert chances[teacher.ids[said]] > 10 * teacher.start.noise / len(chances)
        ends = [place for place in targets if tokens[place + 1] == teacher.ids[END]]
        assert len(ends) == len(targets) / (3 if teacher.free else 2)
        assert tokens[-1] == teacher.ids[END] and max(targets) == len(tokens) - 2


def test_the_first_word_has_the_chances_of_the_start():
    teacher = teacher_of("LateBloomer", Start(tool=0.3, noise=0.1))
    _, targets = teacher.episode(random.Random(0))
    first = targets[min(targets)]
    spread = 0.1 / len(first)
    assert first[teacher.ids["ask"]] == pytest.approx(0.9 * 0.3 + spread)
    assert first[teacher.ids["guess"]] == pytest.approx(0.9 * 0.7 + spread)
    assert first[teacher.ids["red"]] == pytest.approx(spread)


def test_another_environment_has_no_table():
    with pytest.raises(TypeError, match="QuestionEnv is no diagnostic world"):
        exact.Teacher(Split(make("turngym/Math-v0"), range(3)), Start())


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_policy_nears_its_table_and_a_seed_gives_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(exact, "LEAST", 12)
    monkeypatch.setattr(exact, "NEAR", 9.0)
    split = open_split("turngym/ManyWays-v0", {"split": "train"})
    far = [list(exact.warm_up(split, START, 5, tmp_path / name)) for name in ("one", "two")]
    assert far[0] == far[1] and len(far[0]) == 12 and far[0][-1][1] < far[0][0][1] / 3
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
    monkeypatch.setattr(exact, "MOST", 3)
    with pytest.raises(
        ValueError, match=r"is \d\.\d+ nats from its table after 3 steps; choose another seed"
    ):
        list(exact.warm_up(split, START, 5, tmp_path / "bad"))
    assert not (tmp_path / "bad").exists()


def test_divergence_is_that_of_kullback_and_leibler():
    torch.manual_seed(0)
    teacher = teacher_of("ManyWays")
    model = exact.new_model(teacher.chat, "mini", 64, 0)
    episodes = [teacher.episode(random.Random(i)) for i in range(3)]
    expected = []
    for tokens, targets in episodes:  # one by one, without padding
        logp = torch.log_softmax(model(input_ids=torch.tensor([tokens])).logits[0].double(), -1)
        for place, chances in targets.items():
            expected.append(
                torch.nn.functional.kl_div(logp[place], chances.double(), reduction="sum")
            )
    assert torch.allclose(
        exact._divergence(model, episodes).double(), torch.stack(expected), atol=1e-4
    )


def test_all_worlds_are_tried():
    assert {make(f"turngym/{name}-v0").world.name for name in IDS} == set(WORLDS)
