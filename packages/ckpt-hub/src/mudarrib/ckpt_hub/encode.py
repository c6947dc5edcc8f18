"""Nested state as JSON plus named tensors, without pickle.

Plain JSON stands for itself. Everything else is an object with the key "$" that names its kind, for example
`{"$": "tuple", "items": [...]}`. Tensors are taken out under names made of their path ("state.0.exp_avg") and
are stored in a safetensors file. Reading builds only the kinds listed here: no name of a class or function in
a file is ever looked up, so a file can't run code.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from .errors import CheckpointError
from .tensors import as_bytes, is_native, memory_key

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

TAG = "$"
_INLINE_BYTES = 4096
_NUMPY_KINDS = "biufcSUMm"


class Encoded(NamedTuple):
    """A state taken apart.

    Attributes:
        tree: The structure, ready for `json.dumps`.
        tensors: The tensors that the structure refers to by name; live, not copies.
    """

    tree: Json
    tensors: dict[str, torch.Tensor]


def encode(state: object, *, inline: bool = False, sharded: bool = False) -> Encoded:
    """Take a nested state apart.

    Args:
        state: Nested dict, list, tuple, set, frozenset, deque, Counter, OrderedDict, None, bool, int, float,
            complex, str, bytes, torch tensor, dtype, device, Size, NumPy array or scalar.
        inline: Put the tensors' bytes into the JSON, too; for small states that shall be one file.
        sharded: Let DTensors through, each under its own name.

    Returns:
        The tree and the tensors. The same tensor met twice is stored once, and is one tensor again after decoding.

    Raises:
        CheckpointError: Something in the state is of no known kind (the message says where it stands).
    """
    encoder = _Encoder(inline, sharded)
    try:
        tree = encoder.value(state, "")
    except RecursionError:
        raise CheckpointError(
            "state", "nested too deeply, or containing itself", "Save a flatter state from state_dict()."
        ) from None
    return Encoded(tree, encoder.tensors)


class _Encoder:
    def __init__(self, inline: bool, sharded: bool) -> None:
        self.inline = inline
        self.sharded = sharded
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def value(self, value: object, path: str) -> Json:
        if value is None or type(value) is bool or type(value) is str:
            return value
        handler = _HANDLERS.get(type(value))
        if handler is not None:
            return handler(self, value, path)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.ndarray | np.generic):
            return self._numpy(value, path)
        raise CheckpointError(
            f"state at {path or 'the top'}",
            f"a {type(value).__module__}.{type(value).__qualname__}",
            "A checkpoint holds data only: return numbers, strings, containers, tensors or arrays from state_dict().",
        )

    def _sequence(self, values: Iterable[object], path: str) -> list[Json]:
        return [self.value(value, _join(path, str(i))) for i, value in enumerate(values)]

    def _pairs(self, value: dict[object, object], path: str) -> list[Json]:
        return [[self.value(k, path), self.value(v, _join(path, str(k)))] for k, v in value.items()]

    def _list(self, value: object, path: str) -> Json:
        assert isinstance(value, list)
        return self._sequence(value, path)

    def _items(self, value: object, path: str) -> Json:
        assert isinstance(value, tuple | set | frozenset)
        kind = "size" if isinstance(value, torch.Size) else type(value).__name__
        # Sets of the same content must give the same bytes in every process.
        ordered = (
            sorted(value, key=lambda v: (type(v).__name__, repr(v))) if isinstance(value, set | frozenset) else value
        )
        return {TAG: kind, "items": self._sequence(ordered, path)}

    def _dict(self, value: object, path: str) -> Json:
        assert isinstance(value, dict)
        if TAG not in value and all(type(key) is str for key in value):
            return {key: self.value(item, _join(path, key)) for key, item in value.items()}
        return {TAG: "dict", "items": self._pairs(value, path)}

    def _ordered(self, value: object, path: str) -> Json:
        assert isinstance(value, OrderedDict)
        tree: dict[str, Json] = {TAG: "ordered", "items": self._pairs(value, path)}
        # nn.Module.state_dict() hangs the version of each submodule here, and load_state_dict reads it.
        metadata = getattr(value, "_metadata", None)
        if metadata is not None:
            tree["metadata"] = self._pairs(metadata, _join(path, "_metadata"))
        return tree

    def _counter(self, value: object, path: str) -> Json:
        assert isinstance(value, Counter)
        return {TAG: "counter", "items": self._pairs(dict(value), path)}

    def _deque(self, value: object, path: str) -> Json:
        assert isinstance(value, deque)
        return {TAG: "deque", "items": self._sequence(value, path), "maxlen": value.maxlen}

    def _bytes(self, value: object, path: str) -> Json:
        assert isinstance(value, bytes | bytearray)
        kind = type(value).__name__
        if self.inline or len(value) <= _INLINE_BYTES:
            return {TAG: kind, "data": _base64(bytes(value))}
        tensor = torch.frombuffer(bytearray(value), dtype=torch.uint8)
        return {TAG: kind, "name": self._store(tensor, path)}

    def _numpy(self, value: np.ndarray | np.generic, path: str) -> Json:
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in _NUMPY_KINDS:
            raise CheckpointError(
                f"state at {path or 'the top'}", f"a NumPy array of {array.dtype}", "Save numbers or text, not objects."
            )
        shape = list(value.shape)
        tree: dict[str, Json] = {TAG: "array", "dtype": array.dtype.str, "shape": [int(n) for n in shape]}
        if isinstance(value, np.generic):
            tree[TAG] = "scalar"
        data = array.tobytes()
        if self.inline or len(data) <= _INLINE_BYTES:
            return tree | {"data": _base64(data)}
        return tree | {"name": self._store(torch.frombuffer(bytearray(data), dtype=torch.uint8), path)}

    def _tensor(self, value: torch.Tensor, path: str) -> Json:
        if self.sharded:
            return {TAG: "tensor", "name": self._store(value.detach(), path)}
        tensor = _checked(value, path)
        if self.inline:
            data = _base64(bytes(as_bytes(tensor)))
            return {TAG: "tensor", "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape), "data": data}
        key = memory_key(tensor)
        name = None if key is None else self._names.get(key)
        if name is None:
            name = self._store(tensor, path)
            self._names |= {} if key is None else {key: name}
        tree: dict[str, Json] = {TAG: "tensor", "name": name}
        if not is_native(tensor.dtype):
            tree |= {"dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}
        return tree

    def _store(self, tensor: torch.Tensor, path: str) -> str:
        name, n = path or "value", 1
        while name in self.tensors:
            name, n = f"{path or 'value'}~{n}", n + 1
        self.tensors[name] = tensor
        return name


# By exact type: a subclass may hold more than its base says. A table of the class, since one of bound methods
# would keep the encoder, and so every tensor it met, until the next garbage collection.
_HANDLERS: dict[type, Callable[[_Encoder, object, str], Json]] = {
    int: lambda _, value, path: _encode_int(value),
    float: lambda _, value, path: _encode_float(value),
    complex: lambda _, value, path: _encode_complex(value),
    torch.dtype: lambda _, value, path: {TAG: "dtype", "name": dtype_name(value)},
    torch.device: lambda _, value, path: {TAG: "device", "name": str(value)},
    list: _Encoder._list,
    dict: _Encoder._dict,
    OrderedDict: _Encoder._ordered,
    Counter: _Encoder._counter,
    deque: _Encoder._deque,
    **dict.fromkeys((bytes, bytearray), _Encoder._bytes),
    **dict.fromkeys((tuple, set, frozenset, torch.Size), _Encoder._items),
}


def _checked(tensor: torch.Tensor, path: str) -> torch.Tensor:
    """The tensor without its graph, if its numbers alone say all that it is."""
    where = f"state at {path or 'the top'}"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise CheckpointError(
            where, f"a tensor subclass {type(tensor).__name__}", "Save its plain tensors, or use ShardedState."
        )
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise CheckpointError(where, f"a {tensor.layout} tensor of {tensor.dtype}", "Save its parts as dense tensors.")
    if tensor.is_meta:
        raise CheckpointError(where, "a tensor on the meta device", "Give it data before saving.")
    return tensor.detach()


def _encode_int(value: object) -> Json:
    assert isinstance(value, int)
    return value if -(2**63) <= value < 2**63 else {TAG: "int", "value": hex(value)}


def _encode_float(value: object) -> Json:
    assert isinstance(value, float)
    return value if math.isfinite(value) else {TAG: "float", "value": repr(value)}


def _encode_complex(value: object) -> Json:
    assert isinstance(value, complex)
    return {TAG: "complex", "items": [_encode_float(value.real), _encode_float(value.imag)]}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def dtype_name(dtype: object) -> str:
    """`torch.float32` as "float32"."""
    return str(dtype).removeprefix("torch.")
