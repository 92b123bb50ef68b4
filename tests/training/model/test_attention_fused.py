"""The blocks of FlexAttention beside the relation they stand for, and its forward pass beside that of segments.

PyTorch has no backward pass of FlexAttention on CPU: gradients are those of plain attention with the same mask.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers import Qwen2Config, Qwen2ForCausalLM

from turngym.training.data import layout
from turngym.training.data.layout import BLOCK, Layout, layout_of, padding
from turngym.training.model import attention
from turngym.training.model.attention import block_mask, hidden_states

CPU = torch.device("cpu")


def forest(seed: int, paths: int = 9, longest: int = 160) -> tuple[list[Tensor], list[Tensor]]:
    """Token ids and names of paths that leave each other anywhere, in an order that need not be depth first."""
    rng, grown, count = torch.Generator().manual_seed(seed), list[list[int]](), 0

    def draw(bound: int) -> int:
        return int(torch.randint(bound, (), generator=rng))

    for _ in range(paths):
        kept = grown[draw(len(grown))] if grown and draw(5) else []
        kept = kept[: 1 + draw(len(kept))] if kept else []
        size = draw(longest) + (not kept)
        grown.append([*kept, *range(count, count + size)])
        count += size
    ids = torch.randint(40, (count,), generator=rng)
    return [ids[path] for path in grown], [torch.tensor(path) for path in grown]


def dense(blocks: BlockMask) -> Tensor:
    """What the function of a block mask says of every pair."""
    n = torch.arange(blocks.shape[-1])
    return blocks.mask_mod(n[:1], n[:1], n[:, None], n[None])


def relation(laid: Layout) -> Tensor:
    """What every pair must be, by the paths alone; padding is a path of its own."""
    size = len(laid.tokens) + padding(laid)
    seen = torch.zeros(size, size, dtype=torch.bool)
    for place in (*laid.places, torch.arange(len(laid.tokens), size)):
        seen[place[:, None], place] |= torch.ones(len(place), len(place), dtype=torch.bool).tril()
    return seen


@pytest.mark.parametrize("longest", [512, 30])
@pytest.mark.parametrize("seed", range(8))
def test_a_token_sees_what_lies_before_it_on_its_paths_and_itself(seed, longest, monkeypatch):
    monkeypatch.setattr(layout, "LONGEST", longest)
    laid = layout_of(*forest(seed))
    assert torch.equal(dense(block_mask(laid, CPU)), relation(laid))


@pytest.mark.parametrize("seed", range(8))
def test_blocks_are_those_that_the_dense_mask_gives(seed):
    laid = layout_of(*forest(seed, paths=14, longest=400))
    mine = block_mask(laid, CPU)
    size = len(laid.tokens) + padding(laid)
    theirs = create_block_mask(
        mine.mask_mod, None, None, size, size, device="cpu", BLOCK_SIZE=BLOCK
    )
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(mine, name), getattr(theirs, name))
    assert torch.equal(mine.to_dense(), theirs.to_dense())
    for which, count in (
        ("kv_indices", "kv_num_blocks"),
        ("full_kv_indices", "full_kv_num_blocks"),
    ):
        listed = torch.arange(size // BLOCK) < getattr(mine, count)[..., None]
        assert torch.equal(getattr(mine, which)[listed], getattr(theirs, which)[listed])
    assert mine.shape == (1, 1, size, size) and int(mine.full_kv_num_blocks.sum())


def test_whole_blocks_need_no_padding():
    laid = layout_of([torch.arange(256)], [torch.arange(256)])
    assert padding(laid) == 0 and torch.equal(
        dense(block_mask(laid, CPU)), torch.ones(256, 256).tril().bool()
    )
    assert padding(layout_of([torch.arange(257)], [torch.arange(257)])) == 127


def model(dtype: torch.dtype) -> Any:
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen2ForCausalLM(config).to(dtype).eval()


def unfused(*inputs: Any, **options: Any) -> Any:
    """FlexAttention's own mathematics, without a compiler for C++."""
    return torch.compile(flex_attention, backend="eager")(*inputs, **options)


@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_hidden_states_are_those_of_segments(dtype, apart, monkeypatch):
    monkeypatch.setattr(attention, "_compiled", lambda: unfused)
    one, laid = model(dtype), layout_of(*forest(2))
    with torch.no_grad():
        found = hidden_states(one, laid, CPU, fused=True)
        expected = hidden_states(one, laid, CPU)
    assert found.shape == (len(laid.tokens), 64) and padding(laid)
    assert (found - expected).norm() < apart * expected.norm()


def masked(
    query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask, scale: float, enable_gqa: bool
) -> Tensor:
    """Plain attention to what a block mask shows, its blocks and its function both."""
    shown = (
        block_mask.to_dense()[0, 0].bool().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    )
    mask = shown & dense(block_mask)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa
    )


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_through_the_mask_are_those_of_segments(checkpointing, monkeypatch):
    monkeypatch.setattr(attention, "_compiled", lambda: masked)
    one, laid = model(torch.float64), layout_of(*forest(3))
    weight = torch.randn(
        len(laid.tokens), 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )

    def gradient(**options: Any) -> Tensor:
        loss = (hidden_states(one, laid, CPU, **options) * weight).sum()
        return torch.cat(
            [part.flatten() for part in torch.autograd.grad(loss, list(one.model.parameters()))]
        )

    expected = gradient()
    assert (
        gradient(fused=True, checkpointing=checkpointing) - expected
    ).norm() < 1e-9 * expected.norm()
