import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import Parameter
from torch.optim import AdamW

from turngym.agents.journal.checkpoint import CheckpointError
from turngym.training.loop.optimizer_state import load_moments, save_moments


def made(steps: int) -> tuple[AdamW, dict[str, Parameter]]:
    """Two parameters, of which only the first has had `steps` steps."""
    parameters = {"a": Parameter(torch.ones(2, 3)), "b": Parameter(torch.ones(4))}
    optimizer = AdamW(parameters.values(), lr=0.1, weight_decay=0.0, foreach=False)
    for step in range(steps):
        parameters["a"].grad = torch.full((2, 3), 1.0 + step)
        optimizer.step()
    return optimizer, parameters


@pytest.mark.parametrize("steps", [0, 2])
def test_moments_are_whole_and_go_on_to_the_bit(tmp_path, steps):
    optimizer, parameters = made(steps)
    save_moments(optimizer, parameters, tmp_path / "new")
    found = load_file(tmp_path / "new" / "optimizer.safetensors")
    assert sorted(found) == [
        f"{name}/{part}" for name in "ab" for part in ("exp_avg", "exp_avg_sq", "step")
    ]
    assert float(found["a/step"]) == steps and not found["b/exp_avg"].any()
    fresh, others = made(0)
    load_moments(fresh, others, tmp_path / "new")
    for name in others:
        others[name].data.copy_(parameters[name].data)
        for one in (parameters, others):
            one[name].grad = torch.linspace(-1, 1, one[name].numel()).view_as(one[name])
    optimizer.step()
    fresh.step()
    assert all(torch.equal(parameters[name], others[name]) for name in others)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a/exp_avg", None, "a/exp_avg is missing, and the run needs torch.float32 [2, 3]"),
        ("c/step", torch.zeros(()), "c/step is torch.float32 [], and the run needs missing"),
        (
            "b/step",
            torch.zeros((), dtype=torch.int64),
            "b/step is torch.int64 [], and the run needs torch.float32 []",
        ),
        (
            "b/exp_avg_sq",
            torch.zeros(5),
            "b/exp_avg_sq is torch.float32 [5], and the run needs torch.float32 [4]",
        ),
        ("b/exp_avg", torch.full((4,), torch.inf), "b/exp_avg has a value that is not finite"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_of_it_is_taken(tmp_path, name, value, message):
    optimizer, parameters = made(1)
    save_moments(optimizer, parameters, tmp_path)
    found = {**load_file(tmp_path / "optimizer.safetensors"), name: value}
    save_file(
        {key: tensor for key, tensor in found.items() if tensor is not None},
        tmp_path / "optimizer.safetensors",
    )
    fresh, others = made(0)
    with pytest.raises(CheckpointError, match=re.escape(message)):
        load_moments(fresh, others, tmp_path)
    assert not fresh.state


def test_what_is_not_finite_is_not_written(tmp_path):
    for spoil in (
        lambda a, state: a.data.fill_(torch.nan),
        lambda a, state: state["exp_avg"].fill_(torch.inf),
    ):
        optimizer, parameters = made(1)
        spoil(parameters["a"], optimizer.state[parameters["a"]])
        with pytest.raises(
            CheckpointError, match=r"^a.* has a value that is not finite, so no checkpoint"
        ):
            save_moments(optimizer, parameters, tmp_path)
    assert [*tmp_path.iterdir()] == []
