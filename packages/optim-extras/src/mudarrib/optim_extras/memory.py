"""What training takes besides activations: bytes of weights, gradients and optimizer states, by formula."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .blockwise_8bit import BLOCK, SMALL
from .errors import OptionError
from .factored import FactoredSecondMoment
from .galore.projector import shapes
from .options import at_least
from .targets import hidden_matrices, match_modules

FLOAT = 4
GALORE = ("galore_adamw", "galore_adamw_8bit", "galore_adafactor")
APOLLO = ("apollo_adamw", "apollo_mini")
IN_BACKWARD = ("lomo", "adalomo")
KNOWN = (
    "sgd",
    "adamw",
    "muon",
    *IN_BACKWARD,
    *(f"{name}{end}" for name in (*GALORE, *APOLLO) for end in ("", "_layerwise")),
)
COMPARED = ("adamw", "galore_adamw", "galore_adamw_layerwise", "galore_adamw_8bit_layerwise", "lomo", "adalomo")


@dataclass(frozen=True)
class Memory:
    """Bytes of one optimizer on one model.

    Attributes:
        name: The optimizer.
        weights: Bytes of all parameters.
        gradients: Bytes of the gradients alive at once: of all that are trained, or of the largest.
        states: Bytes of moments and bases.
    """

    name: str
    weights: int
    gradients: int
    states: int

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.states

    def __str__(self) -> str:
        parts = (("weights", self.weights), ("gradients", self.gradients), ("states", self.states))
        return f"{self.name}: {self.total / 2**20:,.1f} MiB = " + " + ".join(
            f"{size / 2**20:,.1f} {part}" for part, size in parts
        )


def memory(
    model: torch.nn.Module,
    name: str,
    *,
    rank: int = 128,
    proj_type: str = "std",
    target_modules: str | Sequence[str] | None = None,
) -> Memory:
    """Bytes for weights, gradients and optimizer states; the model may be on the meta device.

    Args:
        model: The model; frozen parameters count as weights alone.
        name: adamw, sgd, muon, lomo, adalomo, or a name of GaLore or APOLLO, with or without `_layerwise`.
        rank: Of the low-rank optimizers.
        proj_type: Likewise.
        target_modules: Likewise, and of muon; see `match_modules`. All linear layers if not given, for muon without
            the output's.

    Raises:
        OptionError: the name or `proj_type` is unknown, the rank is below 1, or the targets match nothing.
    """
    if name not in KNOWN:
        raise OptionError("name", name, f"the known ones are {', '.join(KNOWN)}")
    at_least({"rank": rank}, rank=1)
    base = name.removesuffix("_layerwise")
    rank = 1 if base == "apollo_mini" else rank
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    low_rank = base in (*GALORE, *APOLLO)
    targets: set[int] = set()
    if low_rank:
        targets = {id(p) for p in match_modules(model, target_modules or "all-linear").parameters}
    elif base == "muon":
        targets = {id(p) for p in hidden_matrices(model, target_modules)[1]}
    gradients = [size_of(parameter) for parameter in trained]
    one_at_a_time = base in IN_BACKWARD or name != base
    return Memory(
        name=name,
        weights=sum(map(size_of, parameters)),
        gradients=max(gradients, default=0) if one_at_a_time else sum(gradients),
        states=sum(state_of(base, p, rank, proj_type, id(p) in targets) for p in trained),
    )


def size_of(parameter: torch.Tensor) -> int:
    return parameter.numel() * parameter.element_size()


def state_of(base: str, parameter: torch.Tensor, rank: int, proj_type: str, is_target: bool) -> int:
    """Bytes of one parameter's state."""
    shape = tuple(parameter.shape)
    if base in ("sgd", "lomo"):
        return 0
    if base in ("adamw", "muon"):
        # torch's AdamW keeps the number of the step as a tensor for each parameter.
        return size_of(parameter) if is_target else 2 * size_of(parameter) + FLOAT
    bases = 0
    if is_target:
        shape, found = shapes(parameter.shape, rank, proj_type)
        # APOLLO draws its basis from a seed each time, and keeps the norm of the last update.
        entries = sum(rows * columns for rows, columns in found.values())
        bases = FLOAT if base in APOLLO else entries * parameter.element_size()
    if base in ("adalomo", "galore_adafactor"):
        return bases + FLOAT * sum(torch.Size(size).numel() for size in FactoredSecondMoment.shapes(shape).values())
    count = torch.Size(shape).numel()
    if base == "galore_adamw_8bit" and count >= SMALL:
        blocks = -(-count // BLOCK)
        return bases + 2 * blocks * (BLOCK + FLOAT)
    return bases + 2 * FLOAT * count


def draw(reports: Iterable[Memory], path: str | Path) -> None:
    """A bar for each report, in GiB, as a picture.

    Args:
        reports: What `memory` returned; see also `compare`.
        path: The picture's file, such as memory.png or memory.svg.

    Raises:
        ImportError: matplotlib is missing; it comes with the extra `report`.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('the picture needs: pip install "mudarrib-optim-extras[report]"') from error
    reports = list(reports)
    figure = Figure(figsize=(8, 0.6 * len(reports) + 1.5), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(reports)
    for part, colour in (("weights", "#8da0cb"), ("gradients", "#fc8d62"), ("states", "#66c2a5")):
        sizes = [getattr(report, part) / 2**30 for report in reports]
        axes.barh([report.name for report in reports], sizes, left=left, label=part, color=colour)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("GiB without activations")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def compare(model: torch.nn.Module, *, rank: int = 128, names: Sequence[str] = COMPARED) -> list[Memory]:
    """The reports of several optimizers on one model, AdamW's first.

    Args:
        model: The model.
        rank: Of the low-rank ones, which take all linear layers.
        names: Which.
    """
    return [memory(model, name, rank=rank) for name in names]
