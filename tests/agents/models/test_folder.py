import json
import os
import pickle
import shutil

import pytest

from turngym.agents.models import folder as model_folder
from turngym.agents.models.resolve import TINY, find
from turngym.agents.policy import load_policy

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    """A copy of the smallest whole model."""
    made = tmp_path / "model"
    made.mkdir()
    for path in [*TINY.glob("*.json"), TINY / WEIGHTS]:
        shutil.copy(path, made)
    return made


def sets(name="config.json", **values):
    def change(folder):
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


def writes(name, data):
    def change(folder):
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())

    return change


def headed(text):
    return writes(WEIGHTS, len(text).to_bytes(8, "little") + text.encode())


def tensor(**entry):
    return headed(
        json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}})
    )


def indexed(target, **more):
    """Weights under another name, and an index that names `target`."""

    def change(folder):
        (folder / WEIGHTS).rename(folder / "other.safetensors")
        (folder.parent / "outside.safetensors").write_bytes(
            (folder / "other.safetensors").read_bytes()
        )
        (folder / "x.bin").write_bytes(pickle.dumps(print))
        (folder / INDEX).write_text(json.dumps({"weight_map": target, **more}))

    return change


def outside(name):
    """A link to a file of another folder."""

    def change(folder):
        (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(folder.parent / name)

    return change


def fifo(name):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def makes(name):
    return lambda folder: (folder / name).mkdir()


CODE = {
    "attention": sets(attn_implementation="org/kernel"),
    "attention, hidden": sets(_attn_implementation="org/kernel:function"),
    "attention, inner": sets(_attn_implementation_internal="flash_attention_2"),
    "attention of a part": sets(attn_implementation={"text_config": "org/kernel"}),
    "attention in a part": sets(text_config={"deep": [{"_attn_implementation": "org/kernel"}]}),
    "experts": sets(experts_implementation="org/kernel"),
    "kernels": sets(use_kernels=True),
    "code of a known type": sets(auto_map={"AutoModelForCausalLM": "evil.Model"}),
    "code of a part": sets(text_config={"auto_map": {"AutoConfig": "org/evil--evil.Config"}}),
    "code of a tokenizer": sets(
        "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]}
    ),
    "code of a generation": sets("generation_config.json", custom_generate="org/evil"),
    "pipelines": sets(custom_pipelines={"x": {"impl": "evil.P"}}),
    "quantization": sets(quantization_config={"quant_method": "gptq"}),
    "quantization of a part": sets(text_config={"quantization_config": {"quant_method": "evil"}}),
    "weights elsewhere": sets(transformers_weights="x.safetensors"),
    "weights of another kind": sets(gguf_file="x.gguf"),
    "a name on the hub": sets(backbone="org/model"),
    "an adapter": writes(
        "adapter_config.json", '{"base_model_name_or_path": "../other", "peft_type": "LORA"}'
    ),
    "generate.py": makes("custom_generate"),
}
PLACES = {
    "parent": indexed({"a": "../outside.safetensors"}),
    "absolute": indexed({"a": "/dev/zero"}),
    "folder": indexed({"a": "sub/x.safetensors"}),
    "pickle": indexed({"a": "x.bin"}),
    "two": indexed({"a": "other.safetensors", "b": "x.pt"}),
    "number": indexed({"a": 1}),
    "missing": indexed({"a": "none.safetensors"}),
    "empty": indexed({}),
    "list": indexed(["other.safetensors"]),
    "link": outside(WEIGHTS),
    "link of settings": outside("config.json"),
    "fifo": fifo("generation_config.json"),
    "device": lambda folder: (folder / "more.safetensors").symlink_to("/dev/zero"),
    "folder of weights": makes("more.safetensors"),
}
DAMAGE = {
    "empty": writes(WEIGHTS, b""),
    "4 bytes": writes(WEIGHTS, b"\1\2\3\4"),
    "pickle": writes(WEIGHTS, pickle.dumps(print)),
    "long header": writes(WEIGHTS, (2**62).to_bytes(8, "little") + b"{}"),
    "no header": writes(WEIGHTS, bytes(8)),
    "deep": headed('{"a":' * 50_000),
    "list": headed("[1, 2]"),
    "twice": headed('{"a": {}, "a": {}}'),
    "huge shape": tensor(shape=[2**62, 2**62]),
    "long shape": tensor(shape=[2**40] * 100),
    "negative shape": tensor(shape=[-1]),
    "wrong shape": tensor(shape=[3]),
    "words for a shape": tensor(shape="ab"),
    "beyond the file": tensor(),
    "no offsets": headed('{"a": {"dtype": "F32", "shape": [2]}}'),
    "layers": sets(num_hidden_layers=10**6),
    "width": sets(hidden_size=10**9),
    "negative": sets(num_hidden_layers=-1),
    "words": sets(vocab_size="many"),
    "true": sets(num_attention_heads=True),
    "no context": sets(max_position_embeddings=0),
    "layers of a part": sets(text_config={"num_hidden_layers": 10**6}),
    "deep settings": writes("config.json", '{"a":' * 90_000),
    "settings in a list": writes("config.json", "[]"),
    "nothing": writes("tokenizer_config.json", "null"),
    "zeros": writes("generation_config.json", b"\0\0"),
    "no UTF-8": writes("config.json", b'{"a": "\xff\xfe"}'),
    "a long number": writes("config.json", '{"hidden_size": ' + "9" * 5000 + "}"),
    "a key twice": writes("config.json", '{"model_type": "a", "model_type": "b"}'),
}


@pytest.mark.parametrize(
    "change", {**CODE, **PLACES, **DAMAGE}.values(), ids={**CODE, **PLACES, **DAMAGE}
)
def test_a_folder_that_is_no_plain_model_is_refused_in_one_line(folder, change):
    assert find(folder).folder == folder
    change(folder)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        find(folder)
    said = str(caught.value)
    assert (
        said.startswith(str(folder)) and "\n" not in said and len(said) < 400 + len(str(folder)) * 2
    )


def test_a_file_without_end_is_not_read(folder):
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"is larger than 65536 KiB$"):
        find(folder)


def test_the_cache_of_the_hub_keeps_files_as_links_to_its_blobs(folder, tmp_path):
    snapshot = tmp_path / "models--org--name" / "snapshots" / "1234"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    blob = tmp_path / "models--org--name" / "blobs" / "abcd"
    blob.parent.mkdir()
    (snapshot / WEIGHTS).rename(blob)
    (snapshot / WEIGHTS).symlink_to("../../blobs/abcd")
    assert find(snapshot).folder == snapshot


def test_settings_without_code_stay_as_they_are(folder):
    sets(
        _name_or_path="org/model",
        _attn_implementation="sdpa",
        quantization_config=None,
        auto_map={},
    )(folder)
    sets("generation_config.json", cache_implementation="hybrid")(folder)
    assert find(folder).folder == folder


def test_a_folder_is_checked_again_when_it_is_loaded(folder, monkeypatch):
    source = find(folder)
    sets(attn_implementation="org/kernel")(folder)
    monkeypatch.setattr(
        "transformers.AutoModelForCausalLM.from_pretrained", lambda *_, **__: pytest.fail("loaded")
    )
    with pytest.raises(ValueError, match="sets attn_implementation to 'org/kernel'"):
        load_policy(source)


def test_what_transformers_makes_of_a_folder_is_told_in_one_line(folder):
    sets(model_type="evil")(folder)
    with pytest.raises(
        ValueError, match=r"^.*/model cannot be loaded \(ValueError: .*evil.*; save it again$"
    ) as caught:
        load_policy(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b'{"model": {"type": "BPE"}}', b"[" * 100_000, b"\xff", b"\0"]
)
def test_a_tokenizer_that_is_none_is_refused_in_one_line(folder, data):
    writes("tokenizer.json", data)(folder)
    with pytest.raises(
        ValueError, match=r"^.*/tokenizer.json is no tokenizer that can be used: "
    ) as caught:
        load_policy(folder)
    assert "\n" not in str(caught.value)


def test_a_run_that_begins_with_itself_is_named(tmp_path):
    from turngym.agents.journal.checkpoint import save

    for name, other in (("one", "two"), ("two", "one")):
        run = tmp_path / name
        run.mkdir()
        (run / "config.toml").write_text(f'[train]\npolicy = "{tmp_path / other}"\n')
        save(run / "checkpoints", 1, {}, lambda folder: None)
    with pytest.raises(
        ValueError,
        match=r"/one begins with itself, as its config.toml says; give the model's folder",
    ):
        find(tmp_path / "one")


@pytest.mark.parametrize(
    "text", ["", "[train]\n", "train = 1\n", "policy", "\0", "[train]\npolicy = 3\n"]
)
def test_a_run_that_does_not_say_where_it_began_is_named(tmp_path, text):
    from turngym.agents.journal.checkpoint import save

    (tmp_path / "config.toml").write_text(text)
    save(tmp_path / "checkpoints", 1, {}, lambda folder: None)
    with pytest.raises((ValueError, FileNotFoundError)):
        find(tmp_path)


def test_nothing_is_read_from_what_is_no_plain_file(tmp_path):
    os.mkfifo(tmp_path / "fifo.json")
    with pytest.raises(ValueError, match="is no plain file"):
        model_folder.read_json(tmp_path / "fifo.json")
