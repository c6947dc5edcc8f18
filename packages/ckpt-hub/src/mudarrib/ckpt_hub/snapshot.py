"""A copy of the state in a buffer that is kept from one save to the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch.optim import Optimizer

from .errors import CheckpointError
from .stateful import Stateful
from .tensors import as_integers, memory_key


class _Pending(NamedTuple):
    target: torch.Tensor
    source: torch.Tensor
    version: int


class Snapshot:
    """Copies tensors into CPU buffers, at once or while the loop goes on.

    With `defer`, what only an optimizer's step changes (its parameters and its own state) is copied later, by
    `finish` on the writer's thread, while the next forward and backward run; each optimizer's next step waits for
    it by a hook. All else (batch statistics, parameters without an optimizer) is copied at once.
    """

    def __init__(self, defer: bool = False) -> None:
        self._defer = defer
        self._buffers: list[torch.Tensor] = []
        self._used = 0
        self._copies: dict[tuple[object, ...], torch.Tensor] = {}
        self._sources: list[torch.Tensor] = []
        self._pending: list[_Pending] = []
        self._held: set[int] = set()
        self._hooked: WeakSet[Optimizer] = WeakSet()
        self._stream: torch.cuda.Stream | None = None
        self._done = threading.Event()
        self._done.set()

    def begin(self, parts: Mapping[str, Stateful]) -> None:
        """Start a new snapshot; the buffer's old content is gone."""
        self._used = 0
        self._copies.clear()
        self._held = set()
        for optimizer in _optimizers(parts.values()) if self._defer else ():
            if optimizer not in self._hooked:
                optimizer.register_step_pre_hook(self._hold)
                self._hooked.add(optimizer)
            self._held |= {tensor.data_ptr() for tensor in _owned(optimizer)}
        in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch leaves it without types
        self._stream = torch.cuda.current_stream() if in_use else None
        self._done.clear()

    def copy(self, tree: Any) -> Any:  # of the same shape as what is given
        """The same nested dicts, lists and tuples with every tensor replaced by its copy on the CPU."""
        if isinstance(tree, torch.Tensor):
            return self._copy(tree.detach())
        if isinstance(tree, dict):
            copies: Any = type(tree)((key, self.copy(value)) for key, value in tree.items())
            if hasattr(tree, "_metadata"):
                copies._metadata = tree._metadata
            return copies
        if type(tree) in (list, tuple):
            return type(tree)(self.copy(value) for value in tree)
        return tree

    def _copy(self, source: torch.Tensor) -> torch.Tensor:
        # The same memory seen twice is copied once, so that shared weights stay shared.
        key = memory_key(source)
        if key is None:
            return self._buffer(source)
        if key not in self._copies:
            target = self._copies[key] = self._buffer(source)
            # Kept until all is copied: a tensor that is gone may leave its address, and so its key, to another.
            self._sources.append(source)
            if source.data_ptr() in self._held:
                self._pending.append(_Pending(target, source, _version(source)))
            else:
                as_integers(target).copy_(as_integers(source))
        return self._copies[key]

    def _buffer(self, source: torch.Tensor) -> torch.Tensor:
        position, self._used = self._used, self._used + 1
        if position < len(self._buffers):
            buffer = self._buffers[position]
            if buffer.shape == source.shape and buffer.dtype == source.dtype:
                return buffer
            del self._buffers[position:]
        buffer = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
        self._buffers.append(buffer)
        return buffer

    def finish(self) -> None:
        """Do the copies that were put off; called once for each snapshot, on the writer's thread.

        Raises:
            CheckpointError: A tensor was written to before its copy was made.
        """
        pending, self._pending, self._sources = self._pending, [], []
        try:
            with torch.cuda.stream(self._stream):  # the loop's own, so that the order of writes and copies holds
                for target, source, _ in pending:
                    as_integers(target).copy_(as_integers(source))
            if any(_version(source) != version for _, source, version in pending):
                raise CheckpointError(
                    "snapshot",
                    "weights or optimizer state changed while they were copied",
                    "Call store.finish_snapshot() before anything but an optimizer's step writes to them.",
                )
        finally:
            self._done.set()

    def wait(self) -> None:
        """Return when the state may be changed again."""
        self._done.wait()

    def abandon(self) -> None:
        """Forget a snapshot that nobody will write."""
        self._pending, self._sources = [], []
        self._done.set()

    def _hold(self, *_: object) -> None:
        self._done.wait()


def _optimizers(parts: Iterable[Stateful]) -> list[Optimizer]:
    """The torch optimizers among the parts, also inside a wrapper that has one as `.optimizer`.

    An optimizer that steps inside backward is left out: its state changes before any hook could wait.
    """
    found = []
    for part in parts:
        while isinstance(inner := getattr(part, "optimizer", None), Optimizer) and isinstance(part, Optimizer):
            part = inner
        if isinstance(part, Optimizer) and not hasattr(part, "begin_micro_batch"):
            found.append(part)
    return found


def _owned(optimizer: Optimizer) -> Iterable[torch.Tensor]:
    """What only the optimizer's step writes to."""
    for group in optimizer.param_groups:
        yield from group["params"]
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _version(tensor: torch.Tensor) -> int:
    """torch's count of in-place writes; inference tensors have none."""
    return 0 if tensor.is_inference() else tensor._version


Copy = Callable[[object], Any]
