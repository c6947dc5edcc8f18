"""Back from JSON and named tensors to the nested state; see `encode`."""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from .encode import _NUMPY_KINDS, TAG, Json
from .errors import CheckpointError
from .tensors import is_native


def decode(tree: Json, tensors: Mapping[str, torch.Tensor]) -> Any:  # whatever state_dict() gave
    """Build the state that `encode` took apart.

    Args:
        tree: The structure as read from JSON.
        tensors: The tensors that it refers to by name.

    Raises:
        CheckpointError: The structure is damaged or refers to what isn't there.
    """
    try:
        return _Decoder(tensors).value(tree)
    except CheckpointError:
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RuntimeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _damaged(why: str) -> CheckpointError:
    return CheckpointError("state", f"damaged ({why})", "Use an older checkpoint.")


class _Decoder:
    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = tensors
        self._seen: dict[str, torch.Tensor] = {}

    def value(self, node: Any) -> object:
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        if TAG not in node:
            return {key: self.value(item) for key, item in node.items()}
        build = _BUILDERS.get(node[TAG])
        if build is None:
            raise _damaged(f"unknown kind {node[TAG]!r}")
        return build(self, node)

    def _items(self, node: dict[str, Any]) -> list[Any]:
        return [self.value(item) for item in node["items"]]

    def _complex(self, node: dict[str, Any]) -> complex:
        real, imaginary = self._items(node)
        return complex(real, imaginary)

    def _pairs(self, items: list[Any]) -> list[tuple[Any, Any]]:
        return [(self.value(key), self.value(item)) for key, item in items]

    def _ordered(self, node: dict[str, Any]) -> object:
        state = OrderedDict(self._pairs(node["items"]))
        if "metadata" in node:
            state._metadata = OrderedDict(self._pairs(node["metadata"]))  # type: ignore[attr-defined]  # as nn.Module does
        return state

    def _bytes(self, node: dict[str, Any]) -> bytes:
        if "data" in node:
            return base64.b64decode(node["data"], validate=True)
        return self.tensors[node["name"]].numpy().tobytes()

    def _array(self, node: dict[str, Any]) -> Any:
        dtype = np.dtype(str(node["dtype"]))
        if dtype.kind not in _NUMPY_KINDS:
            raise _damaged(f"a NumPy array of {dtype}")
        return np.ndarray(tuple(node["shape"]), dtype, buffer=bytearray(self._bytes(node)) or None)

    def _tensor(self, node: dict[str, Any]) -> torch.Tensor:
        if "data" in node:
            return _from_bytes(self._bytes(node), _dtype(node["dtype"]), node["shape"])
        name = node["name"]
        if name not in self._seen:
            tensor = self.tensors[name]
            if "dtype" in node:
                dtype = _dtype(node["dtype"])
                if is_native(dtype):
                    raise _damaged(f"{name} claims to be {dtype}")
                tensor = tensor.view(dtype).reshape(node["shape"])
            self._seen[name] = tensor
        return self._seen[name]


# Of the class: a table of bound methods would keep the decoder, and so a whole checkpoint, until the next collection.
_BUILDERS: dict[str, Callable[[_Decoder, dict[str, Any]], object]] = {
    "int": lambda _, node: int(node["value"], 16),
    "float": lambda _, node: float({"inf": "inf", "-inf": "-inf", "nan": "nan"}[node["value"]]),
    "complex": _Decoder._complex,
    "tuple": lambda self, node: tuple(self._items(node)),
    "set": lambda self, node: set(self._items(node)),
    "frozenset": lambda self, node: frozenset(self._items(node)),
    "size": lambda self, node: torch.Size(self._items(node)),
    "deque": lambda self, node: deque(self._items(node), maxlen=node["maxlen"]),
    "dict": lambda self, node: dict(self._pairs(node["items"])),
    "counter": lambda self, node: Counter(dict(self._pairs(node["items"]))),
    "ordered": _Decoder._ordered,
    "bytes": _Decoder._bytes,
    "bytearray": lambda self, node: bytearray(self._bytes(node)),
    "dtype": lambda _, node: _dtype(node["name"]),
    "device": lambda _, node: torch.device(node["name"]),
    "array": _Decoder._array,
    "scalar": lambda self, node: self._array(node)[()],
    "tensor": _Decoder._tensor,
}


def _from_bytes(data: bytes, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise _damaged(f"{name} is no dtype")
    return dtype
