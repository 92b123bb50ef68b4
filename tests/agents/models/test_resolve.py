import json
import subprocess
import sys
from math import prod

import pytest
import torch

from turngym.agents import policy
from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engines.vllm.server import head_options
from turngym.agents.journal import checkpoint
from turngym.agents.models.resolve import TINY, Source, find, layer_names
from turngym.agents.policy import load_policy

ADAPTER = {"r": 4, "lora_alpha": 9.5, "target_modules": ["v_proj", "lm_head"]}


@pytest.fixture
def model(tmp_path):
    """A folder with the files of a model, which nobody reads here."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_bytes(weights({}))
    return folder


def weights(shapes):
    """The bytes of a safetensors file of zeros."""
    entries, end = {}, 0
    for name, shape in shapes.items():
        entries[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [end, end := end + 4 * prod(shape)],
        }
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


def make_run(folder, policy_name, steps=(1, 2)):
    """A run folder as training leaves it."""

    def tensors(path):
        (path / "adapter").mkdir()
        (path / "adapter" / "adapter_config.json").write_text(json.dumps(ADAPTER))

    folder.mkdir()
    (folder / "config.toml").write_text(f"[train]\npolicy = {json.dumps(str(policy_name))}\n")
    for step in steps:
        checkpoint.save(folder / "checkpoints", step, {}, tensors)
    return folder


def test_tiny_is_the_folder_that_ships():
    assert find("tiny") == Source(TINY)
    assert TINY.name == "tiny" and find("tiny").lora() is None


def test_a_model_folder_is_its_own_source(model):
    assert find(model) == find(str(model)) == Source(model)


def test_a_home_folder_is_expanded(model, monkeypatch):
    monkeypatch.setenv("HOME", str(model.parent))
    assert find("~/model") == Source(model)


def test_a_run_is_its_policys_folder_and_its_newest_adapter(model, tmp_path):
    run = make_run(tmp_path / "run", model)
    assert find(run) == Source(model, run / "checkpoints" / "step-000002" / "adapter")
    assert find(run).lora() == LoraOptions(4, 9.5, ("lm_head", "v_proj"))
    again = make_run(tmp_path / "again", run, steps=(7,))
    assert find(again) == Source(model, again / "checkpoints" / "step-000007" / "adapter")


def test_a_run_without_a_checkpoint_says_how_to_get_one(model, tmp_path):
    run = make_run(tmp_path / "run", model, steps=())
    with pytest.raises(FileNotFoundError) as caught:
        find(run)
    assert str(caught.value) == f"{run} has no checkpoint yet; go on with --out {run} --resume"


def test_a_damaged_checkpoint_is_passed_over_with_a_warning_and_refused_where_it_is_the_only_one(
    model, tmp_path, caplog
):
    run = make_run(tmp_path / "run", model)
    (run / "checkpoints" / "step-000002" / "adapter" / "adapter_config.json").write_text("{}")
    assert find(run).adapter == run / "checkpoints" / "step-000001" / "adapter"
    assert (
        "step-000002: the file 'adapter/adapter_config.json' is not what was written" in caplog.text
    )
    (run / "checkpoints" / "step-000001" / "state.json").unlink()
    with pytest.raises(
        checkpoint.CheckpointError,
        match=r"all 2 checkpoints .*step-000002: the file .*step-000001: the",
    ):
        find(run)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_folder_that_lacks_a_file_is_named_with_the_fix(model, missing):
    (model / missing).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        find(model)
    assert str(caught.value).startswith(f"{model} has no {missing.replace('model.', '*.')}")
    assert "save" in str(caught.value)


@pytest.mark.parametrize("name", ["./none", "/none/at/all", "a/b/c", "~/none"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(name, monkeypatch):
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("asked the hub")
    )
    with pytest.raises(
        FileNotFoundError,
        match=r"' is not a folder; name `tiny`, a run folder, a model folder or a",
    ):
        find(name)


def test_a_hub_name_is_downloaded_and_checked(model, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **_: asked.append(name) or str(model)
    )
    assert find("someone/model-7b") == Source(model)
    (model / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer.json"):
        find("gpt9")
    assert asked == ["someone/model-7b", "gpt9"]


@pytest.mark.parametrize("error", [OSError("offline"), ValueError("not a repository")])
def test_a_hub_name_that_cannot_be_fetched_is_named(error, monkeypatch):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    with pytest.raises(FileNotFoundError) as caught:
        find("tinny")
    told = f"'tinny' is neither a folder here nor a hub model that can be fetched ({type(error).__name__}); check the"
    assert str(caught.value).startswith(told)


def test_a_trained_adapter_keeps_its_own_shape_when_loaded(qwen3_folder, tmp_path):
    spec = LoraOptions(4, 9.5, ("lm_head", "v_proj"))
    trained = policy.load_policy(qwen3_folder, lora=spec, seed=5)
    trained.save_adapter(tmp_path)
    found = policy.load_policy(Source(qwen3_folder, tmp_path), lora=LoraOptions(rank=32))
    assert found.lora == spec
    for name, weight in found.trainable_parameters().items():
        assert weight.equal(trained.trainable_parameters()[name])
    assert policy.load_policy(Source(qwen3_folder), lora=LoraOptions(rank=32)).lora.rank == 32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_trained_adapter_keeps_its_own_type(qwen3_folder, tmp_path, dtype):
    policy.load_policy(
        qwen3_folder, lora=LoraOptions(rank=2, alpha=4, lora_dtype=dtype)
    ).save_adapter(tmp_path)
    found = policy.load_policy(
        Source(qwen3_folder, tmp_path), lora=LoraOptions(), checkpointing=True, compile=True
    )
    assert {f"torch.{dtype}"} == {str(p.dtype) for p in found.trainable_parameters().values()}
    assert found.checkpointing and found.compile


def test_targets_are_checked_against_the_models_files(qwen2_folder):
    found = Source(qwen2_folder)
    for targets in ((), ("lm_head",), ("q_proj", "down_proj", "q_proj")):
        found.check_targets(targets)
    with pytest.raises(ValueError) as caught:
        found.check_targets(("q_proj", "upproj"))
    told = f"targets name 'upproj', which is no layer of {qwen2_folder}; did you mean 'up_proj'? it has down_proj, "
    assert str(caught.value).startswith(told)


def test_a_trained_adapter_stays_on_its_layers(model, tmp_path):
    found = find(make_run(tmp_path / "run", model))
    (model / "model.safetensors").write_bytes(weights({"model.layers.0.v_proj.weight": [2, 3]}))
    for targets in ((), ("v_proj", "lm_head"), ("lm_head", "v_proj")):
        found.check_targets(targets)
    with pytest.raises(ValueError) as caught:
        found.check_targets(("v_proj",))
    assert str(caught.value) == (
        f"targets is ('v_proj',), but the adapter in {found.adapter} is on ('lm_head', 'v_proj') and stays there; "
        f"leave targets out, or begin with the model: --policy {model}"
    )


def test_the_targets_that_a_server_needs_are_named_and_taken(qwen2_folder, monkeypatch):
    def served(targets):
        loaded = policy.load_policy(qwen2_folder, lora=LoraOptions(2, 4, targets))
        config = {**loaded.base.config.to_dict(), "model_type": "gemma9"}
        monkeypatch.setattr(loaded.base.config, "to_dict", lambda: config)
        return head_options(loaded)

    for targets in ((), ("lm_head",)):
        with pytest.raises(ValueError, match="without the head: ") as caught:
            served(targets)
        named = (
            str(caught.value).partition("without the head: ")[2].removeprefix("--targets ").split()
        )
        Source(qwen2_folder).check_targets(named)
        assert served(tuple(named)) == ()


@pytest.mark.parametrize("name", ["qwen3_folder", "qwen2_folder"])
def test_layers_are_named_as_in_the_model(name, request):
    folder = request.getfixturevalue(name)
    modules = load_policy(folder).base.named_modules()
    linear = {
        name.rpartition(".")[2] for name, module in modules if isinstance(module, torch.nn.Linear)
    }
    assert layer_names(folder) == linear > {"lm_head", "q_proj", "down_proj"}


def test_torch_is_not_needed():
    code = "import sys, turngym.agents.models.resolve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["use_dora", "use_rslora"])
def test_an_adapter_that_adds_otherwise_is_refused(tmp_path, model, name):
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER | {name: False}))
    assert Source(model, tmp_path).lora().rank == 4
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER | {name: True}))
    with pytest.raises(ValueError, match=f"has {name}, which turngym does not compute"):
        Source(model, tmp_path).lora()
