from types import SimpleNamespace

import pytest
import torch

from turngym.agents.engines.torch.runner import BLOCK, attend, attending, check_supported


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("queries", [1, 5])
def test_it_is_attention_as_it_is_defined(heads, queries):
    rng = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(3, n, length, width, generator=rng)
        for n, length, width in ((heads, queries, 8), (2, 64, 8), (2, 64, 4))
    )
    visible = torch.rand(3, 1, queries, 64, generator=rng) < 0.5
    mask = torch.zeros(visible.shape).masked_fill_(~visible, torch.finfo(torch.float32).min)
    found, none = attend(None, query, key, value, mask, scaling=0.3, dropout=0.0)
    each_key, each_value = (part.double().repeat_interleave(heads // 2, 1) for part in (key, value))
    scores = (query.double() @ each_key.mT * 0.3).masked_fill(~visible, -torch.inf)
    torch.testing.assert_close(found.double(), (scores.softmax(-1) @ each_value).transpose(1, 2), rtol=0, atol=2e-6)
    assert none is None


@pytest.mark.parametrize("key_heads", [1, 2])
def test_one_more_masked_block_gives_a_row_the_same_bits(key_heads):
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(8, 4, 1, 32, generator=rng)
    key, value = (torch.randn(8, key_heads, 4 * BLOCK, 32, generator=rng) for _ in range(2))
    for length in (1, 60, 320, 500, 700):
        seen = []
        for window in range(-(-length // BLOCK) * BLOCK, 4 * BLOCK + 1, BLOCK):
            mask = torch.zeros(8, 1, 1, window)
            mask[..., length:] = torch.finfo(mask.dtype).min
            seen.append(attend(None, query, key[:, :, :window], value[:, :, :window], mask)[0])
        assert all(torch.equal(one, seen[0]) for one in seen)


def test_rows_with_windows_of_their_own_have_the_bits_of_one_window():
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(8, 4, 1, 32, generator=rng)
    key, value = (torch.randn(8, 2, 3 * BLOCK, 32, generator=rng) for _ in range(2))
    lengths = torch.tensor([1, 512, 513, 700, 1400, 3, 1024, 1025])
    mask = torch.zeros(8, 1, 1, 3 * BLOCK).masked_fill_(
        torch.arange(3 * BLOCK) >= lengths[:, None, None, None], torch.finfo(torch.float32).min
    )
    windows = [512, 512, 1024, 1024, 1536, 512, 1024, 1536]
    one, own = (attend(None, query, key, value, mask, windows=some)[0] for some in ((), windows))
    assert torch.equal(one, own)


@pytest.mark.parametrize("key_heads, inside", [(2, "turngym-slots"), (4, "eager")])
def test_a_model_attends_as_before_afterwards(key_heads, inside):
    config = SimpleNamespace(num_attention_heads=4, num_key_value_heads=key_heads, _attn_implementation="eager")
    with pytest.raises(KeyError), attending(SimpleNamespace(config=config)):
        assert config._attn_implementation == inside
        raise KeyError
    assert config._attn_implementation == "eager"


def test_more_than_plain_attention_is_refused():
    part = torch.zeros(1, 1, 1, 8)
    with pytest.raises(ValueError, match="attention has softcap, which the torch engine does not compute"):
        attend(None, part, part, part, torch.zeros(1, 1, 1, 1), softcap=30.0)


@pytest.mark.parametrize(
    "config",
    [
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 64},
        {"sliding_window": 64},
        {"layer_types": ["full_attention"], "rope_parameters": {"rope_type": "dynamic"}},
    ],
)
def test_a_model_whose_rows_would_depend_on_the_batch_is_refused(config):
    with pytest.raises(ValueError, match="the model"):
        check_supported(SimpleNamespace(**config), 128)
