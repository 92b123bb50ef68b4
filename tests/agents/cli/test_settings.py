"""Settings that are nested in Python and flat everywhere else."""

import re
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from turngym.agents.cli import settings as module
from turngym.agents.cli.settings import (
    Deadlines,
    EngineChoice,
    LoraOptions,
    MachineOptions,
    SamplingOptions,
    changed,
    check_device,
    flat,
    parsed,
)


@dataclass(frozen=True)
class Outer:
    steps: int = 3
    sampling: SamplingOptions = SamplingOptions()
    lora: LoraOptions = LoraOptions()


def test_fields_are_read_and_changed_by_their_names_alone():
    values = {"steps": 3, "max_tokens": None, "temperature": 1.0}
    assert flat(Outer()) == {
        **values,
        "rank": 32,
        "alpha": 64.0,
        "targets": (),
        "lora_dtype": "float32",
    }
    other = changed(Outer(), {"steps": 4, "rank": 8})
    assert other == Outer(4, lora=LoraOptions(rank=8)) and Outer().lora.rank == 32
    with pytest.raises(TypeError, match="Outer has no field max_token"):
        changed(Outer(), {"max_token": 4})


def test_the_values_of_a_file_are_of_the_types_of_the_fields():
    assert parsed(Outer(), {"targets": ["q_proj"], "alpha": 8}, "x") == Outer(
        lora=LoraOptions(32, 8, ("q_proj",))
    )
    for values, message in (
        (
            {"max_token": 4},
            "x: unknown key 'max_token'; did you mean 'max_tokens'? keys are steps, max_tokens",
        ),
        ({"sampling": 4}, "x: unknown key 'sampling'"),
        ({"rank": 1.5}, "x: rank is 1.5; it must be of type int"),
        ({"targets": [1]}, "x: targets is [1]; it must be of type tuple[str, ...]"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            parsed(Outer(), values, "x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (LoraOptions(rank=0), "rank is 0; it must be at least 1"),
        (LoraOptions(alpha=float("inf")), "alpha is inf; it must be above 0 and finite"),
        (LoraOptions(lora_dtype="int8"), "lora_dtype is 'int8'; it must be float32 or bfloat16"),
        (MachineOptions(device="gpu"), "device is 'gpu'; it must be cpu, cuda"),
        (MachineOptions(threads=0), "threads is 0; torch needs at least 1"),
        (Deadlines(step_deadline=0.0), "step_deadline is 0.0; it must be above 0 and finite"),
        (Deadlines(retries=-1), "retries is -1; it must be 0 or more"),
        (EngineChoice("jax"), "engine is 'jax'; it must be one of torch, vllm"),
        (
            EngineChoice(server=("http://127.0.0.1:1",)),
            "but the engine is torch; add --engine vllm",
        ),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_rule(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        settings.check()


@pytest.mark.parametrize(
    ("slow", "times", "refused"), [(False, 4.13, True), (True, 4.13, False), (False, 0.6, False)]
)
def test_a_slow_data_type_has_to_be_asked_for(monkeypatch, slow, times, refused):
    monkeypatch.setattr(module, "slowness", lambda: times)
    MachineOptions("cuda", "bfloat16").check_dtype()
    MachineOptions("cpu", "float32").check_dtype()
    with (
        pytest.raises(ValueError, match=r"take 4\.1 times as long .*--slow-dtype")
        if refused
        else nullcontext()
    ):
        MachineOptions("cpu", "bfloat16", slow_dtype=slow).check_dtype()


def test_how_slow_a_data_type_is_is_measured(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(module.time, "process_time", lambda: float(next(clock)))
    assert module.slowness() == 1.0  # by this clock all products take a second
    monkeypatch.undo()
    assert module.slowness() > 0


@pytest.mark.parametrize(
    ("built", "name", "wrong"),
    [
        (
            "cuda: Optional[str] = None\nhip: Optional[str] = None",
            "cuda",
            "the installed torch is built for CPUs alone",
        ),
        (
            "cuda: Optional[str] = None\nhip: Optional[str] = None",
            "cuda:1",
            "the installed torch is built for CPUs",
        ),
        ("cuda: Optional[str] = '12.8'", "cuda:2", "torch finds 2 GPUs here"),
        (
            "cuda: Optional[str] = None\nhip: Optional[str] = '6.4'",
            "cuda:2",
            "torch finds 2 GPUs here",
        ),
        ("cuda: Optional[str] = '12.8'", "mps", "only Macs have it"),
        ("cuda: Optional[str] = None", "cpu", ""),
        ("cuda: Optional[str] = '12.8'", "cuda", ""),
        ("cuda: Optional[str] = '12.8'", "cuda:1", ""),
    ],
)
def test_a_device_that_is_not_there_is_named_by_what_the_installed_torch_says(
    tmp_path, monkeypatch, built, name, wrong
):
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{built}\n")
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(module, "find_spec", lambda name: found)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("sys.platform", "linux")
    if wrong:
        with pytest.raises(
            ValueError, match=f"device is '{name}', but {wrong}.*; use --device cpu"
        ):
            check_device(name)
    else:
        check_device(name)


def test_without_torch_nothing_is_said_of_a_device(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    check_device("cuda")
