"""Drawing tokens for many rows at once: temper, truncate, inverse CDF.

Everything reduces along the vocabulary inside one row, so a row's numbers do not depend on the other rows.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...engine import Sampling

Drawn = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]


@torch.inference_mode()
def sample(logits: Tensor, rows: Sequence[tuple[Sampling, float]]) -> Drawn:
    """Return token, log-probability as drawn (nats) and untempered, untruncated entropy (nats) of every row, [n] each.

    `logits` is float32 [n, vocabulary]; each of the n `rows` has its sampling and a uniform in [0, 1). Temperature 0
    takes the most likely token, the lowest id among equals, with log-probability 0.
    """
    if logits.device.type == "mps":  # has no float64
        logits = logits.cpu()
    each = [(uniform, one.temperature, one.top_p, one.top_k) for one, uniform in rows]
    uniform, temperature, top_p, top_k = torch.tensor(each, dtype=torch.float64).T[..., None]  # [n, 1] each
    logp = logits.log_softmax(-1).clamp_min_(torch.finfo(logits.dtype).min)
    probability = logits.softmax(-1)
    entropy = -torch.linalg.vecdot(probability, logp)
    greedy, shaped = temperature == 0, logits
    if (tempered := temperature.masked_fill(greedy, 1).float()).ne(1).any():
        shaped = logits / tempered.to(logits.device)
    if (top_p < 1).any() or (top_k > 0).any():
        shaped = _truncated(shaped, top_p.to(logits.device), top_k.to(logits.device))
    if shaped is not logits:
        logp, probability = shaped.log_softmax(-1), shaped.softmax(-1)
    cdf = probability.double().cumsum_(-1)
    # A target in (0, total] never meets a token of probability 0 and never runs past the last one.
    target = (1 - uniform.to(cdf.device)) * cdf[:, -1:]
    token = torch.searchsorted(cdf, target).clamp_(max=logits.shape[1] - 1)
    drawn = logp.gather(1, token)
    if greedy.any():  # a maximum, which costs no sort of the vocabulary
        greedy = greedy.to(logits.device)
        token = torch.where(greedy, logits.argmax(-1, keepdim=True), token)
        drawn = drawn.masked_fill(greedy, 0)
    # Ids are exact in float32 below 2**24, and one transfer a step is cheaper than three.
    found = torch.stack((token[:, 0].float(), drawn[:, 0], entropy)).cpu().numpy()
    return found[0].astype(np.int64), found[1], found[2]


def _truncated(logits: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Return logits with -inf where they are cut; a top-p of 1 and a top-k of 0 keep all."""
    ordered, order = logits.sort(stable=True, dim=-1, descending=True)
    probability = ordered.softmax(-1).double()
    before = probability.cumsum(-1) - probability
    rank = torch.arange(logits.shape[1], device=logits.device)
    keep = ((rank < top_k) | (top_k == 0)) & ((before < top_p) | (top_p == 1))
    return logits.masked_fill(~torch.zeros_like(keep).scatter_(1, order, keep), -torch.inf)
