"""Real data for every room: the files of ../shared/data, and the tokenizer of Qwen in the form that models ship."""

import base64
import fcntl
import gc
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import turngym
from turngym.agents.models.resolve import TINY

# How fast a machine is that others use too says nothing about a property. The same code is tried with the same
# examples; HYPOTHESIS_PROFILE=random tries others.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "turngym", settings.get_profile("random"), derandomize=True, database=None
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "turngym"))

QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPECIAL = (
    "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start quad_end vision_start "
    "vision_end vision_pad image_pad video_pad"
)
QWEN_PLAIN = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
)


gc.disable()  # until the tests are collected


def pytest_collection_finish() -> None:
    """What is loaded by now is much and stays: collections pass it over from here on, and are rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Only a machine that loses its power would show a difference. A descriptor that is none is still an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; a test that needs it is skipped where it is absent."""
    folder = Path(turngym.__file__).parent.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is absent")
    return folder


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread of torch, put back at the end, and engines that measure nothing at their start."""
    import torch

    from turngym.agents.engines.torch import TorchEngine

    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchEngine, "mode_reason", "")
        patch.setattr(TorchEngine, "measure_threads", lambda engine, most: None)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def chat_templates(shared_data: Path) -> dict[str, str]:
    """The chat templates of real models, by file name."""
    rows = map(
        json.loads,
        (shared_data / "tokenizer" / "chat_templates.jsonl").read_text("utf-8").splitlines(),
    )
    return {row["name"]: row["text"] for row in rows}


@pytest.fixture(scope="session")
def qwen_ranks(shared_data: Path) -> dict[bytes, int]:
    """The BPE ranks of Qwen: the bytes of each token, and its id, which is the order of its merge."""
    with gzip.open(shared_data / "tokenizer" / "qwen.tiktoken.gz") as lines:
        return {
            base64.b64decode(text): int(rank) for text, rank in (line.split() for line in lines)
        }


@pytest.fixture(scope="session")
def qwen_folder(
    request: pytest.FixtureRequest,
    chat_templates: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with the tokenizer and chat template of Qwen2.5 (and Qwen3's added tokens), and no weights.

    151,669 ids: 151,643 of the ranks, then the added tokens in the order of the released models. The folder takes
    seconds to make, so the processes of one test run share it. Tests copy it before they change it.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "qwen"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            unfinished.mkdir(exist_ok=True)
            _write_qwen(
                unfinished, request.getfixturevalue("qwen_ranks"), chat_templates["qwen2_5.jinja"]
            )
            unfinished.rename(folder)
    return folder


def _write_qwen(folder: Path, ranks: dict[bytes, int], chat_template: str) -> None:
    tokenizer = Tokenizer(_bpe(ranks))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([f"<|{name}|>" for name in QWEN_SPECIAL.split()])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in QWEN_PLAIN.split()])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 32768,
        "chat_template": chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _bpe(ranks: dict[bytes, int]) -> models.BPE:
    """The vocabulary and merges that ranks stand for: a token is the merge of what older merges leave of its bytes."""
    letters = _letters()
    spelled = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        if len(token) > 1:
            left, right = _parts(ranks, token, rank)
            merges.append((spelled[left], spelled[right]))
    return models.BPE(vocab={spelled[token]: rank for token, rank in ranks.items()}, merges=merges)


def _parts(ranks: dict[bytes, int], token: bytes, limit: int) -> list[bytes]:
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, i = min((ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1))
        assert rank < limit, f"token {token!r} is no merge of older tokens"
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def _letters() -> dict[int, str]:
    """The printable character by which byte-level BPE writes each byte: itself, or one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + i) for i, byte in enumerate(others)
    }


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A model that turngym did not make, as its chat template says; small as the tiny policy."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (*TINY.glob("*.json"), TINY / "model.safetensors"):
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{#- another's #}" + config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
