"""Random models of two layers of the classes of transformers, and the folders of such models."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from turngym.agents.models.resolve import TINY

VOCABULARY, CONTEXT = 640, 1024
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {  # attention through a compressed cache
    "num_key_value_heads": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
OF_ITS_OWN: dict[str, dict[str, Any]] = {
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {**EXPERTS, "head_dim": 8},
    "mistral": {"sliding_window": None},
    "ministral3": {"head_dim": 8},
    "mixtral": {"num_local_experts": 4},
    "smollm3": {"layer_types": None},
    "olmoe": EXPERTS,
    "flex_olmo": EXPERTS,
    "phimoe": {"num_local_experts": 4},
    "gemma": {"head_dim": 8},
    "granite": {"logits_scaling": 8.0},
    "granitemoe": {"logits_scaling": 6.0, "num_local_experts": 4},
    "glm": {"head_dim": 8},
    "glm4": {"head_dim": 8},
    "glm4_moe": {**EXPERTS, "n_routed_experts": 4, "head_dim": 8, "n_group": 1, "topk_group": 1},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "ernie4_5": {"head_dim": 8},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32},
    "minimax_m2": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
    "arcee": {"head_dim": 8},
    "gpt_bigcode": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 64, "n_positions": CONTEXT},
    "helium": {"head_dim": 8},
    "codegen": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "rotary_dim": 8},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "gemma2": {"head_dim": 8, "sliding_window": 32},
    "gemma3_text": {"head_dim": 8, "sliding_window": 32},
    "olmo3": {"sliding_window": 32},
    "exaone4": {"sliding_window": 32},
    "ministral": {"head_dim": 8, "sliding_window": 32},
    "cohere2": {"sliding_window": 32},
    "gpt_oss": {"num_local_experts": 4, "head_dim": 8, "sliding_window": 32},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "rotary_dim": 8},
}
# Their classes rename the sizes, and take no other names.
_RENAMED = ("gpt2", "gptj", "gpt_bigcode", "codegen")
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def small_config(model_type: str, **settings: Any) -> Any:
    """Return the config of a small model; `settings` replace those of its family."""
    sizes = {"vocab_size": VOCABULARY} if model_type in _RENAMED else SIZES
    return AutoConfig.for_model(
        model_type, **{**sizes, **OF_ITS_OWN.get(model_type, {}), **settings}
    )


def small_model(config: Any) -> Any:
    """Return a random float32 model in which attention decides the next token."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.float32
        ).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(0, 0.1)
    return model


def save_tokenizer(folder: Path) -> None:
    shutil.copy(TINY / "tokenizer.json", folder)
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def save_model(model: Any, folder: Path) -> Path:
    """Write a model with the tokenizer of the tiny policy."""
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_config(config: dict[str, Any], folder: Path) -> Path:
    """Write a folder that has all files of a policy, and weights that no model has."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    largest = torch.zeros(1, 1 << 18, dtype=torch.int8)  # no size of the config is larger
    weights = {f"layers.{number}.weight": largest for number in range(64)}
    save_file(
        {name: weight.clone() for name, weight in list(weights.items())[:2]},
        folder / "model.safetensors",
    )
    save_tokenizer(folder)
    return folder
