"""LoRA weights that learn from demonstrations, of the policy that is shipped."""

import json
from contextlib import closing

import pytest
import torch
from safetensors.torch import load_file

from turngym.agents.cli.settings import FINETUNING, LoraOptions, MachineOptions, changed
from turngym.agents.models.resolve import find, max_tokens
from turngym.agents.policy import load_policy
from turngym.agents.warmup import finetune
from turngym.agents.warmup.finetune import Finetune, prepare, run
from turngym.agents.warmup.supervised import Example, Tuner

SMALL = Finetune(
    policy="tiny",
    env="turngym/MathPython-v0",
    options={"difficulty": (1,), "shots": 1},
    data="",
    training=changed(FINETUNING, {"episodes": 12, "steps": 4, "batch": 3}),
    lora=LoraOptions(4, 8.0),
    machine=MachineOptions(),
)
TALK = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "And 1 more?"},
    {"role": "assistant", "content": "5"},
]


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def write(path, *talks):
    path.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks), "utf-8")
    return str(path)


def finish(updates):
    return [at for at in updates if at.loss is not None]


@pytest.mark.slow
def test_a_death_changes_nothing_and_a_run_begins_with_the_adapter(tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(run(prepare(SMALL, whole)))
    monkeypatch.setattr(finetune, "SAVE_SECONDS", 0.0)
    with closing(run(prepare(SMALL, broken))) as updates:
        next(at for at in updates if at.done == 2 and at.loss is not None)
    assert [at.done for at in finish(run(prepare(SMALL, broken, resume=True)))] == [2, 3, 4]
    one, other = (
        load_file(find(folder).adapter / "adapter_model.safetensors") for folder in (whole, broken)
    )
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    policy = load_policy(find(whole), lora=SMALL.lora)
    assert any(
        part.abs().sum() > 0
        for name, part in policy.trainable_parameters().items()
        if "lora_B" in name
    )
    assert max_tokens(find(whole)) == 96
    losses = [json.loads(line) for line in (whole / "losses.jsonl").read_text().splitlines()]
    assert [line["step"] for line in losses] == [1, 2, 3, 4] and losses[-1]["held_out"] > 0
    with pytest.raises(ValueError, match="is finished; use it with --policy"):
        prepare(SMALL, whole, resume=True)
    with pytest.raises(ValueError, match="already holds a policy; continue with --resume"):
        prepare(SMALL, whole)
    with pytest.raises(
        ValueError, match=r"lr is 0\.5, but the warm-up in .* was started with 0\.001; use that"
    ):
        prepare(changed(SMALL, {"lr": 0.5}), whole, resume=True)


@pytest.mark.slow
def test_conversations_of_a_file_are_learned(tmp_path):
    data = changed(
        SMALL, {"data": write(tmp_path / "talks.jsonl", *[TALK] * 6), "batch": 2, "steps": 20}
    )
    told = finish(run(prepare(data, tmp_path / "out")))
    assert told[-1].loss < 0.6 * told[0].loss
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_the_loss_is_on_the_assistants_tokens_alone_told_by_place():
    policy = load_policy(find("tiny"), lora=LoraOptions(4, 8.0))
    tuner, end = Tuner(policy, FINETUNING), next(iter(policy.end_ids))
    tokens, said = (
        [5, 6, end, 7, end, 8],
        [False, False, False, True, True, False],
    )  # a turn that ends, and ends before
    ours = tuner.loss([example(tokens, said), example(tokens * 3, [False] * 12 + said)], 8)
    true = []
    for ids, marks in ((tokens, said), (tokens * 3, [False] * 12 + said)):
        with torch.no_grad():
            logp = policy.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        true += [-logp[i - 1, ids[i]] for i, mark in enumerate(marks) if mark]
    assert len(true) == 4 and ours == pytest.approx(float(torch.stack(true).mean()), abs=1e-5)


def example(tokens, said):
    import numpy as np

    return Example(np.array(tokens, np.int32), np.array(said, np.bool_))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"size": "small"}, "size is 'small', which is for policies made from nothing"),
        ({"rank": 0}, "rank is 0; it must be at least 1"),
        ({"targets": ("gate",)}, "targets name 'gate', which is no layer of"),
        ({"policy": "./nowhere"}, "'nowhere' is not a folder"),
        ({"data": "nowhere.jsonl"}, "there is no file nowhere.jsonl"),
        ({"env": "turngym/Mth-v0"}, "unknown environment 'turngym/Mth-v0'"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(tmp_path, change, complaint):
    with pytest.raises((ValueError, OSError), match=complaint):
        prepare(changed(SMALL, change), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("talk", "complaint"),
    [
        (TALK[:2], "ends with `assistant`"),
        (TALK[2:], "ends with `assistant` and begins before it"),
        ([*TALK, TALK[2]], "two messages of the assistant follow each other; join them"),
    ],
)
def test_conversations_that_teach_nothing_are_named(tmp_path, talk, complaint):
    data = changed(SMALL, {"data": write(tmp_path / "talks.jsonl", TALK, talk)})
    with pytest.raises(ValueError, match=rf"talks.jsonl:2: .*{complaint}"):
        list(run(prepare(data, tmp_path / "out")))


def test_demonstrations_that_are_too_long_are_counted(tmp_path):
    data = changed(SMALL, {"data": write(tmp_path / "talks.jsonl", *[TALK] * 4), "context": 8})
    with pytest.raises(
        ValueError, match=r"0 of 4 demonstrations fit the context of 8 tokens \(the longest has"
    ):
        list(run(prepare(data, tmp_path / "out")))
