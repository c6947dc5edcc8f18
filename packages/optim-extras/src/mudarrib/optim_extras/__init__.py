"""GaLore, APOLLO, LOMO, AdaLomo, Muon and NEFTune for any PyTorch loop, on torch alone."""

from ._version import __version__
from .adalomo import AdaLomo, FusedAdaLomo
from .apollo import ApolloAdamW, ApolloAdamWLayerwise
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
from .memory import Memory, compare, draw, memory
from .muon import MuonWithAdamW
from .neftune import neftune
from .targets import Matches, match_modules

__all__ = [
    "AdaLomo",
    "ApolloAdamW",
    "ApolloAdamWLayerwise",
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
    "Memory",
    "MuonWithAdamW",
    "OptionError",
    "__version__",
    "compare",
    "draw",
    "for_hf_trainer",
    "match_modules",
    "memory",
    "neftune",
]
