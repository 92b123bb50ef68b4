"""Supervised learning of laid-out episodes."""

import numpy as np
import pytest
import torch

from turngym.agents.bpe import TEMPLATE, train_tokenizer
from turngym.agents.chat import Chat
from turngym.agents.sizes import SIZES
from turngym.agents.supervise import Course, Lesson, Pupil, batches, lay, new_model, pad
from turngym.agents.template import Template
from turngym.tools import get_format

CHAT = Chat(train_tokenizer(["ask tell go to shelf user assistant"] * 9, 300), Template(TEMPLATE))
ASK = [{"role": "user", "content": "ask"}]


@pytest.fixture
def course():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Course(steps=6, batch=2, lr=1e-3)
    torch.set_num_threads(threads)


def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return new_model(CHAT, "small", 64)


LESSONS = [lay(CHAT, ASK, [], ["go", "to"], [[{"role": "user", "content": "tell"}]]) for _ in range(5)]


def test_an_episode_is_laid_out_as_the_template_renders_it():
    lesson = LESSONS[0]
    text = CHAT.tokenizer.decode(lesson.tokens.tolist(), skip_special_tokens=False)
    talk = [*ASK, {"role": "assistant", "content": "go"}, {"role": "user", "content": "tell"}]
    talk.append({"role": "assistant", "content": "to"})
    assert text + "\n" == CHAT.template.render(talk)
    said = CHAT.tokenizer.decode(lesson.tokens[lesson.said].tolist(), skip_special_tokens=False)
    assert said == "go<|im_end|>to<|im_end|>"


def test_a_turn_that_the_cut_ends_has_no_end_token():
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>'
    lesson = lay(CHAT, ASK, [], [call], [], get_format("hermes"))
    said = CHAT.tokenizer.decode(lesson.tokens[lesson.said].tolist(), skip_special_tokens=False)
    assert said == call


def test_a_pass_takes_every_lesson_once_and_pads_little():
    lengths = np.random.default_rng(0).integers(10, 500, 256).tolist()
    found = batches(lengths, 8, (0, 0))
    assert sorted(i for pick in found for i in pick) == list(range(256))
    padded = sum(8 * max(lengths[i] for i in pick) for pick in found)
    assert padded < 1.1 * sum(lengths)
    assert found == batches(lengths, 8, (0, 0)) != batches(lengths, 8, (0, 1))
    assert [sorted(pick) for pick in batches([5, 6, 7], 8, (0,))] == [[0, 1, 2]]


def test_padding_is_on_the_right_and_is_not_learned():
    short, long = Lesson(np.array([4, 5], np.int32), np.array([False, True])), LESSONS[0]
    tokens, said = pad([short, long])
    assert tokens[0].tolist()[:3] == [4, 5, 0] and said[0].tolist()[:3] == [False, True, False]
    assert tokens[1].tolist() == long.tokens.tolist() and said.sum() == 1 + long.said.sum()


def test_the_loss_falls_and_what_was_saved_goes_on_to_the_same_weights(course, tmp_path):
    whole = Pupil(model(), course)
    losses = list(whole.learn(LESSONS))
    assert len(losses) == 6 and losses[-1] < losses[0]
    first = Pupil(model(), course)
    some = [loss for _, loss in zip(range(3), first.learn(LESSONS))]
    first.save(tmp_path)
    second = Pupil(model(), course)
    second.load(tmp_path, first.step)
    assert some + list(second.learn(LESSONS)) == losses
    for name, weight in whole.model.named_parameters():
        assert torch.equal(weight, dict(second.model.named_parameters())[name])


def test_only_what_the_agent_said_counts(course):
    losses = []
    for said in (LESSONS[0].said, ~LESSONS[0].said):
        pupil = Pupil(model(), course)
        losses.append(next(pupil.learn([Lesson(LESSONS[0].tokens, said)])))
    tokens = torch.from_numpy(LESSONS[0].tokens).long()[None]
    with torch.no_grad():
        logits = model()(input_ids=tokens).logits[0, :-1]
    every = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")
    said = torch.from_numpy(LESSONS[0].said)[1:]
    assert losses == pytest.approx([float(every[said].mean()), float(every[~said].mean())], abs=1e-5)


def test_sizes_are_in_order_and_all_can_be_made():
    parameters = [new_model(CHAT, size, 64).num_parameters() for size in SIZES]
    assert parameters == sorted(parameters) and 0.8e6 < parameters[0] < 1.2e6
