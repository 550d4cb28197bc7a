"""Choosing tokens from logits: masks first, then temperature, then top-p."""

from __future__ import annotations

import torch
from torch import Tensor


def apply_bitmask(logits: Tensor, bitmask: Tensor) -> Tensor:
    """Return logits with every id whose bit is 0 at minus infinity.

    logits: [n, vocab] float32; bitmask: [n, words] int32, bit i % 32 of word i // 32.
    """
    shifts = torch.arange(32, dtype=torch.int32, device=bitmask.device)
    bits = (bitmask.unsqueeze(-1) >> shifts) & 1
    allowed = bits.flatten(1)[:, : logits.shape[1]].bool()
    return logits.masked_fill(~allowed, float("-inf"))


def sample(logits: Tensor, temperature: Tensor, top_p: Tensor, uniforms: Tensor) -> Tensor:
    """Draw one id a row by inverting the distribution function at `uniforms`.

    logits: [n, vocab] float32, minus infinity where an id is illegal; temperature > 0, top_p in
    (0, 1], uniforms in [0, 1): [n]. Top-p keeps the smallest set of most probable ids whose mass
    reaches top_p (Holtzman et al. 2020, "The curious case of neural text degeneration"). Rows are
    independent of each other, so a row draws the same alone and in a batch.
    """
    scaled = logits.double() / temperature.double().unsqueeze(1)
    probabilities = torch.softmax(scaled, dim=-1)
    ordered, ids = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    mass = torch.cumsum(ordered, dim=-1)
    # An id is kept while the mass before it is below top_p: at least the first one is.
    kept = (mass - ordered < top_p.double().unsqueeze(1)) & (ordered > 0)
    total = torch.where(kept, ordered, 0.0).sum(dim=-1, keepdim=True)
    place = (mass <= uniforms.double().unsqueeze(1) * total).sum(dim=-1, keepdim=True)
    last = kept.sum(dim=-1, keepdim=True) - 1
    return ids.gather(1, torch.minimum(place, last)).squeeze(1)
