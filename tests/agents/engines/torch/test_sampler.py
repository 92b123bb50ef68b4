import numpy as np
import torch

from turngym.agents.engine import Sampling
from turngym.agents.engines.torch.engine import sample


def test_draws_follow_the_tempered_and_truncated_distribution():
    logits = torch.tensor([1.0, 3.0, 2.0, 3.0, -4.0, 0.5, -torch.inf])
    base = logits.double().softmax(-1).numpy()
    n = 40_000
    uniform = np.random.default_rng(0).random(n)
    # most likely first: ids 1, 3, 2, 0, 5, 4 (ties by id); 0.85 of the mass needs three of them
    cases = {
        (1.0, 1.0, 0): base,
        (2.0, 1.0, 0): base**0.5,
        (1.0, 0.85, 0): base * [0, 1, 1, 1, 0, 0, 0],
    }
    cases |= {
        (1.0, 1.0, 3): base * [0, 1, 1, 1, 0, 0, 0],
        (0.0, 1.0, 0): base * [0, 1, 0, 0, 0, 0, 0],
    }
    for (temperature, top_p, top_k), weight in cases.items():
        want = weight / weight.sum()
        settings = [(Sampling(temperature, top_p, top_k), each) for each in uniform]
        token, logp, entropy = sample(logits.expand(n, -1), settings)
        share = np.bincount(token, minlength=7) / n
        assert np.abs(share - want).max() < 5 * 0.5 / np.sqrt(n)
        assert not share[want == 0].any()
        np.testing.assert_allclose(logp, np.log(want[token]), atol=1e-5)
        np.testing.assert_allclose(entropy, -(base[:6] * np.log(base[:6])).sum(), atol=1e-6)


def test_the_extreme_uniforms_draw_tokens_that_have_probability():
    logits = torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf]).repeat(2, 1)
    settings = [(Sampling(), uniform) for uniform in (0.0, np.nextafter(1.0, 0.0))]
    assert sample(logits, settings)[0].tolist() == [2, 1]
