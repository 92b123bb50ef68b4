"""Settings that are nested in Python and flat everywhere else."""

import re
from dataclasses import dataclass

import pytest

from turngym.agents.settings import (
    Deadlines,
    EngineChoice,
    LoraOptions,
    MachineOptions,
    SamplingOptions,
    changed,
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
    assert flat(Outer()) == {**values, "rank": 32, "alpha": 64.0, "targets": (), "lora_dtype": "float32"}
    other = changed(Outer(), {"steps": 4, "rank": 8})
    assert other == Outer(4, lora=LoraOptions(rank=8)) and Outer().lora.rank == 32
    with pytest.raises(TypeError, match="Outer has no field max_token"):
        changed(Outer(), {"max_token": 4})


def test_the_values_of_a_file_are_of_the_types_of_the_fields():
    assert parsed(Outer(), {"targets": ["q_proj"], "alpha": 8}, "x") == Outer(lora=LoraOptions(32, 8, ("q_proj",)))
    for values, message in (
        ({"max_token": 4}, "x: unknown key 'max_token'; did you mean 'max_tokens'? keys are steps, max_tokens"),
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
        (EngineChoice(server=("http://127.0.0.1:1",)), "but the engine is torch; add --engine vllm"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_rule(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        settings.check()
