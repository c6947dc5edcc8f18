"""What training takes besides activations: bytes of weights, gradients and optimizer states, by formula."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .blockwise_8bit import BLOCK, SMALL
from .errors import OptionError
from .galore.projector import sides
from .targets import match_modules

FLOAT = 4
GALORE = ("galore_adamw", "galore_adamw_8bit", "galore_adafactor")
APOLLO = ("apollo_adamw", "apollo_mini")
IN_BACKWARD = ("lomo", "adalomo")
KNOWN = ("sgd", "adamw", *IN_BACKWARD, *(f"{name}{end}" for name in (*GALORE, *APOLLO) for end in ("", "_layerwise")))
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
    target_modules: str | Sequence[str] = "all-linear",
) -> Memory:
    """Bytes for weights, gradients and optimizer states; the model may be on the meta device.

    Args:
        model: The model; frozen parameters count as weights alone.
        name: adamw, sgd, lomo, adalomo, or a name of GaLore or APOLLO, with or without `_layerwise`.
        rank: Of the low-rank optimizers.
        proj_type: Likewise.
        target_modules: Likewise; see `match_modules`.

    Raises:
        OptionError: the name is unknown, or the targets match nothing.
    """
    if name not in KNOWN:
        raise OptionError("name", name, f"the known ones are {', '.join(KNOWN)}")
    base = name.removesuffix("_layerwise")
    rank = 1 if base == "apollo_mini" else rank
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    low_rank = base in (*GALORE, *APOLLO)
    targets = {id(p) for p in match_modules(model, target_modules).parameters} if low_rank else set()
    gradients = [size_of(parameter) for parameter in trained]
    one_at_a_time = base in IN_BACKWARD or name != base
    return Memory(
        name=name,
        weights=sum(map(size_of, parameters)),
        gradients=max(gradients, default=0) if one_at_a_time else sum(gradients),
        states=sum(
            state_of(base, p, 1 if base == "apollo_mini" else rank, proj_type, id(p) in targets) for p in trained
        ),
    )


def size_of(parameter: torch.Tensor) -> int:
    return parameter.numel() * parameter.element_size()


def state_of(base: str, parameter: torch.Tensor, rank: int, proj_type: str, low_rank: bool) -> int:
    """Bytes of one parameter's state."""
    shape = tuple(parameter.shape)
    if base in ("sgd", "lomo"):
        return 0
    if base == "adamw":
        return 2 * size_of(parameter)
    bases = 0
    if low_rank:
        shape, columns = projected(parameter.shape, rank, proj_type)
        # APOLLO draws its basis from a seed each time, and keeps the norm of the last update.
        bases = FLOAT if base in APOLLO else columns * parameter.element_size()
    if base in ("adalomo", "galore_adafactor"):
        return bases + FLOAT * factored(shape)
    count = torch.Size(shape).numel()
    if base == "galore_adamw_8bit" and count >= SMALL:
        blocks = -(-count // BLOCK)
        return bases + 2 * blocks * (BLOCK + FLOAT)
    return bases + 2 * FLOAT * count


def projected(shape: torch.Size, rank: int, proj_type: str) -> tuple[tuple[int, ...], int]:
    """Shape of the gradient in its subspace, and the number of entries of the bases."""
    rows, columns = shape
    rank = min(rank, rows, columns)
    chosen = sides(shape, proj_type)
    low = (rank if "left" in chosen else rows, rank if "right" in chosen else columns)
    return low, rank * (rows * ("left" in chosen) + columns * ("right" in chosen))


def factored(shape: tuple[int, ...]) -> int:
    """Entries of row and column means over the last two axes; of a vector all."""
    if len(shape) < 2:
        return torch.Size(shape).numel()
    outer = torch.Size(shape[:-2]).numel()
    return outer * (shape[-2] + shape[-1])


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
