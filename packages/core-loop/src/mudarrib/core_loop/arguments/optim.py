"""The optimizer, the loss, and what happens to gradients."""

from __future__ import annotations

from dataclasses import dataclass

from .field import argument


@dataclass
class OptimArguments:
    optim: str = argument("adamw_torch_fused", "Name of the optimizer.")
    optim_args: str | None = argument(None, "Options of the optimizer, as 'name=value, name=value'.")
    optim_target_modules: None | str | list[str] = argument(
        None, "Modules that a low-rank optimizer works on: names, a regular expression, or 'all-linear'."
    )
    weight_decay: float = argument(0.0, "Decay of weights, not of biases and normalisation layers.")
    adam_beta1: float = argument(0.9, "Decay of the first moment of Adam.")
    adam_beta2: float = argument(0.999, "Decay of the second moment of Adam.")
    adam_epsilon: float = argument(1e-8, "Added to the root of Adam's second moment.")
    max_grad_norm: float = argument(1.0, "Clip gradients to this global norm; 0 for not at all.")
    label_smoothing_factor: float = argument(0.0, "Share of the target that goes to all classes alike, 0 to 1.")
    average_tokens_across_devices: bool = argument(
        True, "Divide the loss by the targets of all devices, so that each counts the same."
    )
    count_predicted_tokens: bool = argument(
        True,
        "Divide the loss of a causal model by the tokens that it predicts, not by all labels but -100: the first "
        "of a row is never predicted.",
    )
    neftune_noise_alpha: float | None = argument(None, "Noise on the embeddings while training (NEFTune), often 5.")
