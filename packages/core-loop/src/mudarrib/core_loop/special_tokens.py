"""A model that is trained with a tokenizer stops, starts and pads at that tokenizer's tokens."""

from __future__ import annotations

import sys
from typing import Any

import torch

from .logs import Logger, get_logger

logger: Logger = get_logger(__name__)
NAMES = ("eos_token_id", "bos_token_id", "pad_token_id")


def align_special_tokens(model: torch.nn.Module, processing_class: Any) -> dict[str, int]:
    """Give a model's configuration the special tokens of its tokenizer, before it trains; say once what changed.

    A token that the tokenizer does not define leaves the configuration as it is. A list of end tokens is never
    shortened: the tokenizer's comes first, and generation goes on ending at the others too.

    Args:
        model: A model; one without a `config` is left alone.
        processing_class: A tokenizer, or a processor that has one; anything else is left alone.

    Returns:
        The ids that were changed, by name.
    """
    utilities = sys.modules.get("transformers.tokenization_utils_base")
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if utilities is None or not isinstance(tokenizer, utilities.PreTrainedTokenizerBase):
        return {}
    whole = getattr(model, "config", None)
    if whole is None:
        return {}
    config = whole.get_text_config() if hasattr(whole, "get_text_config") else whole
    generation = getattr(model, "generation_config", None)
    holders = [holder for holder in (config, generation) if holder is not None]
    changed = {}
    for name in NAMES:
        wanted = getattr(tokenizer, name)
        if wanted is None or all(wanted in _as_list(getattr(holder, name, None)) for holder in holders):
            continue
        for holder in holders:
            held = getattr(holder, name, None)
            grows = name == "eos_token_id" and (holder is generation or isinstance(held, list))
            others = [token for token in _as_list(held) if token not in (None, wanted)]
            setattr(holder, name, [wanted, *others] if grows else wanted)
        changed[name] = wanted
    if changed:
        logger.warning("The model's configuration takes its tokenizer's special tokens: %s", changed)
    return changed


def _as_list(tokens: Any) -> list[Any]:
    return tokens if isinstance(tokens, list) else [tokens]
