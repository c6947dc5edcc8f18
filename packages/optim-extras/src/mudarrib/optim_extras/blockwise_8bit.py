"""8-bit optimizer states: blockwise dynamic quantisation (arXiv 2110.02861), in torch on any device.

On CUDA the kernels of bitsandbytes do it where that is installed: the same codes, scales and table, in one pass.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

BLOCK = 256
SMALL = 4096


@lru_cache(maxsize=8)
def codebook(signed: bool, device: torch.device) -> torch.Tensor:
    """The 256 values that a code stands for, ascending: a dynamic exponent and a linear fraction, within [-1, 1].

    Args:
        signed: For first moments; second moments are never negative and use the sign's bit for the fraction.
        device: Where the table lives.
    """
    exponents = 7
    values = [0.0, 1.0]
    for exponent in range(exponents):
        edges = torch.linspace(0.1, 1, 2 ** (exponent + (0 if signed else 1)) + 1, dtype=torch.float64)
        means = ((edges[:-1] + edges[1:]) / 2 * 10.0 ** (exponent - exponents + 1)).tolist()
        values += [*means, *((-value for value in means) if signed else ())]
    return torch.tensor(sorted(values), dtype=torch.float32, device=device)


def kernels(device: torch.device) -> ModuleType | None:
    """The functions of bitsandbytes, for tensors on CUDA where it is installed; else None."""
    if device.type != "cuda" or find_spec("bitsandbytes") is None:
        return None
    return importlib.import_module("bitsandbytes.functional")


def quantise(values: torch.Tensor, signed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and block scales of a tensor.

    Returns:
        Codes, uint8, shape (blocks, 256), the last block padded; scales, float32, shape (blocks,).
    """
    flat = values.float().flatten()
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK)
    table = codebook(signed, values.device)
    fast = kernels(values.device)
    if fast is not None:
        codes, found = fast.quantize_blockwise(blocks, code=table, blocksize=BLOCK)
        return codes.view(blocks.shape), found.absmax
    scales = blocks.abs().amax(dim=1).clamp_(min=1e-38)
    middles = (table[1:] + table[:-1]) / 2
    return torch.bucketize(blocks / scales[:, None], middles).to(torch.uint8), scales


def dequantise(codes: torch.Tensor, scales: torch.Tensor, shape: torch.Size, signed: bool) -> torch.Tensor:
    """The tensor of `shape` that codes and scales stand for, float32."""
    table = codebook(signed, codes.device)
    fast = kernels(codes.device)
    blocks: torch.Tensor
    if fast is not None:
        blocks = fast.dequantize_blockwise(codes, absmax=scales, code=table, blocksize=BLOCK)
    else:
        blocks = table[codes.int()] * scales[:, None]
    return blocks.flatten()[: shape.numel()].view(shape)


def shapes(name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that a moment of this shape is stored in."""
    count = torch.Size(shape).numel()
    blocks = -(-count // BLOCK)
    return {name: shape} if count < SMALL else {f"{name}_codes": (blocks, BLOCK), f"{name}_scales": (blocks,)}


def store(state: dict[str, Any], name: str, values: torch.Tensor, signed: bool) -> None:
    """Put a moment into an optimizer's state in 8 bits; small ones stay in float32."""
    if values.numel() < SMALL:
        state[name] = values
        return
    state[f"{name}_codes"], state[f"{name}_scales"] = quantise(values, signed)


def fetch(state: dict[str, Any], name: str, shape: torch.Size, device: torch.device, signed: bool) -> torch.Tensor:
    """The moment, in float32; zeros if there is none yet."""
    if f"{name}_codes" in state:
        return dequantise(state[f"{name}_codes"], state[f"{name}_scales"], shape, signed)
    found = state.get(name)
    return torch.zeros(shape, device=device) if found is None else found.float()
