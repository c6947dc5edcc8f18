"""GaLore: optimizers whose state lives in a low-rank subspace of the gradient (arXiv 2403.03507)."""

from .adafactor import GaLoreAdafactor, GaLoreAdafactorLayerwise
from .adamw import GaLoreAdamW, GaLoreAdamWLayerwise
from .adamw_8bit import GaLoreAdamW8bit, GaLoreAdamW8bitLayerwise

__all__ = [
    "GaLoreAdafactor",
    "GaLoreAdafactorLayerwise",
    "GaLoreAdamW",
    "GaLoreAdamW8bit",
    "GaLoreAdamW8bitLayerwise",
    "GaLoreAdamWLayerwise",
]
