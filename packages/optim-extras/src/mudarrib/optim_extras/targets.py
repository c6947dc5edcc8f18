"""Which modules a low-rank optimizer works on."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .errors import OptionError

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Matches:
    """What a target specification matched.

    Attributes:
        parameters: Weights of the matched linear layers.
        names: Names of those layers.
        left_out: Names of matched modules that are no linear layers and hold parameters; trained as usual.
    """

    parameters: tuple[torch.nn.Parameter, ...]
    names: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One line: how many layers, how many parameters, what was left out."""
        count = sum(parameter.numel() for parameter in self.parameters)
        left = f"; trained as usual: {len(self.left_out)} matched modules that are not linear" if self.left_out else ""
        return f"{len(self.names)} linear layers matched, {count:,} parameters in low rank{left}."


def match_modules(model: torch.nn.Module, spec: str | Sequence[str] | None) -> Matches:
    """Find the linear layers that a specification names.

    Args:
        model: The model.
        spec: "all-linear"; or a list of parts of names, full names or regular expressions, any of which may
            match; or one such text. Conv1D layers of transformers (GPT-2) count as linear.

    Raises:
        OptionError: nothing is named, or no linear layer matches; says what there is.
    """
    if not isinstance(spec, (str, list, tuple, set, frozenset, type(None))):
        raise OptionError("optim_target_modules", spec, 'give texts, such as ["attn", "mlp"], or "all-linear"')
    if not spec:
        raise OptionError("optim_target_modules", spec, 'name modules, such as ["attn", "mlp"], or "all-linear"')
    parameters: dict[torch.nn.Parameter, str] = {}
    left_out, frozen = [], []
    for name, module in model.named_modules():
        if not matches(name, spec):
            continue
        weight = linear_weight(module)
        if weight is not None:
            if weight.requires_grad:
                parameters.setdefault(weight, name)
            else:
                frozen.append(name)
        elif spec != "all-linear" and next(module.parameters(recurse=False), None) is not None:
            left_out.append(name)
    if frozen and not parameters:
        raise OptionError("optim_target_modules", spec, f"{frozen[:6]} are frozen; requires_grad_(True) trains them")
    if not parameters:
        linear = [name for name, module in model.named_modules() if linear_weight(module) is not None]
        raise OptionError(
            "optim_target_modules", spec, f"no linear layer of that name; there are {linear[:6] or 'none'} and so on"
        )
    return Matches(tuple(parameters), tuple(parameters.values()), tuple(left_out))


def hidden_matrices(
    model: torch.nn.Module, spec: str | Sequence[str] | None
) -> tuple[Matches, list[torch.nn.Parameter]]:
    """What Muon is for: the named layers, or all linear ones but those tied to the embeddings or the output.

    Raises:
        OptionError: no linear layer matches.
    """
    found = match_modules(model, spec or "all-linear")
    ends = [getattr(model, name, lambda: None)() for name in ("get_input_embeddings", "get_output_embeddings")]
    tied = {id(parameter) for module in ends if module is not None for parameter in module.parameters()}
    return found, [parameter for parameter in found.parameters if spec or id(parameter) not in tied]


def linear_weight(module: torch.nn.Module) -> torch.nn.Parameter | None:
    """The weight of a linear layer; None if the module is not one."""
    if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D":
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.nn.Parameter) and weight.dim() == 2 and weight.is_floating_point():
            return weight
    return None


def matches(name: str, spec: str | Sequence[str]) -> bool:
    """Whether a module's name is meant."""
    if isinstance(spec, str):
        if spec.replace("_", "-") == "all-linear":
            return True
        spec = [spec]
    return bool(name) and any(part in name or _is_match(part, name) for part in spec)


def _is_match(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise OptionError("optim_target_modules", pattern, f"it is no valid regular expression: {error}") from error
