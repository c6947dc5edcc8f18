"""The training loss, kept on the device and read only when it is logged."""

from __future__ import annotations

import numpy as np
import torch

READ_AT_MOST_EVERY = 4096


class LossMeter:
    """Sums the losses of micro-batches; nothing waits for the device until `drain`.

    Args:
        nan_filter: Count a loss that is not finite as the mean of the steps before it since the last log,
            as the arguments' `logging_nan_inf_filter` says; else it makes the logged value not finite.
    """

    def __init__(self, nan_filter: bool = True) -> None:
        self.nan_filter = nan_filter
        self.total: float = 0.0
        self._pending: list[torch.Tensor] = []
        self._steps: list[int] = []
        self._sum = np.float32(0)

    def add(self, loss: torch.Tensor, steps_since_log: int) -> None:
        """Note the loss of a micro-batch, already scaled to its share of the step."""
        self._pending.append(loss)
        self._steps.append(steps_since_log)
        if len(self._pending) >= READ_AT_MOST_EVERY:
            self._read()

    def _read(self) -> None:
        if not self._pending:
            return
        losses = torch.stack([loss.detach().reshape(()).float() for loss in self._pending]).cpu().numpy()
        if np.isfinite(losses).all():
            self._sum = np.cumsum(np.concatenate(([self._sum], losses)), dtype=np.float32)[-1]
        else:
            for loss, steps in zip(losses, self._steps, strict=True):
                usable = np.isfinite(loss) or not self.nan_filter
                self._sum = np.float32(self._sum + (loss if usable else self._sum / np.float32(1 + steps)))
        self._pending.clear()
        self._steps.clear()

    def drain(self) -> float:
        """The sum since the last call; starts anew and keeps the total of the run."""
        self._read()
        drained = float(self._sum)
        self.total += drained
        self._sum = np.float32(0)
        return drained
