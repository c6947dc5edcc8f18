"""Seeds of every generator, and determinism where it is asked for."""

from __future__ import annotations

import os
import random

import numpy as np
import torch


def set_seed(seed: int) -> None:
    """Seed Python, NumPy and torch on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def enable_full_determinism(seed: int) -> None:
    """Seed everything and make torch refuse algorithms that are not deterministic."""
    set_seed(seed)
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    os.environ["FLASH_ATTENTION_DETERMINISTIC"] = "1"
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def apply(seed: int, full_determinism: bool) -> None:
    if full_determinism:
        enable_full_determinism(seed)
    else:
        set_seed(seed)
