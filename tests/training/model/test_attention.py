"""Attention over layouts of random trees, beside each path computed alone by the model's own eager attention."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from turngym.training.data import layout
from turngym.training.data.layout import layout_of
from turngym.training.model import attention
from turngym.training.model.attention import hidden_states

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "initializer_range": 0.3,
}
KINDS: dict[str, Callable[[], Any]] = {
    "grouped": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_attention_heads=4, num_key_value_heads=2)
    ),
    "own keys": lambda: Qwen3ForCausalLM(
        Qwen3Config(**SIZES, num_attention_heads=4, num_key_value_heads=4, head_dim=16)
    ),
    "one key": lambda: LlamaForCausalLM(
        LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=1)
    ),
}


def made(kind: Callable[[], Any]) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind().double().eval()
    model.config._attn_implementation = "eager"
    return model


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest) -> Any:
    return made(KINDS[request.param])


def forest(seed: int, paths: int = 7) -> tuple[list[Tensor], list[Tensor]]:
    """Token ids and names of paths that leave each other anywhere."""
    rng, grown, count = np.random.default_rng(seed), list[list[int]](), 0
    for _ in range(paths):
        kept = grown[rng.integers(len(grown))] if grown and rng.random() < 0.8 else []
        kept = kept[: rng.integers(1, len(kept) + 1)] if kept else []
        size = int(rng.integers(0 if kept else 1, 12))
        grown.append([*kept, *range(count, count + size)])
        count += size
    ids = torch.from_numpy(rng.integers(40, size=count))
    return [ids[path] for path in grown], [torch.tensor(path) for path in grown]


def gradients(model: Any, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, list(model.model.parameters()))
    return torch.cat([part.flatten() for part in found])


@pytest.mark.parametrize("longest", [512, 3])
@pytest.mark.parametrize("seed", range(3))
def test_hidden_states_and_gradients_are_those_of_each_path_alone(
    model, seed, longest, monkeypatch
):
    monkeypatch.setattr(layout, "LONGEST", longest)
    tokens, names = forest(seed)
    laid = layout_of(tokens, names)
    rng = torch.Generator().manual_seed(1)
    weights = [torch.randn(len(path), 32, dtype=torch.float64, generator=rng) for path in tokens]
    alone = [
        model.model(input_ids=path[None], use_cache=False).last_hidden_state[0] for path in tokens
    ]
    found = hidden_states(model, laid, torch.device("cpu"))
    for place, expected in zip(laid.places, alone, strict=True):
        torch.testing.assert_close(
            found[place], expected, rtol=0, atol=5e-6
        )  # eager softmax is float32
    # A token on several paths gets what all of them send back.
    one = gradients(
        model, sum((found[place] * weight).sum() for place, weight in zip(laid.places, weights))
    )
    other = gradients(model, sum((hidden * weight).sum() for hidden, weight in zip(alone, weights)))
    assert (one - other).norm() < 3e-6 * other.norm()


def test_no_token_is_computed_twice_and_no_mask_is_as_large_as_all_tokens(model, monkeypatch):
    tokens, names = forest(1, paths=12)
    laid, asked = layout_of(tokens, names), []
    sdpa = attention.scaled_dot_product_attention

    def counting(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        mask = options["attn_mask"]
        assert options["is_causal"] == (mask is None)
        assert mask is None or mask.shape == (query.shape[2], key.shape[2])
        asked.append(query.shape[2])
        return sdpa(query, key, value, **options)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", counting)
    hidden_states(model, laid, torch.device("cpu"))
    assert asked == [*laid.sizes] * 2 and sum(laid.sizes) == len(laid.tokens) < sum(
        map(len, tokens)
    )
    band = attention._band(laid, torch.float64, torch.device("cpu"))
    assert len(band) == max(size for size, chain in zip(laid.sizes, laid.chains) if len(chain) > 1)
    assert band.shape[1] == max(map(len, tokens)) + len(band)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_checkpointing_gives_the_same_gradient_and_keeps_less(model, dtype):
    one = made(lambda: model.__class__(model.config)).to(dtype)
    laid, kept = layout_of(*forest(1, paths=12)), dict[bool, int]()

    def gradient(checkpointing: bool) -> Tensor:
        kept[checkpointing] = 0

        def keep(tensor: Tensor) -> Tensor:
            kept[checkpointing] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            hidden = hidden_states(one, laid, torch.device("cpu"), checkpointing=checkpointing)
        assert (
            one.config._attn_implementation == "eager"
        )  # also while the layers are computed again
        return gradients(one, (hidden * torch.linspace(-1, 1, 32, dtype=dtype)).sum())

    plain, again = gradient(False), gradient(True)
    assert (again - plain).norm() <= 1e-6 * plain.norm()
    assert kept[True] < kept[False] / 5
    assert one.config._attn_implementation == "eager"
    assert not any(
        module.training or getattr(module, "gradient_checkpointing", False)
        for module in one.modules()
    )


def test_dropout_stays_off_where_layers_are_checkpointed(model):
    one, laid = made(lambda: model.__class__(model.config)), layout_of(*forest(1))
    plain = hidden_states(one, laid, torch.device("cpu"))
    inside = [
        module for layer in one.model.layers for module in layer.modules() if module is not layer
    ]
    seen = []
    hooks = [
        module.register_forward_pre_hook(lambda module, _: seen.append(module.training))
        for module in inside
    ]
    assert torch.equal(hidden_states(one, laid, torch.device("cpu"), checkpointing=True), plain)
    assert seen and not any(seen) and hooks


def test_the_band_holds_every_mask():
    band = attention._band(layout_of(*forest(2)), torch.float32, torch.device("cpu"))
    for size in range(1, len(band) + 1):
        for depth in range(size, band.shape[1] - len(band) + 1):
            visible = torch.arange(depth) <= torch.arange(depth - size, depth)[:, None]
            assert torch.equal(attention._mask(band, size, depth) == 0, visible)


def test_the_model_is_as_before_also_where_its_forward_pass_fails(model):
    before = model.config._attn_implementation
    hidden_states(model, layout_of(*forest(0)), torch.device("cpu"))
    assert model.config._attn_implementation == before
    with pytest.raises(IndexError):
        hidden_states(
            model, layout_of([torch.tensor([40])], [torch.tensor([0])]), torch.device("cpu")
        )
    assert model.config._attn_implementation == before


def test_attention_that_is_not_plain_is_refused():
    config = Gemma2Config(
        **SIZES,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_logit_softcapping=30.0,
    )
    model = made(lambda: Gemma2ForCausalLM(config))
    with pytest.raises(
        ValueError,
        match=r"the model's attention has (softcap|sliding_window), which the learner does no",
    ):
        hidden_states(model, layout_of(*forest(0)), torch.device("cpu"))
