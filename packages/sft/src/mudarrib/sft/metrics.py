"""What people look at besides the loss: token accuracy, entropy, tokens seen, tokens a second, share of padding."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from mudarrib.core_loop import ExportableState, TrainerCallback

from .masking import IGNORED

IN_CACHE, IN_MEMORY = 2**19, 2**26  # logits that are worked on at once


class TokenMeter(TrainerCallback, ExportableState):
    """Sums over batches, kept on the device; `drain` is the only wait for it.

    It is a callback so that checkpoints keep what was seen.

    Attributes:
        seen: Tokens of all training up to the last log, over all processes; padding isn't counted.
    """

    def __init__(self) -> None:
        self.seen: int = 0
        self.started: float = time.perf_counter()
        self.sums: torch.Tensor | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: the tokens seen, with those of this process since the last log."""
        pending = 0 if self.sums is None else int(self.sums[3])
        return {"args": {}, "attributes": {"seen": self.seen + pending}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Time and sums of a run begin here."""
        self.started, self.sums = time.perf_counter(), None

    @torch.no_grad()
    def add(self, logits: torch.Tensor, labels: torch.Tensor, inputs: Mapping[str, Any]) -> None:
        """Count a batch: logits of shape (batch, seq, vocabulary), labels of shape (batch, seq)."""
        predicted, correct, entropy = predictions(logits, labels)
        slots = torch.tensor(labels.numel(), device=labels.device)
        exact = torch.float32 if labels.device.type == "mps" else torch.float64
        batch = torch.stack([x.to(exact) for x in (predicted, correct, entropy, n_tokens(inputs, labels), slots)])
        self.sums = batch if self.sums is None else self.sums + batch

    def drain(self, total: Callable[[torch.Tensor], Any], training: bool) -> dict[str, float]:
        """The metrics since the last call.

        Args:
            total: Sums a tensor over all processes.
            training: Count the tokens as seen, and their rate.
        """
        if self.sums is None:
            return {}
        predicted, correct, entropy, tokens, slots = torch.as_tensor(total(self.sums)).tolist()
        self.sums = None
        now = time.perf_counter()
        seconds, self.started = now - self.started, now
        metrics = {
            "mean_token_accuracy": correct / max(predicted, 1),
            "entropy": entropy / max(predicted, 1),
            "padding": 1 - tokens / max(slots, 1),
        }
        if training:
            self.seen += int(tokens)
            metrics["tokens_per_second"] = tokens / seconds
            metrics["num_tokens"] = self.seen
        return metrics


def predictions(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Over the predicted positions: how many, how many right, and the sum of the entropies in nats."""
    targets = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED).flatten()
    flat = logits.reshape(-1, logits.shape[-1])  # the labels move, since to cut the logits would copy them
    counted = targets != IGNORED
    correct = entropy = torch.zeros((), device=logits.device)
    at_once = max(1, (IN_CACHE if logits.device.type == "cpu" else IN_MEMORY) // logits.shape[-1])
    for begin in range(0, len(targets), at_once):  # a second copy of all logits would double the peak
        part = slice(begin, begin + at_once)
        each, chosen = entropies(flat[part].float())
        entropy = entropy + (each * counted[part]).sum()
        correct = correct + ((chosen == targets[part]) & counted[part]).sum()
    return counted.sum(), correct, entropy


def entropies(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy in nats, and most likely class, of each row of logits; shapes (rows,)."""
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p.clamp_(min=torch.finfo(log_p.dtype).min)  # 0 times -inf would not be a number
    return -p.mul_(log_p).sum(-1), logits.max(-1).indices


def n_tokens(inputs: Mapping[str, Any], labels: torch.Tensor) -> torch.Tensor:
    """Tokens of a batch that aren't padding.

    A packed batch has no mask; there a token counts when it continues an example or the next token does.
    """
    mask = inputs.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        return mask.sum()
    positions: torch.Tensor | None = inputs.get("position_ids")
    if positions is None:
        return torch.tensor(labels.numel(), device=labels.device)
    return (positions > 0).sum() + (positions[:, 1:] == 1).sum()


def dft_loss(logits: torch.Tensor, labels: torch.Tensor, count: torch.Tensor | int | None) -> torch.Tensor:
    """Dynamic fine-tuning: each token's loss times its probability, as a constant (arXiv 2508.05629).

    Args:
        logits: Shape (batch, seq, vocabulary).
        labels: Shape (batch, seq); -100 doesn't count.
        count: Divides the sum; None for the targets of this batch.
    """
    targets = labels[:, 1:].reshape(-1)
    flat = logits[:, :-1].reshape(-1, logits.shape[-1]).float()
    nll = torch.nn.functional.cross_entropy(flat, targets, reduction="none", ignore_index=IGNORED)
    weighted = nll * torch.exp(-nll.detach())
    divisor = (targets != IGNORED).sum().clamp(min=1) if count is None else count
    return weighted.sum() / divisor
