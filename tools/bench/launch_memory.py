#!/usr/bin/env python3
"""Peak memory of really training a small model, beside what `mudarrib-launch plan` says by formula and by simulation.

Two gloo processes on this CPU train for three steps under DDP and under FSDP2 (sharded as accelerate does). Measured
are live tensors: a TorchDispatchMode sees each storage that an operation makes, a weak reference its end; resizing, by
which FSDP frees what it gathered, counts as well. Under DDP torch's own profiler is read beside it (--profiler); under
FSDP it misses what gloo's threads free. What gloo itself allocates is not counted: no GPU run has it.

    python tools/bench/launch_memory.py
    python tools/bench/launch_memory.py --cases llama/fsdp2 gpt2/ddp --json
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

WORLD = 2
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 352,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 1024, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 128, "n_layer": 4, "n_head": 4,
    "vocab_size": 1000, "n_positions": 1024, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True,
    "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "activation_function": "gelu_new",
}  # fmt: skip
BERT = {
    "model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 128,
    "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 1000,
    "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}  # fmt: skip
T5 = {
    "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 128, "d_ff": 256, "d_kv": 32,
    "num_layers": 3, "num_heads": 4, "vocab_size": 1000, "feed_forward_proj": "relu", "dropout_rate": 0.1,
    "is_encoder_decoder": True, "decoder_start_token_id": 0, "pad_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip
MODELS = {"llama": LLAMA, "gpt2": GPT2, "bert": BERT, "t5": T5}
BIG = {**LLAMA, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6, "vocab_size": 4000}
MODELS["llama-wide"] = BIG
ENGINES = {"ddp": ("ddp", "nothing"), "fsdp2": ("fsdp2", "all"), "fsdp2-grad-op": ("fsdp2", "gradients")}
SIZES = {"": {"batch": 2, "seq_len": 64}, "long": {"batch": 4, "seq_len": 256}, "tiny": {"batch": 1, "seq_len": 16}}
# model/engine[/size][/checkpointing][/bf16]
CASES = [
    *(f"{model}/{engine}" for model in ("llama", "gpt2") for engine in ENGINES),
    *(f"{case}/{size}" for case in ("llama/ddp", "llama/fsdp2", "gpt2/ddp", "gpt2/fsdp2") for size in ("long", "tiny")),
    *(f"llama-wide/{engine}" for engine in ENGINES),
    "llama/ddp/long/checkpointing", "llama/fsdp2/long/checkpointing", "gpt2/fsdp2/long/checkpointing",
    "llama/ddp/long/bf16", "llama/fsdp2/long/bf16", "bert/ddp/long", "bert/fsdp2/long", "t5/ddp/long",
]  # fmt: skip


def case_of(text: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Model, work and setup that a case's name stands for."""
    model, engine, *more = text.split("/")
    engine, shards = ENGINES[engine]
    size = next((SIZES[word] for word in more if word in SIZES), SIZES[""])
    work = {**size, "mixed_precision": "bf16" if "bf16" in more else "no", "on_cpu": True}
    processes = 1 if engine == "ddp" else WORLD
    setup = {
        "name": text, "engine": engine, "shards": shards, "processes": processes, "world": WORLD,
        "checkpointing": "checkpointing" in more,
    }  # fmt: skip
    return MODELS[model], work, setup


def train(values: dict[str, Any], work: Any, setup: Any, mark: Any) -> None:
    """Three steps of this process."""
    import torch
    import transformers

    from mudarrib.launch.simulate import HALF, casting, checkpoint, inputs_for, shard

    config = transformers.AutoConfig.for_model(**values)
    model = getattr(transformers, values["architectures"][0])(config).train()
    model.config.use_cache = False
    if setup.checkpointing:
        checkpoint(model)
    if setup.engine == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    else:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (WORLD,))
        shard(model, mesh, reshard=setup.shards == "all", half=HALF.get(work.mixed_precision))
        wrapped = model
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-4, foreach=False)
    batch = inputs_for(model, values, work)
    gc.collect()
    mark()
    for _ in range(3):
        with casting(work, setup):
            loss = wrapped(**batch).loss
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()


def live_peak(values: dict[str, Any], work: Any, setup: Any) -> int:
    """The greatest sum of live storages during the steps, in bytes."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Live(TorchDispatchMode):
        """Counts storages from the operation that makes them to their end."""

        def __init__(self) -> None:
            super().__init__()
            self.sizes: dict[int, tuple[int, Any]] = {}
            self.now = self.most = 0

        def note(self, storage: torch.UntypedStorage) -> None:
            key, size = storage._cdata, storage.nbytes()
            if key in self.sizes:
                self.now += size - self.sizes[key][0]
                self.sizes[key] = (size, self.sizes[key][1])
            else:
                self.sizes[key] = (size, weakref.ref(storage, lambda _: self.forget(key)))
                self.now += size
            self.most = max(self.most, self.now)

        def forget(self, key: int) -> None:
            self.now -= self.sizes.pop(key)[0]

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.note(getattr(leaf, "_local_tensor", leaf).untyped_storage())
            return result

    live = Live()
    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        live.note(storage)
        return result

    torch.UntypedStorage.resize_ = resized
    try:
        with live:
            train(values, work, setup, lambda: setattr(live, "most", live.now))
    finally:
        torch.UntypedStorage.resize_ = resize
    return live.most


def profiler_peak(values: dict[str, Any], work: Any, setup: Any) -> int:
    """The same from torch's profiler: the sums of its allocations and releases, in order of time."""
    from torch.profiler import ProfilerActivity, profile, record_function

    def mark() -> None:
        with record_function("training begins"):
            pass

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        train(values, work, setup, mark)
    now = most = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
        elif event.name() == "training begins":
            most = now
    return most


def work_through(options: argparse.Namespace) -> None:
    """What each process does; the first also asks the formula and the simulation, and prints."""
    import torch
    import torch.distributed as dist

    from mudarrib.launch.memory import Setup, Work, memory_of
    from mudarrib.launch.model_config import shape_of
    from mudarrib.launch.simulate import simulate

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=options.rank, world_size=WORLD)
    rows = [measured(name, options.profiler) for name in options.cases]
    dist.destroy_process_group()
    for row in rows if options.rank == 0 else ():
        values, work_fields, setup_fields = case_of(row["case"])
        work, setup = Work(**work_fields), Setup(**setup_fields)
        formula = memory_of(shape_of(values), work, setup)
        simulated = simulate(values, work, setup)
        row |= {"formula": formula.total, "formula parts": asdict(formula)}
        row |= {"simulated": simulated.total, "simulated parts": asdict(simulated)}
        print(json.dumps(row), flush=True)


def measured(name: str, profiler: bool) -> dict[str, Any]:
    """A case really trained."""
    from mudarrib.launch.memory import Setup, Work

    values, work_fields, setup_fields = case_of(name)
    work, setup = Work(**work_fields), Setup(**setup_fields)
    row: dict[str, Any] = {"case": name, "measured": live_peak(values, work, setup)}
    if profiler and setup.engine == "ddp":
        row["profiler"] = profiler_peak(values, work, setup)
    gc.collect()
    return row


def rows_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the processes; the rows of the first, as they come."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error",
    }  # fmt: skip
    command = [sys.executable, __file__, *(["--profiler"] if options.profiler else []), "--cases", *options.cases]
    ranks = [
        subprocess.Popen([*command, "--rank", str(rank)], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(WORLD)
    ]
    try:
        assert ranks[0].stdout is not None
        yield from (json.loads(line) for line in ranks[0].stdout if line.startswith("{"))
        if ranks[0].wait():
            raise SystemExit("the first process failed; see above")
    finally:
        # Without the first the others wait in vain.
        for rank in ranks:
            rank.kill() if ranks[0].returncode else rank.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES, help="model/engine[/size][/checkpointing][/bf16]")
    parser.add_argument("--profiler", action="store_true", help="read torch's profiler as well, under DDP")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, with all parts")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        return work_through(options)
    if not options.json:
        print(f"{'case':32} {'measured MB':>11} {'formula':>8} {'simulated':>9} {'profiler':>8}  (shares of measured)")
    for row in rows_of(options):
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        shares = [row[name] / row["measured"] if name in row else None for name in ("formula", "simulated", "profiler")]
        formula, simulated, profiler = ("" if share is None else f"{share:.3f}" for share in shares)
        print(f"{row['case']:32} {row['measured'] / 1e6:11.2f} {formula:>8} {simulated:>9} {profiler:>8}", flush=True)
    return None


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
