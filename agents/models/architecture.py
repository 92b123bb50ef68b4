"""Which models turngym computes, by what their `config.json` says: no weights are read, no torch is imported.

Two things of turngym compute a model. The torch engine draws from it, through the model's own code and
a cache that it fills row by row. The learner replaces its attention, so that the paths of a tree share
their tokens. Neither can compute all models that transformers loads. `FAMILIES` says what was tried;
the settings of a config, such as a sliding window, decide within a family. A family that nobody tried
is compared with the model's own forward pass when it is loaded.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .folder import CONFIG, read_json

FULL, SLIDING = (
    "full_attention",
    "sliding_attention",
)  # the types of layers that the torch engine has masks for
ALTERNATIVES = "such as Qwen3, Qwen2.5, Llama or SmolLM"
TORCH_ENGINE, LEARNER = "the torch engine", "the learner"
SAME = 0.1  # of what another context changes; rounding to bfloat16 changes less, and another attention more
SERVED = "--model NAME --base-url URL"
_PARTS = ("vision_config", "audio_config", "text_config")  # of models that read more than text
_CAUSAL = (
    "ForCausalLM",
    "ForConditionalGeneration",
)  # ends of the names of classes that predict a next token


class UnsupportedModel(ValueError):
    """A model that turngym does not compute."""


@dataclass(frozen=True)
class Family:
    """Models of one `model_type`; the reasons are "" for what turngym computes.

    Attributes:
        model_type: As transformers names the family in `config.json`.
        name: As the field names it.
        unsampled: Why the torch engine does not draw from them.
        untrained: Why the learner does not compute them.
        sliding_window: Tokens of the window in a config that does not name one; None for no window.
        logit_factor: Setting that multiplies the logits.
        logit_divisor: Setting that divides the logits.
    """

    model_type: str
    name: str
    unsampled: str = ""
    untrained: str = ""
    sliding_window: int | None = None
    logit_factor: str = ""
    logit_divisor: str = ""


@dataclass(frozen=True)
class Support:
    """Why a model is not loaded, drawn from or trained; "" for what works.

    Attributes:
        model: The family, as a message names it.
        unloaded: Why no engine can have it as a policy.
        unsampled: Why the torch engine does not draw from it.
        untrained: Why the learner does not compute it.
        sliding_window: Tokens that its layers look back, if only that keeps it from being trained.
        names_context: Whether its config says how many positions it knows, as an engine has to be told.
    """

    model: str
    unloaded: str = ""
    unsampled: str = ""
    untrained: str = ""
    sliding_window: int | None = None
    names_context: bool = True

    def refusal(self, folder: Path) -> str:
        """Return one sentence for all commands: the model, why it is refused, and what to do instead."""
        if self.unloaded:
            return (
                f"{folder} is {self.model}, which turngym cannot load as a policy: {self.unloaded}; use a text model "
                f"{ALTERNATIVES}; to evaluate this one, serve it: {SERVED}"
            )
        if self.unsampled:
            engine = "add --engine vllm or " if self.names_context else ""
            return (
                f"{folder} is {self.model}, which turngym neither trains nor evaluates in its torch engine: "
                f"{self.unsampled}; to evaluate it, {engine}serve it: {SERVED}; to train, use a model {ALTERNATIVES}"
            )
        fix = f"train a model {ALTERNATIVES}"
        if self.sliding_window:
            shorten = f"set max_position_embeddings to {self.sliding_window} in its config.json"
            fix = f"if no conversation gets longer, {shorten}, or {fix}"
        return f"{folder} is {self.model}, which turngym evaluates but does not train: {self.untrained}; {fix}"


def support_of(config: Mapping[str, Any]) -> Support:
    """Return what turngym does with a model, as far as its config says.

    Args:
        config: What `config.json` holds, or `to_dict` of a config of transformers.
    """
    model_type = str(config.get("model_type") or "")
    family = FAMILIES.get(model_type, Family(model_type, "a model"))
    model = f"{family.name} (model_type {model_type!r})"
    unloaded = _why_not_loaded(config)
    if unloaded:
        return Support(model, unloaded, unloaded, unloaded)
    unsampled = family.unsampled or _why_not_sampled(config)
    sliding_window = sliding_window_of(config)
    untrained = unsampled or family.untrained or _why_not_trained(config, sliding_window)
    fits_a_window = not family.untrained and not _why_not_trained(config, None)
    shorter = sliding_window if fits_a_window else None
    names_context = "max_position_embeddings" in config
    return Support(model, "", unsampled, untrained, shorter, names_context)


def check_architecture(folder: Path, *, trains: bool, engine: str = "torch") -> None:
    """Refuse a model that turngym does not compute, before its weights are read.

    Args:
        folder: The model's folder.
        trains: Whether it is to be trained, and not only evaluated.
        engine: What draws from it, `torch` or `vllm`.

    Raises:
        UnsupportedModel: The model, why it is refused, and what to do instead.
    """
    config = read_json(folder / CONFIG)
    support = support_of(config)
    model_type = str(config.get("model_type"))
    if model_type not in FAMILIES and not support.unloaded:
        support = _support_of_an_untried_family(support, model_type)
    needs_sampling = engine == "torch" or not support.names_context
    if support.unloaded or (needs_sampling and support.unsampled) or (trains and support.untrained):
        raise UnsupportedModel(support.refusal(folder))


def check_sampled(config: Mapping[str, Any], folder: Path) -> None:
    """Raise UnsupportedModel if the torch engine does not draw from a model."""
    support = support_of(config)
    if support.unsampled:
        raise UnsupportedModel(support.refusal(folder))


def check_trained(config: Mapping[str, Any], folder: Path) -> None:
    """Raise UnsupportedModel if the learner does not compute a model."""
    support = support_of(config)
    if support.untrained:
        raise UnsupportedModel(support.refusal(folder))


def check_untried(
    config: Mapping[str, Any], folder: Path, compute: str, distance: Callable[[], float]
) -> None:
    """Refuse a model of a family that nobody tried, if its numbers are not those of its own forward pass.

    Args:
        config: What its config says.
        folder: The model's folder.
        compute: What computes it, `the torch engine` or `the learner`.
        distance: Measures how far off the numbers are; 1 is what another context would change.

    Raises:
        UnsupportedModel: The numbers differ, or cannot be computed.
    """
    if config.get("model_type") in FAMILIES:
        return
    support = support_of(config)
    try:
        measured = distance()
    except Exception as error:  # a class that nobody tried may fail in any way
        what = " ".join(str(error).split())
        reason = f"{compute} cannot compute it ({type(error).__name__}: {what:.120})"
    else:
        if measured < SAME:
            return
        reason = f"{compute} does not compute what the model's own forward pass computes"
    unsampled = reason if compute == TORCH_ENGINE else ""
    raise UnsupportedModel(replace(support, unsampled=unsampled, untrained=reason).refusal(folder))


def sliding_window_of(config: Mapping[str, Any]) -> int | None:
    """Return the tokens that some layers look back; None if all layers see the whole context."""
    model_type = config.get("model_type")
    if not config.get("use_sliding_window", model_type not in _WINDOW_IS_A_SWITCH):
        return None
    layer_types = config.get("layer_types")
    if layer_types is not None and SLIDING not in layer_types:
        return None
    family = FAMILIES.get(str(model_type))
    sliding_window = config.get("sliding_window", family.sliding_window if family else None)
    context = config.get("max_position_embeddings")
    if not isinstance(sliding_window, int) or (
        isinstance(context, int) and sliding_window >= context
    ):
        return None
    return sliding_window


def logit_scale(config: Mapping[str, Any]) -> float:
    """Return the factor between what a model's head computes and its logits."""
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        return 1.0
    if family.logit_factor:
        return float(config[family.logit_factor])
    if family.logit_divisor:
        return 1 / float(config[family.logit_divisor])
    return 1.0


def _why_not_loaded(config: Mapping[str, Any]) -> str:
    if not config.get("model_type"):
        return "its config.json names no model_type"
    if config.get("is_encoder_decoder"):
        return "it has an encoder and a decoder"
    parts = [part for part in _PARTS if config.get(part)]
    if parts:
        return f"it reads more than text ({', '.join(parts)})"
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list):
        return f"architectures is {architectures!r:.80} in its config.json, and must be a list"
    for architecture in map(str, architectures):
        if "For" in architecture and not architecture.endswith(_CAUSAL):
            return f"its weights are of a {architecture}, which predicts no next token"
    return ""


def _why_not_sampled(config: Mapping[str, Any]) -> str:
    layer_types = config.get("layer_types") or []
    other_types = sorted({str(kind) for kind in layer_types} - {FULL, SLIDING})
    if other_types:
        return f"it has layers of the type {', '.join(other_types)}"
    if config.get("alibi"):
        return "its attention has a bias by distance (ALiBi)"
    for rope_type in _rope_types(config):
        if rope_type in ("dynamic", "longrope", "su"):
            return f"its rope_type is {rope_type!r}, so that a row's numbers depend on the longest row of a batch"
    return ""


def _why_not_trained(config: Mapping[str, Any], sliding_window: int | None) -> str:
    if config.get("attn_logit_softcapping"):
        return "its attention has soft caps"
    if config.get("final_logit_softcapping"):
        return "its logits have a soft cap"
    if sliding_window:
        return f"its attention has a sliding window of {sliding_window} tokens"
    return ""


def _rope_types(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of position embeddings that a config names, also those by type of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = config.get(name)
        if not isinstance(rope, Mapping):
            continue
        for settings in (rope, *rope.values()):
            if isinstance(settings, Mapping):
                yield str(settings.get("rope_type", settings.get("type", "default")))


def _support_of_an_untried_family(support: Support, model_type: str) -> Support:
    """Return the support of a family that is not in the table: transformers has to know it."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return support
    unloaded = f"transformers {transformers.__version__} has no language model of this type"
    return Support(support.model, unloaded, unloaded, unloaded)


_STATE = "its layers keep a state in place of keys and values"
_INDEXED = "its layers choose the keys that they attend to"
_ALIBI = "its attention has a bias by distance (ALiBi)"
_OWN_ATTENTION = (
    "its attention is not called through the interface of transformers that the learner replaces"
)
_SOFT_CAPS = "its attention and its logits have soft caps"
_SINKS = "its attention has sinks"
_EXPERT_TARGETS = "PEFT puts LoRA on the parameters of its experts, and cannot load it again"
_CONV1D = "its layers are Conv1D, which LoRA is not put on"
_WINDOW_IS_A_SWITCH = (
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "smollm3",
)  # `use_sliding_window`, off by default

FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", "Llama or SmolLM"),
        Family("qwen2", "Qwen2 or Qwen2.5"),
        Family("qwen3", "Qwen3"),
        Family("qwen2_moe", "Qwen2-MoE"),
        Family("qwen3_moe", "Qwen3-MoE"),
        Family("mistral", "Mistral", sliding_window=4096),
        Family("ministral3", "Ministral 3"),
        Family("mixtral", "Mixtral"),
        Family("smollm3", "SmolLM3"),
        Family("olmo", "OLMo"),
        Family("olmo2", "OLMo 2"),
        Family("olmoe", "OLMoE"),
        Family("flex_olmo", "FlexOlmo"),
        Family("phi", "Phi-1 or Phi-2"),
        Family("phi3", "Phi-3 or Phi-4"),
        Family("phimoe", "Phi-3.5-MoE", untrained=_EXPERT_TARGETS),
        Family("gemma", "Gemma 1"),
        Family("granite", "Granite", logit_divisor="logits_scaling"),
        Family("granitemoe", "Granite-MoE", logit_divisor="logits_scaling"),
        Family("cohere", "Cohere Command R", logit_factor="logit_scale"),
        Family("glm", "GLM-4-9B"),
        Family("glm4", "GLM-4-0414"),
        Family("glm4_moe", "GLM-4.5 or GLM-4.6", untrained=_EXPERT_TARGETS),
        Family("deepseek_v2", "DeepSeek V2", untrained=_EXPERT_TARGETS),
        Family("deepseek_v3", "DeepSeek V3 or R1", untrained=_EXPERT_TARGETS),
        Family("ernie4_5", "ERNIE 4.5"),
        Family("ernie4_5_moe", "ERNIE 4.5 MoE", untrained=_EXPERT_TARGETS),
        Family("minimax_m2", "MiniMax M2"),
        Family("apertus", "Apertus"),
        Family("arcee", "Arcee AFM"),
        Family("starcoder2", "StarCoder2"),
        Family("gpt_bigcode", "StarCoder"),
        Family("gpt_neox", "GPT-NeoX or Pythia"),
        Family("opt", "OPT"),
        Family("gemma3_text", "Gemma 3 (text)", sliding_window=4096),
        Family("olmo3", "OLMo 3", sliding_window=4096),
        Family("exaone4", "EXAONE 4", sliding_window=4096),
        Family("ministral", "Ministral", sliding_window=4096),
        Family(
            "cohere2", "Cohere Command R7B or A", sliding_window=4096, logit_factor="logit_scale"
        ),
        Family("gemma2", "Gemma 2", untrained=_SOFT_CAPS),
        Family("gpt_oss", "gpt-oss", untrained=_SINKS),
        Family("gpt2", "GPT-2", untrained=_CONV1D),
        Family("gptj", "GPT-J", untrained=_OWN_ATTENTION),
        Family("falcon", "Falcon", untrained=_OWN_ATTENTION),
        Family("stablelm", "StableLM", untrained=_OWN_ATTENTION),
        Family("nemotron", "Nemotron", untrained=_OWN_ATTENTION),
        Family("llama4_text", "Llama 4 (text)", "its layers attend within chunks"),
        Family("bloom", "BLOOM", _ALIBI),
        Family("mpt", "MPT", _ALIBI),
        Family("mamba", "Mamba", _STATE),
        Family("mamba2", "Mamba 2", _STATE),
        Family("falcon_mamba", "Falcon Mamba", _STATE),
        Family("rwkv", "RWKV", _STATE),
        Family("recurrent_gemma", "RecurrentGemma", _STATE),
        Family("jamba", "Jamba", _STATE),
        Family("bamba", "Bamba", _STATE),
        Family("zamba2", "Zamba 2", _STATE),
        Family("falcon_h1", "Falcon H1", _STATE),
        Family("nemotron_h", "Nemotron H", _STATE),
        Family("granitemoehybrid", "Granite 4", _STATE),
        Family("lfm2", "LFM2", _STATE),
        Family("qwen3_next", "Qwen3-Next", _STATE),
        Family("qwen3_5_text", "Qwen3.5 (text)", _STATE),
        Family("kimi_linear", "Kimi Linear", _STATE),
        Family("deepseek_v32", "DeepSeek V3.2", _INDEXED),
        Family("glm_moe_dsa", "GLM-5", _INDEXED),
    )
}
