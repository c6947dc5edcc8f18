#!/usr/bin/env python3
"""8-bit states: this package's quantisation against that of bitsandbytes, on one tensor.

Shown for first moments (signed) and second ones: whether the scales are equal, how many codes differ, how far what
comes back is from what went in (root mean square, as a share of the input's),
and the time of both directions. Needs bitsandbytes beside this package; it serves CPU and CUDA.

    python tools/bench/optim_8bit.py --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from bitsandbytes import functional

from mudarrib.optim_extras import blockwise_8bit as ours


def in_torch(device: torch.device) -> None:
    """Stands in for the choice of kernels: none."""


def by_bitsandbytes(device: torch.device) -> object:
    """Stands in for the choice of kernels: bitsandbytes on any device."""
    return functional


def round_trip(values: torch.Tensor, signed: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    began = time.perf_counter()
    codes, scales = ours.quantise(values, signed)
    back = ours.dequantise(codes, scales, values.shape, signed)
    if values.is_cuda:
        torch.cuda.synchronize()
    return codes, scales, back, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=768)
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = ours.kernels(torch.device(options.device))
    print(f"on {options.device} the package itself uses {'torch' if chosen is None else chosen.__name__}")
    for signed in (True, False):
        values = torch.randn(options.rows, options.columns, device=options.device)
        values = values if signed else values.square()
        ratios = []
        for _ in range(options.rounds):
            ours.kernels = in_torch
            codes, scales, back, took = round_trip(values, signed)
            ours.kernels = by_bitsandbytes
            their_codes, their_scales, their_back, theirs = round_trip(values, signed)
            ratios.append(took / theirs)
        differ = float((codes != their_codes).float().mean())
        errors = [float((found - values).norm() / values.norm()) for found in (back, their_back)]
        print(
            f"{'first' if signed else 'second'} moment: scales equal {torch.equal(scales, their_scales)}, "
            f"{differ:.1%} of codes differ, error {errors[0]:.5f} and {errors[1]:.5f}, "
            f"time {statistics.median(ratios):.2f} x theirs"
        )


if __name__ == "__main__":
    main()
