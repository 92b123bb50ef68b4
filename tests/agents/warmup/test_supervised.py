"""Supervised learning of laid-out episodes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import Template
from turngym.agents.cli.settings import SIZES, WarmupOptions
from turngym.agents.warmup import supervised
from turngym.agents.warmup.pretrain import Demonstration
from turngym.agents.warmup.supervised import (
    CONTEXT,
    PADDING,
    TARGET,
    TEMPLATE,
    Example,
    Trainer,
    batches,
    new_model,
    pad,
    train_tokenizer,
)
from turngym.tools import get_format

CHAT = Chat(train_tokenizer(["ask tell go to shelf user assistant"] * 9, 300), Template(TEMPLATE))
ASK = [{"role": "user", "content": "ask"}]


@pytest.fixture
def options():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield WarmupOptions(steps=6, batch=2, lr=1e-3)
    torch.set_num_threads(threads)


def model():
    return new_model(CHAT, "small", 64, 0)


EXAMPLES = [
    Demonstration(ASK, [], ["go", "to"], [[{"role": "user", "content": "tell"}]]).example(CHAT)
    for _ in range(5)
]


def test_an_episode_is_laid_out_as_the_template_renders_it():
    example = EXAMPLES[0]
    text = CHAT.tokenizer.decode(example.tokens.tolist(), skip_special_tokens=False)
    talk = [*ASK, {"role": "assistant", "content": "go"}, {"role": "user", "content": "tell"}]
    talk.append({"role": "assistant", "content": "to"})
    assert text + "\n" == CHAT.template.render(talk)
    assistant = CHAT.tokenizer.decode(
        example.tokens[example.assistant].tolist(), skip_special_tokens=False
    )
    assert assistant == "go<|im_end|>to<|im_end|>"


def test_a_turn_that_the_cut_ends_has_no_end_token():
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>'
    example = Demonstration(ASK, [], [call], []).example(CHAT, get_format("hermes"))
    assistant = CHAT.tokenizer.decode(
        example.tokens[example.assistant].tolist(), skip_special_tokens=False
    )
    assert assistant == call


def test_a_pass_takes_every_lesson_once_and_pads_little():
    lengths = np.random.default_rng(0).integers(10, 500, 256).tolist()
    found = batches(lengths, 8, (0, 0))
    assert sorted(i for pick in found for i in pick) == list(range(256))
    padded = sum(8 * max(lengths[i] for i in pick) for pick in found)
    assert padded < 1.1 * sum(lengths)
    assert found == batches(lengths, 8, (0, 0)) != batches(lengths, 8, (0, 1))
    assert [sorted(pick) for pick in batches([5, 6, 7], 8, (0,))] == [[0, 1, 2]]


def test_padding_is_on_the_right():
    short, long = Example(np.array([4, 5], np.int32), np.array([False, True])), EXAMPLES[0]
    tokens, kinds = pad([short, long])
    assert tokens[0].tolist()[:3] == [4, 5, 0] and kinds[0].tolist()[:3] == [
        CONTEXT,
        TARGET,
        PADDING,
    ]
    assert (
        tokens[1].tolist() == long.tokens.tolist()
        and (kinds == TARGET).sum() == 1 + long.assistant.sum()
    )
    assert (kinds[0, 2:] == PADDING).all() and (kinds[1] != PADDING).all()


def test_the_loss_falls_and_what_was_saved_goes_on_to_the_same_weights(options, tmp_path):
    whole = Trainer(model(), options)
    losses = list(whole.learn(EXAMPLES))
    assert len(losses) == 6 and losses[-1] < losses[0] and whole.step == 6
    first = Trainer(model(), options)
    some = [loss for _, loss in zip(range(3), first.learn(EXAMPLES))]
    first.save(tmp_path)
    second = Trainer(model(), options)
    second.load(tmp_path, first.step)
    assert some + list(second.learn(EXAMPLES)) == losses
    for name, weight in whole.model.named_parameters():
        assert torch.equal(weight, dict(second.model.named_parameters())[name])


def test_only_what_the_agent_said_counts(options):
    losses = []
    for assistant in (EXAMPLES[0].assistant, ~EXAMPLES[0].assistant):
        trainer = Trainer(model(), options)
        losses.append(next(trainer.learn([Example(EXAMPLES[0].tokens, assistant)])))
    tokens = torch.from_numpy(EXAMPLES[0].tokens).long()[None]
    with torch.no_grad():
        logits = model()(input_ids=tokens).logits[0, :-1]
    every = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")
    assistant = torch.from_numpy(EXAMPLES[0].assistant)[1:]
    assert losses == pytest.approx(
        [float(every[assistant].mean()), float(every[~assistant].mean())], abs=1e-5
    )


def gradients(example, read):
    trainer = Trainer(model(), WarmupOptions(steps=6, batch=2, lr=1e-3), read)
    next(trainer.learn([example]))
    return {name: weight.grad for name, weight in trainer.model.named_parameters()}


def test_what_was_read_counts_as_much_as_asked_for():
    example, one = EXAMPLES[0], model()
    tokens = torch.from_numpy(example.tokens).long()[None]
    every = torch.nn.functional.cross_entropy(
        one(input_ids=tokens).logits[0, :-1], tokens[0, 1:], reduction="none"
    )
    assistant = torch.from_numpy(example.assistant)[1:]
    loss = (every[assistant].sum() + 0.25 * every[~assistant].sum()) / (
        assistant.sum() + 0.25 * (~assistant).sum()
    )
    loss.backward()
    torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0)
    learned = gradients(example, 0.25)
    for name, weight in one.named_parameters():
        assert torch.allclose(learned[name], weight.grad, atol=1e-6)
    assert not torch.equal(gradients(example, 0.0)["lm_head.weight"], learned["lm_head.weight"])


def test_a_new_models_head_begins_as_the_embedding_and_goes_its_own_way():
    one = model()
    embedding, head = one.model.embed_tokens.weight, one.lm_head.weight
    assert torch.equal(embedding, head) and embedding is not head
    assert float(head.detach().std()) == pytest.approx(
        SIZES["small"]["hidden_size"] ** -0.5, rel=0.02
    )
    list(Trainer(one, WarmupOptions(steps=2, batch=2, lr=1e-3)).learn(EXAMPLES))
    assert not torch.equal(embedding, head)


def test_the_rate_rises_to_the_one_asked_for_and_falls_to_a_fiftieth_for_both_optimizers(
    options, monkeypatch
):
    monkeypatch.setattr(supervised, "WARM", 4)
    trainer, rates = Trainer(model(), replace(options, steps=8)), []
    for _ in trainer.learn(EXAMPLES):
        rates.append(
            {group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups}
        )
    assert all(len(rate) == 1 for rate in rates)
    found = [rate.pop() / options.lr for rate in rates]
    share = [0.02 + 0.98 * np.cos(np.pi * step / 16) ** 2 for step in range(8)]
    assert found == pytest.approx(
        [part * min((step + 1) / 4, 1) for step, part in enumerate(share)]
    )


def test_what_was_saved_holds_every_weight_and_what_its_optimizer_knows(options, tmp_path):
    trainer = Trainer(model(), replace(options, steps=1))
    list(trainer.learn(EXAMPLES))
    trainer.save(tmp_path)
    held = load_file(tmp_path / "trainer.safetensors")
    for name, weight in trainer.model.named_parameters():
        parts = {part.removeprefix(f"{name}/") for part in held if part.startswith(f"{name}/")}
        assert torch.equal(held[name], weight)
        assert parts == (
            {"momentum_buffer"} if "_proj" in name else {"exp_avg", "exp_avg_sq", "step"}
        )


def test_muon_learns_the_matrices_and_adamw_the_rest(options):
    one = model()
    muon, adam = (
        {id(weight) for weight in part.param_groups[0]["params"]}
        for part in Trainer(one, options).optimizers
    )
    by_muon = {name for name, weight in one.named_parameters() if id(weight) in muon}
    assert len(muon) + len(adam) == len(list(one.parameters())) and not muon & adam
    assert by_muon == {name for name, _ in one.named_parameters() if "_proj" in name}


def test_sizes_are_in_order_and_all_can_be_made():
    parameters = [new_model(CHAT, size, 64, 0).num_parameters() for size in SIZES]
    assert parameters == sorted(parameters) and parameters[0] < 0.8e6 < parameters[1] < 1.2e6
