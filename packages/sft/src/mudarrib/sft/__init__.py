"""Supervised fine-tuning: `SFTTrainer` with exact packing, and `Seq2SeqTrainer` with generation.

Names are loaded when they are first used, so that the arguments of a script answer before torch is there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .collate import CausalCollator
    from .config import SFTConfig
    from .isolation import Isolation
    from .packed import PackedDataset
    from .packing import PackingPlan, pack
    from .probe import isolate
    from .seq2seq import Seq2SeqTrainer
    from .seq2seq_arguments import Seq2SeqTrainingArguments
    from .trainer import SFTTrainer

_HOME = {
    "CausalCollator": "collate",
    "Isolation": "isolation",
    "PackedDataset": "packed",
    "PackingPlan": "packing",
    "SFTConfig": "config",
    "SFTTrainer": "trainer",
    "Seq2SeqTrainer": "seq2seq",
    "Seq2SeqTrainingArguments": "seq2seq_arguments",
    "isolate": "probe",
    "pack": "packing",
}

__all__ = [
    "CausalCollator",
    "Isolation",
    "PackedDataset",
    "PackingPlan",
    "SFTConfig",
    "SFTTrainer",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "__version__",
    "isolate",
    "pack",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
