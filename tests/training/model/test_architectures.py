"""Each family of the table, as a small random model of its own class: it does what the table says.

The engine's logits, the learner's and its gradients are those of the model's own forward pass, and one step of a run
and an episode of an evaluation come to their end.
"""

from contextlib import closing, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from turngym.agents.cli.settings import LoraOptions, SamplingOptions
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.torch.decoder import Decoder, Weights, unusual
from turngym.agents.engines.torch.runner import Fallback, Runner
from turngym.agents.evaluation import run as evaluate
from turngym.agents.models.architecture import (
    FAMILIES,
    UnsupportedModel,
    check_architecture,
    logit_scale,
    support_of,
)
from turngym.agents.policy import load_policy
from turngym.tests.support.small_models import CONTEXT, save_model, small_config, small_model
from turngym.training.control.chain import chain
from turngym.training.data.layout import layout_of
from turngym.training.loop.learner import Learner
from turngym.training.model.attention import hidden_states
from turngym.training.runs.config import TrainConfig
from turngym.training.runs.run import execute, prepare

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore"),  # the classes of transformers warn of much that is theirs
]
CPU = torch.device("cpu")
SAMPLED = [name for name, family in FAMILIES.items() if not family.unsampled]
WINDOWED = {  # families in which another window than the family's is possible
    f"{name}, window": (name, settings)
    for name, settings in {
        "mistral": {"sliding_window": 24},
        "mixtral": {"sliding_window": 24},
        "phi3": {"sliding_window": 24},
        "phimoe": {"sliding_window": 24},
        "starcoder2": {"sliding_window": 24},
        "qwen2": {"sliding_window": 24, "use_sliding_window": True, "max_window_layers": 1},
        "qwen3_moe": {"sliding_window": 24, "use_sliding_window": True, "max_window_layers": 1},
    }.items()
}
WHOLE = {  # a window that is no shorter than the context is full attention
    f"{name}, whole": (name, {"sliding_window": CONTEXT})
    for name in ("mistral", "gemma3_text", "olmo3", "exaone4", "ministral", "cohere2")
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in SAMPLED},
    **WINDOWED,
    **WHOLE,
}


def made(case: str) -> Any:
    model_type, settings = CASES[case]
    return small_model(small_config(model_type, **settings))


def runner_of(model: Any) -> Runner:
    if unusual(model):
        return Fallback(model, CPU, CONTEXT)
    return Decoder(Weights(model), CPU)


def paths_of_a_tree() -> tuple[list[Tensor], list[Tensor]]:
    """Token ids and names of three paths, of which the second leaves the first and the third the second."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(3, 600, (3, 90)))
    first = ids[0]
    second = torch.cat([first[:40], ids[1, 40:80]])
    third = torch.cat([second[:60], ids[2, 60:90]])
    names = [torch.arange(90), torch.cat([torch.arange(40), torch.arange(100, 140)])]
    names.append(torch.cat([names[1][:60], torch.arange(200, 230)]))
    return [first, second, third], names


@pytest.mark.parametrize("case", CASES)
def test_the_engine_computes_what_the_model_computes(case):
    model = made(case)
    ids = np.random.default_rng(1).integers(3, 600, (2, 90))
    with torch.no_grad():
        expected = [
            model(input_ids=torch.tensor(row)[None], use_cache=False).logits[0] for row in ids
        ]
    runner, lengths = runner_of(model), [20, 70]
    runner.prefill([0, 1], [0, 0], [row[:length] for row, length in zip(ids, lengths)])
    for step in range(4):
        slots = [0, 1] * 4
        places = [lengths[slot] + step for slot in slots]
        logits = runner.decode(
            slots, places, [int(ids[slot, place]) for slot, place in zip(slots, places)]
        )
        for row, slot, place in zip(logits, slots, places):
            torch.testing.assert_close(row, expected[slot][place], rtol=0, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_learner_computes_what_the_model_computes_or_refuses_it(case, tmp_path):
    model = made(case)
    if support_of(model.config.to_dict()).untrained:
        model.config.save_pretrained(tmp_path)
        check_architecture(tmp_path, trains=False)
        with pytest.raises(UnsupportedModel, match="which turngym evaluates but does not train"):
            check_architecture(tmp_path, trains=True)
        return
    tokens, names = paths_of_a_tree()
    layout = layout_of(tokens, names)
    base, head, scale = (
        model.base_model,
        model.get_output_embeddings(),
        logit_scale(model.config.to_dict()),
    )
    hidden = hidden_states(model, layout, CPU)
    weights = [
        torch.randn(len(path), hidden.shape[1], generator=torch.Generator().manual_seed(1))
        for path in tokens
    ]
    alone = [base(input_ids=path[None], use_cache=False).last_hidden_state[0] for path in tokens]
    for place, path, expected in zip(layout.places, tokens, alone, strict=True):
        torch.testing.assert_close(hidden[place], expected, rtol=0, atol=2e-5)
        logits = model(input_ids=path[None], use_cache=False).logits[0]
        torch.testing.assert_close(head(hidden[place] * scale), logits, rtol=0, atol=1e-4)
    shared = sum((hidden[place] * weight).sum() for place, weight in zip(layout.places, weights))
    apart = sum((path * weight).sum() for path, weight in zip(alone, weights))
    assert (gradient(base, shared) - gradient(base, apart)).norm() < 1e-5 * gradient(
        base, apart
    ).norm()


def gradient(base: Any, loss: Any) -> Tensor:
    parameters = [parameter for parameter in base.parameters() if parameter.requires_grad]
    parts = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    zeros = (torch.zeros_like(parameter) for parameter in parameters)
    return torch.cat(
        [(zero if part is None else part).flatten() for part, zero in zip(parts, zeros)]
    )


@pytest.mark.parametrize("case", CASES)
def test_a_step_and_an_evaluation_come_to_their_end_or_are_refused(case, tmp_path):
    model = made(case)
    folder = save_model(model, tmp_path / "model")
    config = TrainConfig(
        "turngym/Math-v0", policy=str(folder), out=str(tmp_path / "run"), prompts=2, group=2
    )
    config = config.changed(max_tokens=6, steps=1, eval_every=1, eval_tasks=1, difficulty=(1,))
    sampling = SamplingOptions(max_tokens=6)
    prepared = evaluate.prepare("turngym/Math-v0", {}, str(folder), episodes=1, sampling=sampling)
    assert evaluate.run(prepared).episodes == 1
    if support_of(model.config.to_dict()).untrained:
        with pytest.raises(UnsupportedModel):
            prepare(config)
        return
    with closing(prepare(config)) as run:
        assert [record.step for record in execute(run)][-1] == 1
    again = evaluate.prepare(
        "turngym/Math-v0", {}, str(tmp_path / "run"), episodes=1, sampling=sampling
    )
    assert evaluate.run(again).episodes == 1


UNTRIED = {  # families that stand in no table: what becomes of an evaluation, and of a run
    "helium": ("", ""),
    "biogpt": ("", ""),
    "codegen": ("", "the learner does not compute what the model's own forward pass computes"),
    "hyperclovax": ("", "the learner does not compute what the model's own forward pass computes"),
    "openai-gpt": ("the torch engine cannot compute it", "the learner does not compute"),
}


@pytest.mark.parametrize("model_type", UNTRIED)
def test_a_family_that_nobody_tried_is_compared_with_its_own_forward_pass(model_type, tmp_path):
    settings = {"logits_scaling": 4.0} if model_type == "hyperclovax" else {}
    model = small_model(small_config(model_type, **settings))
    policy = load_policy(save_model(model, tmp_path), lora=LoraOptions(4, 8.0))
    unsampled, untrained = UNTRIED[model_type]
    with pytest.raises(UnsupportedModel, match=unsampled) if unsampled else nullcontext():
        TorchEngine(policy).close()
    with pytest.raises(UnsupportedModel, match=untrained) if untrained else nullcontext():
        Learner(policy, chain(), 1e-3)
