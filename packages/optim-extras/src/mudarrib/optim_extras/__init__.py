"""GaLore, LOMO, AdaLomo and NEFTune for any PyTorch loop, on torch alone."""

from ._version import __version__
from .adalomo import AdaLomo, FusedAdaLomo
from .errors import OptionError
from .fused_backward import FusedBackward
from .galore import (
    GaLoreAdafactor,
    GaLoreAdafactorLayerwise,
    GaLoreAdamW,
    GaLoreAdamW8bit,
    GaLoreAdamW8bitLayerwise,
    GaLoreAdamWLayerwise,
)
from .hf import for_hf_trainer
from .lomo import FusedLomo, Lomo
from .neftune import neftune
from .targets import Matches, match_modules

__all__ = [
    "AdaLomo",
    "FusedAdaLomo",
    "FusedBackward",
    "FusedLomo",
    "GaLoreAdafactor",
    "GaLoreAdafactorLayerwise",
    "GaLoreAdamW",
    "GaLoreAdamW8bit",
    "GaLoreAdamW8bitLayerwise",
    "GaLoreAdamWLayerwise",
    "Lomo",
    "Matches",
    "OptionError",
    "__version__",
    "for_hf_trainer",
    "match_modules",
    "neftune",
]
