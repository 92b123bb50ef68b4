"""The engine's own forward passes equal those of transformers, on every architecture that it computes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from turngym.agents.engines.torch.decoder import Decoder, Weights, unusual
from turngym.agents.engines.torch.runner import Fallback, Runner
from turngym.agents.models.architecture import UnsupportedModel, check_sampled

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
ROOM = {"sliding_window": 24, "use_sliding_window": True, "max_window_layers": 1}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=4)),
    "llama, grouped, tied, biases": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            attention_bias=True,
            mlp_bias=True,
        )
    ),
    "llama, one key head, llama3 rope": lambda: LlamaForCausalLM(
        LlamaConfig(**SIZES, num_key_value_heads=1, rope_parameters=LLAMA3)
    ),
    "llama, linear rope": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
        )
    ),
    "llama, yarn rope": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=YARN)),
    "mistral, window": lambda: MistralForCausalLM(
        MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=24)
    ),
    "mistral, no window": lambda: MistralForCausalLM(
        MistralConfig(**SIZES, num_key_value_heads=4, head_dim=32, sliding_window=None)
    ),
    "qwen2": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True)
    ),
    "qwen2, a window in some layers": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_key_value_heads=2, **ROOM)
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=32)),
    "qwen3, biases": lambda: Qwen3ForCausalLM(
        Qwen3Config(**SIZES, num_key_value_heads=4, head_dim=16, attention_bias=True)
    ),
}


def made(name: str, rank: int = 0) -> Any:
    """A model with large random numbers, also in norms and biases; with LoRA weights on all layers for a `rank`."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    model.config._attn_implementation = "eager"
    if rank:
        linear = {
            part.rsplit(".", 1)[-1]
            for part, module in model.named_modules()
            if type(module) is torch.nn.Linear
        }
        config = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules=sorted(linear), task_type="CAUSAL_LM"
        )
        get_peft_model(model, config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model.requires_grad_(False)


def logits_of(model: Any, tokens: np.ndarray) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.from_numpy(tokens)[None]).logits[0]
    return logits


@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings")
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_equal_those_of_transformers(name, rank):
    model = made(name, rank)
    tokens = np.random.default_rng(0).integers(0, 300, (3, 90))
    runner = Decoder(Weights(model), torch.device("cpu"))
    feed(runner, tokens)
    rows = [0, 1, 2, *[2] * (-3 % runner.rows)]
    slots, lengths = [(0, 1, 3)[row] for row in rows], [(80, 70, 80)[row] for row in rows]
    want = [logits_of(model, row) for row in tokens]
    for at in range(10):
        fed = [int(tokens[row][length + at]) for row, length in zip(rows, lengths)]
        found = runner.decode(slots, [length + at for length in lengths], fed)
        for row in range(3):
            torch.testing.assert_close(
                found[row].log_softmax(-1),
                want[row][lengths[row] + at].log_softmax(-1),
                rtol=0,
                atol=1e-4,
            )


def feed(runner: Runner, tokens: np.ndarray) -> None:
    """Feed 80, 70 and 80 tokens to slots 0, 1 and 3, and 20 to slot 2, in chunks of several shapes at a time."""
    runner.prefill([0, 5], [0, 0], [tokens[0, :40], tokens[1, :35]])
    runner.prefill([2, 5, 3], [0, 35, 0], [tokens[1, :20], tokens[1, 35:70], tokens[2, :80]])
    runner.copy(5, [1, 6], 70)
    runner.prefill([0], [40], [tokens[0, 40:80]])


class Copying(Decoder):
    """Copies all of a prefix."""

    def copy(self, source: int, targets: Sequence[int], length: int, start: int = 0) -> None:
        Runner.copy(self, source, targets, length)


@pytest.mark.parametrize("seed", range(4))
def test_what_forks_share_has_the_same_bits_as_copies(seed):
    weights, rng = Weights(made("llama")), np.random.default_rng(seed)
    sharing, copying = (kind(weights, torch.device("cpu")) for kind in (Decoder, Copying))
    lengths: dict[int, int] = {}
    for _ in range(120):
        free, what = (
            sorted({*range(8)} - lengths.keys()),
            rng.choice(["begin", "fork", "feed", "draw", "draw", "end"]),
        )
        live = [int(slot) for slot in rng.permutation(sorted(lengths))[:2]]
        if what == "begin" and free:
            live = [free[0]]
            lengths[free[0]] = 0
        elif what == "fork" and free and live:
            length, targets = int(rng.integers(1, lengths[live[0]] + 1)), free[:2]
            lengths.update(dict.fromkeys(targets, length))
            for runner in (sharing, copying):
                runner.copy(live[0], targets, length)
            continue
        elif what == "end" and live:
            del lengths[live[0]]
            sharing.copy(live[0], [], 0)
            continue
        if what in ("begin", "feed"):
            tokens = [rng.integers(0, 300, int(rng.integers(1, 150))) for _ in live]
            starts = [lengths[slot] for slot in live]
            live = [
                slot for slot, start, fed in zip(live, starts, tokens) if start + len(fed) < 500
            ]
            for runner in (sharing, copying) if live else ():
                runner.prefill(live, [lengths[slot] for slot in live], tokens[: len(live)])
            lengths.update({slot: lengths[slot] + len(fed) for slot, fed in zip(live, tokens)})
        elif live:
            fed = (live * 2)[:2] * (sharing.rows // 2)
            given = fed, [lengths[slot] for slot in fed], [slot + 7 for slot in fed]
            assert torch.equal(sharing.decode(*given), copying.decode(*given))
            lengths.update({slot: lengths[slot] + 1 for slot in live})


def test_a_fork_has_a_copy_of_the_block_in_which_it_differs_alone():
    runner = Decoder(Weights(made("llama")), torch.device("cpu"))
    runner.prefill([0], [0], [np.arange(150)])
    runner.copy(0, [1], 140)
    (keys, values), *_ = runner._cache
    whole = 128 if runner.weights.packed else 0
    assert not keys[1, ..., :whole].any() and not values[1, :, :whole].any()
    assert torch.equal(keys[1, ..., whole:140], keys[0, ..., whole:140])
    runner.prefill(
        [0], [0], [np.arange(150)[::-1]]
    )  # slot 0 is written anew, and the fork keeps what it read there
    assert keys[1, ..., :140].any() and not torch.equal(keys[1, ..., :128], keys[0, ..., :128])


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_the_fallback_computes_the_same(name):
    model = made(name)
    tokens = np.random.default_rng(1).integers(0, 300, (3, 90))
    own, fallback = (
        Decoder(Weights(model), torch.device("cpu")),
        Fallback(model, torch.device("cpu"), 512),
    )
    slots, lengths = [0, 6, 3, 2] * 2, [80, 70, 80, 20] * 2
    found = []
    for runner in (own, fallback):
        feed(runner, tokens)
        found.append(runner.decode(slots, lengths, [1, 2, 3, 4] * 2)[:4].log_softmax(-1))
    torch.testing.assert_close(*found, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings")
def test_other_weights_are_taken_and_the_models_own_stay_as_they_are():
    model = made("llama, grouped, tied, biases", rank=4)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    runner = Decoder(Weights(model), torch.device("cpu"))
    runner.prefill([0], [0], [np.arange(9)])
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(3)
    runner.refresh()
    runner.forget()
    tokens = np.arange(40, 60)
    runner.prefill([0], [0], [tokens[:19]])
    found = runner.decode([0] * runner.rows, [19] * runner.rows, [59] * runner.rows)[0]
    torch.testing.assert_close(
        found.log_softmax(-1), logits_of(model, tokens)[-1].log_softmax(-1), rtol=0, atol=1e-4
    )


def test_half_precision_stays_near():
    model = made("qwen3").to(torch.bfloat16)
    runner = Decoder(Weights(model), torch.device("cpu"))
    tokens = np.random.default_rng(1).integers(0, 300, 50)
    runner.prefill([0], [0], [tokens[:49]])
    found = runner.decode([0] * 8, [49] * 8, [int(tokens[49])] * 8)[0]
    assert found.dtype == torch.float32
    want = logits_of(model.float(), tokens)[-1]
    assert (found.log_softmax(-1) - want.log_softmax(-1)).abs().max() < 0.3


def test_what_it_does_not_compute_is_named():
    torch.manual_seed(0)
    sizes = {**SIZES, "num_key_value_heads": 4, "head_dim": 16}
    assert unusual(GemmaForCausalLM(GemmaConfig(**sizes))) == "model_type gemma"
    assert unusual(LlamaForCausalLM(LlamaConfig(**SIZES, hidden_act="gelu"))) == "hidden_act gelu"
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=dynamic))
    assert "dynamic" in unusual(model)
    with pytest.raises(ValueError, match=r"the decoder does not compute rope .*dynamic"):
        Weights(model)
    with pytest.raises(
        UnsupportedModel, match="its rope_type is 'dynamic', so that a row's numbers depend on"
    ):
        check_sampled(model.config.to_dict(), Path("model"))
