"""Tensors as bytes, and the safetensors files that hold them.

The file is written here, byte for byte as the format asks, so that its SHA-256 comes out of the same pass and
nothing is copied; it is read by the safetensors library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from .durable import DurableFile, FileRecord
from .errors import CheckpointError

# What the format itself names since safetensors 0.5; all others are stored as bytes, and the tree keeps their type.
_NATIVE = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_native(dtype: torch.dtype) -> bool:
    """Whether the file format names this dtype."""
    return dtype in _NATIVE


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers of the same width: what torch can copy whatever the dtype is."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    carrier = _CARRIERS.get(plain.element_size())
    return plain if carrier is None else plain.view(carrier)


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The tensor's numbers, row-major, as bytes; no copy where they already lie so on the CPU."""
    flat = as_integers(tensor).cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def memory_key(tensor: torch.Tensor) -> tuple[object, ...] | None:
    """Equal for two tensors that are the same view of the same memory; None for a tensor without any."""
    if not tensor.numel():
        return None
    flags = tensor.is_conj(), tensor.is_neg()
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device, flags


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> FileRecord:
    """Write a safetensors file and see it onto the disk.

    Args:
        path: The file to make.
        tensors: Name to tensor, on any device, contiguous or not.

    Returns:
        Size and SHA-256 of the file.
    """
    # Wide types first, so that every tensor starts at a multiple of its own width.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in order:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        native = is_native(tensor.dtype)
        header[name] = {
            "dtype": _NATIVE.get(tensor.dtype, "U8"),
            "shape": list(tensor.shape) if native else [end - offset],
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with DurableFile(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(as_bytes(tensors[name]))
    return file.record


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, on the CPU.

    Raises:
        CheckpointError: The file is missing, cut or not of this format.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except Exception as error:
        raise CheckpointError(
            str(path), f"not a readable safetensors file ({error})", "Use an older checkpoint."
        ) from error


def check_length(path: Path) -> None:
    """See that a safetensors file is as long as its header says; reads the header alone.

    Raises:
        CheckpointError: It isn't.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if length > size:
                raise ValueError("cut in its header")
            header = json.loads(file.read(length))
        end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
        if size != 8 + length + end:
            raise ValueError(f"{size} bytes instead of {8 + length + end}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CheckpointError(str(path), f"damaged ({error})", "Use an older checkpoint.") from error
