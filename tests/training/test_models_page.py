"""docs/models.md: its commands are prepared with small models of the same architecture, its numbers are computed."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import tyro
from transformers import Qwen2Config, Qwen2ForCausalLM

from turngym import __main__ as cli
from turngym.agents.cli import settings
from turngym.agents.cli.settings import LoraOptions, flat
from turngym.agents.models import folder as model_folder
from turngym.agents.models import memory
from turngym.agents.models import resolve as source
from turngym.agents.models.memory import GIB, check_fits
from turngym.agents.models.resolve import MODELS
from turngym.tests.support.pages import blocks, commands, tables
from turngym.training.cli.train import Train
from turngym.training.runs import run
from turngym.training.runs.config import adjust

PAGE = "docs/models.md"
COMMANDS = [
    words
    for block in blocks("sh")
    if block.page == PAGE
    for words in commands(block)
    if words[0] == "train"
]
SHAPES = {  # width, inner, layers, heads, heads of keys, whether the head is the embedding; and parameters
    "0.5B": ((896, 4864, 24, 14, 2, True), 494_032_768),
    "1.5B": ((1536, 8960, 28, 12, 2, True), 1_543_714_304),
    "7B": ((3584, 18944, 28, 28, 4, False), 7_615_616_512),
}


def size_of(name):
    return next(size for size in SHAPES if f"-{size}-" in name)


@pytest.fixture
def small(qwen_folder, tmp_path):
    """A random Qwen2 of one layer with the tokenizer and the chat template of Qwen2.5."""
    folder = tmp_path / "small"
    config = Qwen2Config(
        vocab_size=151_936, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32_768, tie_word_embeddings=True, eos_token_id=151_645,
    )  # fmt: skip
    Qwen2ForCausalLM(config).to(torch.float16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((qwen_folder / name).read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: size_of(" ".join(words)))
def test_a_command_of_the_page_is_prepared_with_what_fits_its_model(
    words, small, tmp_path, monkeypatch
):
    name = words[words.index("--policy") + 1]
    monkeypatch.setattr(
        model_folder, "_download", lambda asked, files: small if asked == name else None
    )
    monkeypatch.setattr(source, "parameters", lambda folder: SHAPES[size_of(name)][1])
    monkeypatch.setattr(
        run, "check_device", lambda device: None
    )  # the page is for machines that have one
    monkeypatch.setattr(settings, "find_spec", lambda module: module)  # and vLLM
    monkeypatch.setattr(
        tyro,
        "cli",
        lambda *args, parse=tyro.cli, **rest: kept.append(parse(*args, **rest)) or quiet,
    )
    monkeypatch.chdir(tmp_path)
    kept, quiet = list[Train](), SimpleNamespace(run=lambda: 0)
    with pytest.raises(SystemExit):
        cli.main(words)
    config, lines = adjust(kept[0].config, kept[0].recipe, kept[0].named)
    assert lines[0].startswith(
        "from the defaults for models, as the recipe math-python is made for"
    )
    prepared = run.prepare(config)
    prepared.close()
    values = flat(prepared.config)
    row = next(row for most, row in MODELS if SHAPES[size_of(name)][1] <= most)
    assert {key: values[key] for key in row if f"--{key.replace('_', '-')}" not in words} == {
        key: value for key, value in row.items() if f"--{key.replace('_', '-')}" not in words
    }
    assert not any(option.startswith("max_turns") for option in values["option"])


def test_the_table_of_defaults_is_the_one_in_the_code():
    (rows,) = (found for title, found in tables(PAGE).items() if title.endswith(": setting"))
    for column, (_, row) in enumerate(MODELS, 1):
        for cells in rows:
            value = row[cells[0].strip("`")]
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
            assert cells[column] == shown.replace("e-0", "e-"), cells[0]
        assert {cells[0].strip("`") for cells in rows} == row.keys()


@pytest.mark.parametrize("column", range(1, 4))
def test_the_memory_that_the_page_names_is_what_is_computed(column, tmp_path, monkeypatch):
    (rows,) = (found for title, found in tables(PAGE).items() if title.endswith(": GiB"))
    size = tuple(SHAPES)[column - 1]
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    needed = check_fits(
        described(tmp_path, size),
        "float32" if size == "0.5B" else "bfloat16",
        lora=LORA,
        context=TOKENS,
    )
    told = (needed.weights, needed.lora + needed.optimizer, needed.cache, needed.total)
    assert [float(cells[column]) for cells in rows] == [round(number / GIB, 2) for number in told]


LORA, TOKENS = LoraOptions(), 64 * 2048


def described(folder: Path, size: str) -> Path:
    """A folder that says how large a model is, without its weights."""
    (width, inner, layers, heads, keys, tied), total = SHAPES[size]
    shape = {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "vocab_size": 151_936,
    }
    shape |= {
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "tie_word_embeddings": tied,
    }
    (folder / "config.json").write_text(json.dumps(shape))
    (folder / model_folder.INDEX).write_text(
        json.dumps({"metadata": {"total_parameters": total}, "weight_map": {}})
    )
    return folder
