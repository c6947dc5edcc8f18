"""Models and optimizers that no rank holds whole: each rank writes its shards, any number of ranks reads them.

The work is torch.distributed.checkpoint's, through its safetensors storage: its usual storage keeps a pickle, which
a loader would have to execute. Needs torch 2.8 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from .decode import decode
from .durable import FileRecord
from .encode import Encoded, Json, encode
from .errors import CheckpointError
from .tensors import write_tensors

_MODEL = "model."


class ShardedState:
    """A part that is a model under FSDP (or tensor parallel, or not sharded at all) with its optimizer.

    Parameters are known by their full names, so that a checkpoint of 8 ranks loads on 4, or on one process
    without any sharding. Every rank takes part in saving and loading. Shards are written while `save` runs, also in
    background mode.

    Args:
        model: The wrapped model.
        optimizer: Its optimizer, or several.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer | list[Optimizer]) -> None:
        self.model = model
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """The state by full names, sharded as it is."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put such a state back."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
        )

    def save_shards(self, folder: Path) -> Json:
        """Write this rank's shards into a folder that all ranks share.

        Returns:
            The structure, which refers to the tensors by name.
        """
        tree, tensors = self._encoded()
        separate(tensors)
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        save(dict(tensors), storage_writer=writer, no_dist=not dist.is_initialized())
        return tree

    def load_shards(self, folder: Path, tree: Json) -> dict[str, Any]:
        """The state of a folder that `save_shards` wrote, in the shards of this rank.

        Raises:
            CheckpointError: A parameter is missing, or of another shape.
        """
        tensors = self._encoded().tensors
        try:
            load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=not dist.is_initialized())
        except Exception as error:
            raise CheckpointError(
                str(folder), f"its shards do not fit ({error})", "Build model and optimizer as they were at saving."
            ) from error
        state: dict[str, Any] = decode(tree, tensors)
        return state

    def _encoded(self) -> Encoded:
        return encode(self.state_dict(), sharded=True)


def separate(tensors: dict[str, torch.Tensor]) -> None:
    """Give tensors that share memory their own, as safetensors has it: tied weights, and the steps of FSDP1."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        shard = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if type(shard) is torch.Tensor and shard.numel():
            address = shard.untyped_storage().data_ptr()
            if address in seen:
                tensors[name] = tensor.clone()
            seen.add(address)


def export_model(checkpoint: str | PathLike[str], file: str | PathLike[str], part: str = "sharded") -> FileRecord:
    """Write the model of a sharded checkpoint as one safetensors file, in one process.

    Args:
        checkpoint: The checkpoint's folder.
        file: The file to make, such as `model.safetensors`.
        part: The name of the `ShardedState` in it.

    Returns:
        Size and SHA-256 of the file.

    Raises:
        CheckpointError: There are no such shards, or they are damaged.
    """
    folder = Path(checkpoint) / part
    try:
        reader = HuggingFaceStorageReader(str(folder))
        described: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
        names = [name for name in described if name.startswith(_MODEL)]
        whole = {name: torch.empty(described[name].size, dtype=described[name].properties.dtype) for name in names}
        load(dict(whole), storage_reader=reader, no_dist=True)
    except Exception as error:
        raise CheckpointError(
            str(folder), f"no readable shards ({error})", "Name the part of the ShardedState."
        ) from error
    return write_tensors(Path(file), {name.removeprefix(_MODEL): tensor for name, tensor in whole.items()})
