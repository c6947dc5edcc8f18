"""Collects nested outputs of many batches into NumPy arrays, each row copied once where the size is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

PADDING = -100


def nested_map(function: Callable[[torch.Tensor], Any], data: Any) -> Any:
    """The same structure with `function` applied to each tensor."""
    if isinstance(data, torch.Tensor):
        return function(data)
    if isinstance(data, Mapping):
        return {key: nested_map(function, value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(nested_map(function, value) for value in data))
    if isinstance(data, list | tuple):
        return type(data)(nested_map(function, value) for value in data)
    return data


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


class ArrayBuffer:
    """Rows of one tensor, batch after batch; later dimensions may differ and are padded with -100.

    Args:
        n_rows: Rows to come, if known: they are then written into place at once.
    """

    def __init__(self, n_rows: int | None = None) -> None:
        self.n_rows = n_rows
        self.array: np.ndarray | None = None
        self.filled: int = 0
        self.parts: list[np.ndarray] = []

    def add(self, tensor: torch.Tensor) -> None:
        rows = to_numpy(tensor if tensor.dim() else tensor[None])
        if self.n_rows is not None and self.array is None and not self.parts:
            self.array = np.empty((self.n_rows, *rows.shape[1:]), rows.dtype)
        fits = self.array is not None and rows.shape[1:] == self.array.shape[1:]
        if fits and self.array is not None and self.filled + len(rows) <= len(self.array):
            self.array[self.filled : self.filled + len(rows)] = rows
            self.filled += len(rows)
        else:
            self._keep_apart(rows.copy())

    def _keep_apart(self, rows: np.ndarray) -> None:
        if self.array is not None:
            self.parts.append(self.array[: self.filled])
            self.array = None
        self.parts.append(rows)

    def result(self) -> np.ndarray | None:
        """All rows, shape (rows, ...); None if there were none."""
        if self.array is not None:
            return self.array[: self.filled]
        if not self.parts:
            return None
        shape = [max(sizes) for sizes in zip(*(part.shape[1:] for part in self.parts), strict=True)]
        dtype = np.result_type(*(part.dtype for part in self.parts))
        ragged = any(list(part.shape[1:]) != shape for part in self.parts)
        whole = np.empty((sum(map(len, self.parts)), *shape), dtype)
        start = 0
        self.parts.reverse()
        while self.parts:
            # Parts are released one by one, so that the peak is one copy and a batch.
            part = self.parts.pop()
            target = whole[start : start + len(part)]
            if ragged:
                target[...] = PADDING
            target[tuple(slice(size) for size in part.shape)] = part
            start += len(part)
        return whole


class NestedBuffer:
    """The same for nested outputs (tuples, lists, dicts); leaves that are no tensors are dropped.

    Args:
        n_rows: Rows to come, if known.
        concatenate: False keeps a list with one entry a batch (`eval_do_concat_batches`).
        wait: Batches to hold on the device before they are copied to the CPU (`eval_accumulation_steps`).
    """

    def __init__(self, n_rows: int | None = None, concatenate: bool = True, wait: int | None = 1) -> None:
        self.n_rows = n_rows
        self.concatenate = concatenate
        self.wait = wait
        self.held: list[Any] = []
        self.batches: list[Any] = []
        self.tree: Any = None

    def add(self, data: Any) -> None:
        if data is None:
            return
        self.held.append(data)
        on_device = any(tensor.device.type != "cpu" for tensor in leaves(data))
        if not on_device or (self.wait is not None and len(self.held) >= self.wait):
            self._store()

    def _store(self) -> None:
        for data in self.held:
            if not self.concatenate:
                self.batches.append(nested_map(to_numpy, data))
                continue
            if self.tree is None:
                self.tree = nested_map(lambda tensor: ArrayBuffer(self.n_rows), data)
            fill(self.tree, data)
        self.held.clear()

    def result(self) -> Any:
        """The arrays in the structure of the outputs; None if nothing was added."""
        self._store()
        return finish(self.tree) if self.concatenate else (self.batches or None)


def leaves(data: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    nested_map(found.append, data)
    return found


def fill(tree: Any, data: Any) -> None:
    if isinstance(tree, ArrayBuffer):
        tree.add(data)
    elif isinstance(tree, Mapping):
        for key, branch in tree.items():
            fill(branch, data[key])
    elif isinstance(tree, list | tuple):
        for branch, part in zip(tree, data, strict=True):
            fill(branch, part)


def finish(tree: Any) -> Any:
    if isinstance(tree, ArrayBuffer):
        return tree.result()
    if isinstance(tree, Mapping):
        return {key: finish(branch) for key, branch in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(finish(branch) for branch in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(finish(branch) for branch in tree)
    return tree


def reassemble(flat: list[torch.Tensor], data: Any) -> Any:
    """`data` with its tensors replaced, in order, by those of `flat`."""
    tensors = iter(flat)
    return nested_map(lambda _: next(tensors), data)
