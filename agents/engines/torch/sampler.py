"""Drawing tokens for many rows at once: temper, truncate, inverse CDF.

Everything reduces along the vocabulary inside one row, so a row's numbers do not depend on the other rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...engine import Sampling


@dataclass
class RowSampling:
    """How each of n rows is sampled: uniforms in [0, 1), temperatures, top-p, top-k (0 = off); arrays [n]."""

    uniform: NDArray[np.float64]
    temperature: NDArray[np.float32]
    top_p: NDArray[np.float64]
    top_k: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[tuple[Sampling, float]]) -> "RowSampling":
        """Return how each row is sampled, given its sampling and its uniform."""
        each = [(uniform, one.temperature, one.top_p, one.top_k) for one, uniform in rows]
        kinds: tuple[type[np.generic], ...] = (np.float64, np.float32, np.float64, np.int64)
        return cls(*(np.array(column, kind) for column, kind in zip(zip(*each), kinds)))


@torch.inference_mode()
def sample(logits: Tensor, sampling: RowSampling) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """Return token, log-probability as drawn (nats) and untempered, untruncated entropy (nats) of every row, [n] each.

    `logits` is float32 [n, vocabulary]. Temperature 0 takes the most likely token, the lowest id among equals, with
    log-probability 0.
    """
    if logits.device.type == "mps":  # has no float64
        logits = logits.cpu()
    logp = logits.log_softmax(-1).clamp_min_(torch.finfo(logits.dtype).min)
    probability = logits.softmax(-1)
    entropy = -torch.linalg.vecdot(probability, logp)
    shaped = _shaped(logits, sampling)
    if shaped is not logits:
        logp, probability = shaped.log_softmax(-1), shaped.softmax(-1)
    cdf = probability.double().cumsum_(-1)
    # A target in (0, total] never meets a token of probability 0 and never runs past the last one.
    target = (1 - torch.from_numpy(sampling.uniform).to(cdf.device))[:, None] * cdf[:, -1:]
    token = torch.searchsorted(cdf, target).clamp_(max=logits.shape[1] - 1)
    drawn = logp.gather(1, token)
    if (greedy := sampling.temperature == 0).any():  # a maximum, which costs no sort of the vocabulary
        chosen = torch.from_numpy(greedy).to(logits.device)[:, None]
        token = torch.where(chosen, logits.argmax(-1, keepdim=True), token)
        drawn = drawn.masked_fill(chosen, 0)
    # Ids are exact in float32 below 2**24, and one transfer a step is cheaper than three.
    rows = torch.stack((token[:, 0].float(), drawn[:, 0], entropy)).cpu().numpy()
    return rows[0].astype(np.int64), rows[1], rows[2]


def _shaped(logits: Tensor, sampling: RowSampling) -> Tensor:
    """Return logits tempered (but for temperature 0) and truncated, -inf where cut; the same object if neither."""
    temperature = np.where(sampling.temperature == 0, np.float32(1), sampling.temperature)
    if (temperature != 1).any():
        logits = logits / torch.from_numpy(temperature).to(logits.device)[:, None]
    if (sampling.top_p < 1).any() or (sampling.top_k > 0).any():
        logits = _truncated(logits, sampling.top_p, np.where(sampling.top_k == 0, logits.shape[1], sampling.top_k))
    return logits


def _truncated(logits: Tensor, top_p: NDArray[np.float64], top_k: NDArray[np.int64]) -> Tensor:
    ordered, order = logits.sort(stable=True, dim=-1, descending=True)
    probability = ordered.softmax(-1).double()
    before = probability.cumsum(-1) - probability
    most = torch.from_numpy(top_p).to(logits.device)[:, None]
    rank = torch.arange(logits.shape[1], device=logits.device)
    keep = (rank < torch.from_numpy(top_k).to(logits.device)[:, None]) & ((before < most) | (most == 1))
    return logits.masked_fill(~torch.zeros_like(keep).scatter_(1, order, keep), -torch.inf)
