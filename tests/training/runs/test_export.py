"""`turngym export`: what it writes computes what the policy computes, and its refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

import turngym
from turngym import __main__ as cli
from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import LoraOptions
from turngym.agents.journal.checkpoint import CheckpointError
from turngym.agents.models.resolve import TINY, Source, find
from turngym.agents.policy import load_policy
from turngym.training.runs.config import from_run
from turngym.training.runs.export import PreparedExport, card, execute, prepare

RUN = Path(turngym.__file__).parent / "tests" / "data" / "run-0.1.0"
IDS = torch.arange(3, 19)[None]


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(RUN, tmp_path / "run")


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


def moved(folder, tmp_path):
    """A policy whose adapter is on all layers and the head, with weights that are not zero; its export's source."""
    policy = load_policy(folder, lora=LoraOptions(4, 8.0))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    adapter = tmp_path / "run" / "checkpoints" / "step-000002" / "adapter"
    shutil.rmtree(adapter)
    policy.save_adapter(adapter)
    return policy, Source(folder, adapter)


def base(folder, tied):
    """The folder of a small model, whose head is its embedding or not."""
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    torch.manual_seed(0)
    Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=4096,
            num_key_value_heads=1,
            tie_word_embeddings=tied,
            initializer_range=0.2,
            **sizes,
        )
    ).save_pretrained(folder)
    for file in TINY.glob("*tok*"):
        shutil.copy(file, folder)
    return folder


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.filterwarnings(
    "ignore:Model has .tie_word_embeddings=True"
)  # the update is of the head alone
def test_what_is_exported_computes_what_the_policy_does(run, tied, merged, tmp_path):
    policy, source = moved(base(tmp_path / "base", tied), tmp_path)
    config = from_run(run, allowed=None).changed(policy=str(source.folder))
    folder = execute(PreparedExport(run, tmp_path / "out", source, config, 2, merged))
    model = AutoModelForCausalLM.from_pretrained(folder if merged else source.folder)
    model = model if merged else PeftModel.from_pretrained(model, folder)
    torch.testing.assert_close(logits(model), logits(policy.model), atol=1e-5, rtol=1e-5)
    assert (
        logits(policy.model) - logits(AutoModelForCausalLM.from_pretrained(source.folder))
    ).abs().max() > 0.01
    assert find(folder).folder == folder if merged else (folder / "tokenizer.json").is_file()


STRIPS = (  # thoughts, in every turn
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{{ m['content'].split('</think>')[-1] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings=True")
def test_the_exported_template_is_the_one_that_the_model_was_trained_with(run, merged, tmp_path):
    _, source = moved(base(tmp_path / "base", tied=True), tmp_path)
    (source.folder / "chat_template.jinja").write_text(STRIPS)
    config = from_run(run, allowed=None).changed(policy=str(source.folder))
    folder = execute(PreparedExport(run, tmp_path / "out", source, config, 2, merged))
    talk = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"},
    ]
    talk += [{"role": "user", "content": "and?"}]
    chat, shown = (
        Chat.from_folder(source.folder),
        {"add_generation_prompt": True, "return_dict": False},
    )
    (end,) = chat.end_ids
    drawn = [*chat.tokenizer.encode(talk[1]["content"]).ids, end]
    path = [*chat.prompt(talk[:1]), *drawn, *chat.reply(talk[2:], end)]
    assert AutoTokenizer.from_pretrained(folder).apply_chat_template(talk, **shown) == path
    assert AutoTokenizer.from_pretrained(source.folder).apply_chat_template(talk, **shown) != path
    assert "chat_template" not in json.loads((folder / "tokenizer_config.json").read_text())
    said = " ".join((folder / "README.md").read_text().split())
    assert (
        "| chat template | as training saw it: earlier turns keep their thoughts as they were drawn"
        in said
    )
    # The base's files name no end of a turn at all.
    assert (
        f"turns end with <\\|im_end\\|>, which the base's generation config does not name: stop at token {end}"
        in said
    )
    if merged:
        assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [end]
        assert Chat.from_folder(folder).end_ids == {end} and load_policy(folder).end_ids == {end}


def test_a_template_that_training_saw_as_it_is_is_copied(run, tmp_path, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["export", str(run), "--out", str(tmp_path / "out")])
    assert "chat template: the base model's" in capsys.readouterr().out
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (TINY / name).read_bytes()
    assert "| chat template | the base model's |" in (tmp_path / "out" / "README.md").read_text()


def test_the_card_says_what_was_trained_and_how_it_went(run, tmp_path, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["export", str(run), "--out", str(tmp_path / "new" / "out")])
    text = (tmp_path / "new" / "out" / "README.md").read_text()
    for part in (
        "grpo,epo",
        "turngym/Math-v0, difficulty=(1,)",
        "rank 1, alpha 64, on q_proj",
        "turngym 0.1.0",
    ):
        assert part in text
    for part in (
        "before: 0.0 % [0.0, 49.0] | 0 | 4",
        "after: 0.0 % [0.0, 49.0] | 2 | 4",
        f"torch {torch.__version__}",
    ):
        assert part in text
    assert "library_name: peft" in text and "written: " in capsys.readouterr().out
    with safe_open(tmp_path / "new" / "out" / "adapter_model.safetensors", "pt") as file:
        assert all("lora_" in name for name in file.keys())  # noqa: SIM118 (no mapping)


def test_a_base_that_was_dequantised_is_said_to_be(run, tmp_path):
    export = prepare(run, tmp_path / "out", merged=False)
    base = tmp_path / "base"
    base.mkdir()
    (base / "gguf.json").write_text(json.dumps({"weights": "dequantised from Q4_1"}))
    assert "(dequantised from Q4_1)" in card(
        replace(export, source=replace(export.source, folder=base))
    )


def test_a_run_without_an_end_has_no_figures(run, tmp_path):
    (run / "summary.json").unlink()
    assert "The run has not ended" in card(prepare(run, tmp_path / "out", merged=False))


@pytest.mark.parametrize(
    ("harm", "kind", "said"),
    [
        (
            lambda run: (run / "config.toml").unlink(),
            FileNotFoundError,
            "has no config.toml; give a run folder",
        ),
        (
            lambda run: shutil.rmtree(run / "checkpoints"),
            FileNotFoundError,
            "has no checkpoint to export; resume it",
        ),
        (
            lambda run: (run / "out").mkdir(),
            FileExistsError,
            "is there already; choose another folder with --out",
        ),
        (
            lambda run: next(run.glob("checkpoints/*/adapter/*.safetensors")).write_bytes(b"x"),
            CheckpointError,
            "are damaged",
        ),
        (
            lambda run: (run / "config.toml").write_text(
                (run / "config.toml").read_text().replace('policy = "tiny"', 'policy = "./gone"')
            ),
            FileNotFoundError,
            r"was trained from the policy './gone', which is missing",
        ),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(run, harm, kind, said):
    harm(run)
    there = sorted(run.rglob("*"))
    with pytest.raises(kind, match=said):
        execute(prepare(run, run / "out", merged=False))
    assert sorted(run.rglob("*")) == there


def test_an_export_that_fails_leaves_nothing_behind(run, tmp_path, monkeypatch):
    monkeypatch.setattr("turngym.training.runs.export.card", lambda export: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        execute(prepare(run, tmp_path / "out", merged=False))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
