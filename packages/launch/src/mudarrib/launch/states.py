"""Bytes of optimizer states by formula, for each optimizer by its name in TrainingArguments."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from .errors import ConfigError
from .phrases import phrase
from .shapes import ModelShape, Weight

FLOAT = 4
# bitsandbytes and mudarrib-optim-extras quantise blocks of 256 values, and leave small tensors in float32.
BLOCK, SMALL = 256, 4096


@dataclass(frozen=True)
class Optimizer:
    """What one optimizer keeps.

    Attributes:
        state: Bytes for a weight, from the weight, the bytes of its entries, and the rank.
        in_backward: Each update is made inside backward, and its gradient freed at once.
        whole_matrices: What needs whole matrices is held whole by each process under FSDP; ZeRO, which flattens
            the parameters, cannot do it.
        scratch: Bytes for each entry that a step takes besides: of all parameters at once.
        spares_output: The matrix of the language model's head is stepped as what is no matrix.
    """

    state: Callable[[Weight, int, int], int]
    in_backward: bool = False
    whole_matrices: bool = False
    scratch: int = 0
    spares_output: bool = False


def nothing(weight: Weight, entry: int, rank: int) -> int:
    """SGD without momentum, and LOMO."""
    return 0


def one(weight: Weight, entry: int, rank: int) -> int:
    """One moment: Lion, RMSprop, Adagrad."""
    return entry * weight.count


def two(weight: Weight, entry: int, rank: int) -> int:
    """AdamW's two moments, in the weights' own type, and the number of the step."""
    return 2 * entry * weight.count + FLOAT


def quantised(moments: int) -> Callable[[Weight, int, int], int]:
    """Moments in 8 bits with a scale a block; embeddings stay in float32, as bitsandbytes' users set it."""

    def state(weight: Weight, entry: int, rank: int) -> int:
        if weight.kind == "embedding":
            return moments * FLOAT * weight.count
        return moments * in_8_bits(weight.count)

    return state


def in_8_bits(count: int) -> int:
    """Bytes of that many values in 8 bits."""
    return FLOAT * count if count < SMALL else math.ceil(count / BLOCK) * (BLOCK + FLOAT)


def factored(shape: tuple[int, ...]) -> int:
    """Entries of row and column means over the last two axes (Adafactor, arXiv 1804.04235, section 3)."""
    if len(shape) < 2:
        return math.prod(shape)
    return math.prod(shape[:-2]) * (shape[-2] + shape[-1])


def row_and_column(weight: Weight, entry: int, rank: int) -> int:
    """Adafactor without momentum, and AdaLomo."""
    return FLOAT * factored(weight.shape)


def low_rank(kind: str) -> Callable[[Weight, int, int], int]:
    """GaLore's and APOLLO's states: moments in a subspace of each linear layer, and GaLore's basis.

    GaLore (arXiv 2403.03507, table 1): the moments are (larger side, rank), the basis (rank, smaller side).
    """

    def state(weight: Weight, entry: int, rank: int) -> int:
        if weight.kind != "linear":
            if kind == "adafactor":
                return row_and_column(weight, entry, rank)
            return 2 * in_8_bits(weight.count) if kind == "8bit" else 2 * FLOAT * weight.count
        large, small = max(weight.shape), min(weight.shape)
        kept = 1 if kind == "mini" else min(rank, small)
        if kind in ("apollo", "mini"):
            return FLOAT + 2 * FLOAT * large * kept
        basis = entry * small * kept
        if kind == "adafactor":
            return basis + FLOAT * (large + kept)
        return basis + (2 * in_8_bits(large * kept) if kind == "8bit" else 2 * FLOAT * large * kept)

    return state


def muon(weight: Weight, entry: int, rank: int) -> int:
    """One moment for matrices inside the layers, AdamW's two for the rest."""
    return entry * weight.count if weight.kind == "linear" else two(weight, entry, rank)


def _low_rank_names() -> dict[str, Optimizer]:
    kinds = {
        "galore_adamw": "adamw", "galore_adafactor": "adafactor", "galore_adamw_8bit": "8bit",
        "apollo_adamw": "apollo", "apollo_mini": "mini",
    }  # fmt: skip
    found = {}
    for name, kind in kinds.items():
        found[name] = Optimizer(low_rank(kind), whole_matrices=True)
        found[f"{name}_layerwise"] = Optimizer(low_rank(kind), in_backward=True, whole_matrices=True)
    return found


ADAMW = Optimizer(two)
EIGHT_BITS = Optimizer(quantised(2))
OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": ADAMW,
    "adamw_torch_fused": ADAMW,
    # Without the fused kernel torch steps all parameters at once and holds one more copy of them.
    "adamw_torch": Optimizer(two, scratch=FLOAT),
    "adamw_8bit": EIGHT_BITS,
    "adamw_bnb_8bit": EIGHT_BITS,
    "adamw_torch_8bit": EIGHT_BITS,
    "adafactor": Optimizer(row_and_column, whole_matrices=True),
    "sgd": Optimizer(nothing),
    "adagrad": Optimizer(one),
    "rmsprop": Optimizer(one),
    "lion_32bit": Optimizer(one),
    "lion_8bit": Optimizer(quantised(1)),
    "lomo": Optimizer(nothing, in_backward=True),
    "adalomo": Optimizer(row_and_column, in_backward=True, whole_matrices=True),
    "muon": Optimizer(muon, whole_matrices=True, spares_output=True),
    **_low_rank_names(),
}


def optimizer_named(name: str) -> Optimizer:
    """An optimizer by its name.

    Raises:
        ConfigError: there is no formula for it; names the nearest.
    """
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    near = difflib.get_close_matches(name, OPTIMIZERS, n=1)
    hint = phrase("did you mean {near}? ", near=near[0]) if near else ""
    known = ", ".join(sorted(OPTIMIZERS))
    raise ConfigError("--optimizer", name, phrase("{hint}the known ones are {known}", hint=hint, known=known))


def state_bytes(shape: ModelShape, name: str, entry: int, rank: int) -> int:
    """Bytes of the states for a whole model.

    Args:
        shape: The model.
        name: The optimizer.
        entry: Bytes of an entry of the weights.
        rank: Of low-rank optimizers.

    Raises:
        ConfigError: the optimizer is unknown.
    """
    optimizer = optimizer_named(name)
    return sum(
        optimizer.state(replace(weight, kind="other") if is_output(weight, shape, optimizer) else weight, entry, rank)
        * times
        for weight, times in shape.weights
    )


def is_output(weight: Weight, shape: ModelShape, optimizer: Optimizer) -> bool:
    """Whether a weight is the matrix of the language model's head, and the optimizer spares it."""
    return optimizer.spares_output and weight in shape.tail and weight.shape[0] == shape.vocabulary
