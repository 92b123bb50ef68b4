"""Which models are refused, by their config only, and with one sentence for all commands."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turngym import __main__ as cli
from turngym.agents.cli.settings import EngineChoice, LoraOptions, MachineOptions, WarmupOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.models.architecture import (
    FAMILIES,
    UnsupportedModel,
    check_architecture,
    logit_scale,
    sliding_window_of,
    support_of,
)
from turngym.agents.warmup import finetune
from turngym.tests.support.small_models import save_config
from turngym.training.runs import run
from turngym.training.runs.config import TrainConfig
from turngym.training.runs.dry_run import dry_run

ENV = "turngym/Math-v0"
PLAIN = {"vocab_size": 640, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
PLAIN |= {"max_position_embeddings": 1024, "eos_token_id": 1}
LLAMA = {**PLAIN, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
UNTRAINED = {
    "mistral, window": (
        {"model_type": "mistral", "sliding_window": 512},
        "a sliding window of 512 tokens",
    ),
    "mistral, window unnamed": (
        {"model_type": "mistral", "max_position_embeddings": 8192},
        "a sliding window of 4096 tokens; if no conversation gets longer, set max_position_embeddings to 4096",
    ),
    "gemma 3": (
        {
            "model_type": "gemma3_text",
            "sliding_window": 512,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        "a sliding window of 512 tokens",
    ),
    "qwen2, window on": (
        {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64},
        "a sliding window of 64 tokens",
    ),
    "starcoder2, window": (
        {"model_type": "starcoder2", "sliding_window": 64},
        "a sliding window of 64 tokens",
    ),
    "gemma 2": ({"model_type": "gemma2"}, "soft caps; train a model such as"),
    "llama, soft cap": (
        {"model_type": "llama", "final_logit_softcapping": 30.0},
        "its logits have a soft cap",
    ),
    "gpt-oss": ({"model_type": "gpt_oss"}, "its attention has sinks"),
    "gpt-2": ({"model_type": "gpt2"}, "its layers are Conv1D"),
    "falcon": ({"model_type": "falcon"}, "its attention is not called through the interface"),
}
UNSAMPLED = {
    "mamba": (
        {"model_type": "mamba"},
        "keep a state in place of keys and values; to evaluate it, add --engine vllm",
    ),
    "jamba": ({"model_type": "jamba"}, "keep a state in place of keys and values"),
    "llama 4": ({"model_type": "llama4_text"}, "attend within chunks"),
    "other layers": (
        {"model_type": "llama", "layer_types": ["full_attention", "linear_attention"]},
        "it has layers of the type linear_attention",
    ),
    "falcon, alibi": ({"model_type": "falcon", "alibi": True}, "a bias by distance (ALiBi)"),
    "dynamic rope": (
        {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "its rope_type is 'dynamic'",
    ),
    "long rope": (
        {"model_type": "phi3", "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0}},
        "its rope_type is 'longrope'",
    ),
}
UNLOADED = {
    "encoder and decoder": (
        {
            "model_type": "t5",
            "is_encoder_decoder": True,
            "architectures": ["T5ForConditionalGeneration"],
        },
        "it has an encoder and a decoder",
    ),
    "pictures": (
        {"model_type": "qwen2_5_vl", "vision_config": {"depth": 2}},
        "reads more than text (vision_config)",
    ),
    "classifier": (
        {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]},
        "its weights are of a LlamaForSequenceClassification, which predicts no next token",
    ),
    "no type": ({"model_type": None}, "its config.json names no model_type"),
    "architectures in a string": (
        {"model_type": "llama", "architectures": "LlamaForCausalLM"},
        "must be a list",
    ),
}
REFUSED = {**UNTRAINED, **UNSAMPLED, **UNLOADED}


@pytest.fixture
def folder_of(tmp_path: Path) -> Any:
    return lambda settings: save_config({**PLAIN, **settings}, tmp_path / "model")


def sentence_of(action: Any) -> str:
    with pytest.raises(UnsupportedModel) as refused:
        action()
    return str(refused.value)


@pytest.mark.parametrize("name", REFUSED)
def test_all_commands_refuse_a_model_with_one_sentence(folder_of, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    settings, reason = REFUSED[name]
    folder = str(folder_of(settings))
    config = TrainConfig(ENV, policy=folder, out=str(tmp_path / "run"))
    warmup = finetune.Finetune(
        folder, ENV, {}, "", WarmupOptions(), LoraOptions(), MachineOptions()
    )
    sentence = sentence_of(lambda: run.prepare(config))
    assert reason in sentence and sentence.startswith(folder) and "\n" not in sentence
    assert sentence_of(lambda: finetune.prepare(warmup, tmp_path / "warm")) == sentence
    (failed,) = (line for line in dry_run(config, "", ()).lines if line.passed is False)
    assert (failed.what, failed.about) == ("model", sentence)
    if name in UNTRAINED:
        assert evaluate.prepare(ENV, {}, folder, episodes=1).source is not None
    else:
        assert (
            sentence_of(
                lambda: evaluate.prepare(ENV, {}, folder, episodes=1, out=tmp_path / "eval")
            )
            == sentence
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize("name", UNSAMPLED)
def test_vllm_evaluates_what_the_torch_engine_does_not(folder_of, name):
    folder, server = folder_of(UNSAMPLED[name][0]), "http://127.0.0.1:1"
    choice = EngineChoice("vllm", (server,))
    assert evaluate.prepare(ENV, {}, str(folder), episodes=1, choice=choice).choice.engine == "vllm"
    with pytest.raises(UnsupportedModel):
        check_architecture(folder, trains=True, engine="vllm")


def test_a_model_without_a_number_of_positions_has_no_engine(folder_of):
    folder = folder_of({"model_type": "mamba"})
    config = json.loads((folder / "config.json").read_text())
    del config["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        UnsupportedModel, match="to evaluate it, serve it: --model NAME --base-url URL"
    ):
        check_architecture(folder, trains=False, engine="vllm")


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "llama"},
        {"model_type": "llama", "architectures": None},
        {
            "model_type": "qwen2",
            "use_sliding_window": False,
            "sliding_window": 64,
            "max_window_layers": 1,
        },
        {"model_type": "qwen3", "sliding_window": 64},
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": 1024},
        {"model_type": "gemma3_text", "sliding_window": 1024, "layer_types": ["sliding_attention"]},
        {
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 64,
            "layer_types": ["full_attention"],
        },
        {
            "model_type": "llama",
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0},
        },
    ],
)
def test_full_attention_is_trained_however_a_config_says_so(folder_of, settings):
    check_architecture(folder_of(settings), trains=True)
    assert sliding_window_of({**PLAIN, **settings}) is None


def test_a_family_that_transformers_does_not_know_is_refused(folder_of):
    with pytest.raises(
        UnsupportedModel, match=r"transformers [\d.]+ has no language model of this type"
    ):
        check_architecture(folder_of({"model_type": "no_such_model"}), trains=False)


def test_the_scale_of_logits_is_the_models():
    assert logit_scale({"model_type": "granite", "logits_scaling": 8.0}) == 0.125
    assert logit_scale({"model_type": "cohere", "logit_scale": 0.0625}) == 0.0625
    assert logit_scale(LLAMA) == logit_scale({"model_type": "no_such_model"}) == 1


def test_a_refusal_imports_no_torch(folder_of):
    """It takes well below a second of a processor, most of that to start Python."""
    folder = folder_of({"model_type": "gemma3_text", "sliding_window": 512})
    program = "import sys; from turngym import __main__ as cli\ntry: cli.main(sys.argv[1:])\n"
    program += "finally: assert not {'torch', 'transformers'} & set(sys.modules)"
    command = [sys.executable, "-c", program, "train", "--policy", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "which turngym evaluates but does not train" in done.stderr
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_the_page_lists_each_family_with_what_is_computed_of_it():
    page = Path(cli.__file__).parent / "docs" / "models.md"
    rows = re.findall(
        r"^\| (.+) \| `(\w+)` \| (yes|no) \| (\w+) \| (.*) \|$",
        page.read_text("utf-8"),
        re.MULTILINE,
    )
    assert [row[1] for row in rows] == list(FAMILIES)
    for name, model_type, evaluated, trained, instead in rows:
        family = FAMILIES[model_type]
        answers = {"yes": "", "no": family.unsampled}
        assert name == family.name and bool(answers[evaluated]) == bool(family.unsampled)
        expected = (
            "no"
            if family.unsampled or family.untrained
            else "window"
            if family.sliding_window
            else "yes"
        )
        assert trained == expected
        reason = family.unsampled or family.untrained
        assert instead.startswith(reason) and bool(instead) == bool(reason or family.sliding_window)


def test_what_is_not_drawn_from_is_not_trained():
    for model_type, family in FAMILIES.items():
        support = support_of({"model_type": model_type})
        assert bool(support.untrained) >= bool(family.unsampled or family.untrained)
