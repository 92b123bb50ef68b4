import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.policy import Policy, load_policy

SPEC = LoraOptions(rank=4, alpha=8)
IDS = torch.arange(24).reshape(2, 12)


@pytest.fixture(params=["qwen3_folder", "qwen2_folder"])
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def disturb(policy: Policy, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)


def test_a_fresh_adapter_changes_nothing_and_a_disturbed_one_does_until_it_is_off(folder):
    plain = logits(AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager"))
    policy = load_policy(folder, lora=SPEC)
    assert torch.equal(logits(policy.model), plain)
    disturb(policy)
    assert (logits(policy.model) - plain).abs().max() > 0.01
    with policy.reference():
        assert torch.equal(logits(policy.model), plain)
    assert (logits(policy.model) - plain).abs().max() > 0.01


def test_only_the_lora_matrices_of_every_linear_layer_and_the_head_can_learn(folder):
    policy = load_policy(folder, lora=SPEC)
    trainable = policy.trainable_parameters()
    assert list(trainable) == sorted(trainable)
    assert set(trainable) == {
        name for name, p in policy.model.named_parameters() if p.requires_grad
    }
    assert len(trainable) == 2 * (
        2 * 7 + 1
    )  # A and B of 7 layers in each of 2 blocks, and of the head
    assert sum("lm_head" in name for name in trainable) == 2


def test_a_tied_head_is_adapted_without_the_embedding(qwen2_folder):
    policy = load_policy(qwen2_folder, lora=SPEC)
    embedding = policy.base.get_input_embeddings()
    before = embedding(IDS).clone()
    head = policy.base.get_output_embeddings()
    assert head.base_layer.weight.data_ptr() == embedding.weight.data_ptr()
    disturb(policy)
    assert torch.equal(embedding(IDS), before)
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    a, b = (
        policy.trainable_parameters()[f"base_model.model.lm_head.lora_{m}.default.weight"]
        for m in "AB"
    )
    with torch.no_grad():
        torch.testing.assert_close(head(x), x @ embedding.weight.T + x @ a.T @ b.T * 2)


def test_the_lora_start_follows_from_the_seed_and_leaves_the_global_generator_alone(folder):
    state = torch.random.get_rng_state()
    one, same, other = (
        load_policy(folder, lora=SPEC, seed=seed).trainable_parameters() for seed in (3, 3, 4)
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one if "lora_A" in name)


def test_a_saved_adapter_comes_back_bit_equal_here_and_through_peft(folder, tmp_path):
    policy = load_policy(folder, lora=SPEC)
    disturb(policy)
    policy.save_adapter(tmp_path / "adapter")
    files = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}

    again = load_policy(folder, lora=SPEC, seed=9)
    again.load_adapter(tmp_path / "adapter")
    assert torch.equal(logits(again.model), logits(policy.model))

    base = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with pytest.warns(UserWarning) if base.config.tie_word_embeddings else nullcontext():
        theirs = PeftModel.from_pretrained(base, tmp_path / "adapter")
    assert torch.equal(logits(theirs.eval()), logits(policy.model))


def test_an_adapter_is_saved_to_the_same_bytes_and_holds_lora_matrices_only(qwen2_folder, tmp_path):
    for name in "ab":
        load_policy(qwen2_folder, lora=SPEC).save_adapter(tmp_path / name)
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert all("lora_" in name for name in load_file(tmp_path / "a" / "adapter_model.safetensors"))


@pytest.mark.parametrize(
    "other", [LoraOptions(2, 8), LoraOptions(4, 16), LoraOptions(4, 8, ("q_proj",)), None]
)
def test_an_adapter_of_another_spec_is_refused(qwen3_folder, tmp_path, other):
    load_policy(qwen3_folder, lora=SPEC).save_adapter(tmp_path)
    with pytest.raises(ValueError, match="load the policy"):
        load_policy(qwen3_folder, lora=other).load_adapter(tmp_path)


def test_an_adapter_folder_without_its_files_is_named(qwen3_folder, tmp_path):
    policy = load_policy(qwen3_folder, lora=SPEC)
    with pytest.raises(FileNotFoundError, match=r"adapter_config\.json"):
        policy.load_adapter(tmp_path)


def test_without_lora_there_is_nothing_to_train_or_save_and_the_reference_is_the_model(
    qwen3_folder, tmp_path
):
    policy = load_policy(qwen3_folder)
    assert policy.trainable_parameters() == {}
    with policy.reference():
        assert torch.equal(logits(policy.model), logits(policy.base))
    with pytest.raises(ValueError, match="no LoRA weights"):
        policy.save_adapter(tmp_path)


def test_a_policy_knows_its_context_vocabulary_tokenizer_and_turn_ends(qwen3_folder, qwen2_folder):
    one, two = load_policy(qwen3_folder), load_policy(qwen2_folder)
    assert (one.max_context, one.vocabulary, two.vocabulary) == (512, 300, 293)
    assert one.tokenizer.decode(one.tokenizer.encode("a the </b>").ids) == "a the </b>"
    im_end = one.tokenizer.token_to_id("<|im_end|>")
    assert one.end_ids == {258, im_end}  # the generation config's and the tokenizer's
    assert two.end_ids == {im_end}
    assert one.version == 0


def test_bfloat16_weights_carry_float32_lora(qwen3_folder):
    policy = load_policy(qwen3_folder, dtype="bfloat16", lora=SPEC)
    assert policy.base.get_input_embeddings().weight.dtype == torch.bfloat16
    assert {p.dtype for p in policy.trainable_parameters().values()} == {torch.float32}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lora_weights_have_the_type_asked_for_and_only_fit_that(qwen3_folder, tmp_path, dtype):
    policy = load_policy(qwen3_folder, dtype=dtype, lora=replace(SPEC, lora_dtype="bfloat16"))
    assert {p.dtype for p in policy.trainable_parameters().values()} == {torch.bfloat16}
    assert policy.base.get_input_embeddings().weight.dtype == getattr(torch, dtype)
    disturb(policy)
    policy.save_adapter(tmp_path)
    again = load_policy(
        qwen3_folder, dtype=dtype, lora=replace(SPEC, lora_dtype="bfloat16"), seed=9
    )
    again.load_adapter(tmp_path)
    assert torch.equal(logits(again.model), logits(policy.model))
    assert logits(policy.model).dtype == getattr(torch, dtype)
    with pytest.raises(ValueError, match="from the same model with the same LoraOptions"):
        load_policy(qwen3_folder, dtype=dtype, lora=SPEC).load_adapter(tmp_path)


def test_how_the_learner_computes_is_off_unless_asked_for(qwen3_folder):
    plain, asked = (
        load_policy(qwen3_folder),
        load_policy(qwen3_folder, checkpointing=True, compile=True),
    )
    assert (plain.checkpointing, plain.compile, asked.checkpointing, asked.compile) == (
        False,
        False,
        True,
        True,
    )


def test_weights_are_read_straight_to_the_device_in_their_type(qwen3_folder, monkeypatch):
    asked = {}
    read = AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        AutoModelForCausalLM, "from_pretrained", lambda *a, **kw: asked.update(kw) or read(*a, **kw)
    )
    policy = load_policy(qwen3_folder, dtype="bfloat16")
    assert asked["dtype"] == torch.bfloat16 and asked["device_map"] == {"": torch.device("cpu")}
    assert not any(hasattr(module, "_hf_hook") for module in policy.base.modules())


def test_threads_fixes_the_thread_count(qwen3_folder):
    before = torch.get_num_threads()
    try:
        load_policy(qwen3_folder, threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"dtype": "float8"}, "dtype is 'float8'"),
        ({"lora": LoraOptions(lora_dtype="float16")}, "lora_dtype is 'float16'"),
        ({"threads": 0}, "threads is 0"),
        ({"lora": LoraOptions(targets=("q_proj", "qqq"))}, "targets name 'qqq'"),
        ({"lora": LoraOptions(rank=0)}, "rank is 0"),
        ({"lora": LoraOptions(alpha=0.0)}, "alpha is 0.0"),
    ],
)
def test_a_bad_option_is_named_with_its_value(qwen3_folder, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_policy(qwen3_folder, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_a_device_this_machine_lacks_is_refused(qwen3_folder):
    with pytest.raises(ValueError, match="device 'cuda' is not usable"):
        load_policy(qwen3_folder, device="cuda")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_is_refused_by_name(qwen3_folder, tmp_path, missing):
    copy = Path(shutil.copytree(qwen3_folder, tmp_path / "copy"))
    (copy / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing.split(".")[-1]):
        load_policy(copy)


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load_policy(tmp_path / "nowhere")


def test_a_name_the_hub_does_not_give_is_refused(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        FileNotFoundError, match="'no-such/model' is neither a folder here nor a hub model"
    ):
        load_policy("no-such/model")


def test_a_hub_name_is_fetched_to_a_folder_without_pickles(monkeypatch, qwen3_folder):
    asked = {}
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda n, **kw: asked.update(kw, n=n) or str(qwen3_folder),
    )
    assert load_policy("org/model").folder == qwen3_folder
    assert asked["n"] == "org/model"
    assert not any(pattern.endswith((".bin", ".pt", ".py")) for pattern in asked["allow_patterns"])


def test_weights_that_are_not_all_there_are_refused(qwen3_folder, tmp_path):
    copy = Path(shutil.copytree(qwen3_folder, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    config["num_hidden_layers"] = 3
    config["layer_types"] = ["full_attention"] * 3
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="lacks 11 of the model's weights"):
        load_policy(copy)


def test_a_policy_needs_a_token_that_ends_turns(qwen2_folder, tmp_path):
    copy = Path(shutil.copytree(qwen2_folder, tmp_path / "copy"))
    text = (copy / "tokenizer.json").read_text().replace("<|im_end|>", "<|other|>")
    (copy / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match="names no token that ends a turn"):
        load_policy(copy)
