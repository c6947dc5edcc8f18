"""Does packing change the losses of examples? Ours and TRL's, for many architectures, in one run.

Each model is made from its config with the same weights. Its packed batch comes from `mudarrib.sft` and, where TRL is
installed, from TRL's SFTTrainer; the losses of the predicted tokens are compared with those of the examples one by one.

    python tools/bench/sft_exact.py            # wherever mudarrib-sft is installed
    python tools/bench/sft_exact.py --trl      # where TRL is installed, too
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
from pathlib import Path
from typing import Any

import torch

TESTS = Path(__file__).parents[2] / "packages/sft/tests/test_architectures.py"


def ours(bench: dict[str, Any], config: Any, attn: str) -> float:
    """The largest change of a token's loss that packing makes."""
    from mudarrib.sft import isolate

    packed = bench["make"](config, attn)
    isolate(packed)
    batch, order = bench["packed_batch"](bench["examples"]())
    return difference(bench, config, attn, packed, batch, order)


def trls(bench: dict[str, Any], config: Any, attn: str, tokenizer: Any) -> float:
    """The same for the batch of TRL's trainer, called as its trainer calls it."""
    import datasets
    from trl import SFTConfig, SFTTrainer

    rows = [row.tolist() for row in bench["examples"]()]
    packed = bench["make"](config, attn)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model=packed,
            args=SFTConfig(
                folder,
                packing=True,
                max_length=32,
                per_device_train_batch_size=100,
                report_to="none",
                bf16=False,
                gradient_checkpointing=False,
                use_cpu=True,
            ),
            train_dataset=datasets.Dataset.from_dict({"input_ids": rows}),
            processing_class=tokenizer,
        )
        batch = next(iter(trainer.get_train_dataloader()))
    flat = batch["input_ids"][0]
    starts = (batch["position_ids"][0] == 0).nonzero().flatten().tolist()
    pieces = [flat[a:b].tolist() for a, b in zip(starts, [*starts[1:], len(flat)], strict=True)]
    return difference(
        bench, config, attn, packed, dict(batch, use_cache=False), [rows.index(piece) for piece in pieces]
    )


@torch.no_grad()
def difference(
    bench: dict[str, Any], config: Any, attn: str, model: torch.nn.Module, batch: dict[str, Any], order: Any
) -> float:
    """The largest difference between the losses of a packed batch and those of its examples alone."""
    together = bench["losses"](model, batch)
    alone = bench["make"](config, attn)
    rows = [torch.tensor(bench["examples"]()[i])[None] for i in order]
    apart = torch.cat([bench["losses"](alone, {"input_ids": ids, "labels": ids}) for ids in rows])
    return float((together - apart).abs().max())


def attempt(measure: Any, *args: Any) -> str:
    """A measurement in words; a refusal, or the kind of error."""
    from mudarrib.core_loop import ArgumentError

    try:
        return f"{measure(*args):.0e}"
    except ArgumentError:
        return "refused"
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError) as error:
        return f"{type(error).__name__}"


def a_tokenizer() -> Any:
    """Any tokenizer: the rows hold tokens."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({"a": 0, "[PAD]": 1, "[EOS]": 2, "[UNK]": 3}, unk_token="[UNK]"))
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="[EOS]", pad_token="[PAD]", unk_token="[UNK]")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", action="store_true", help="compare with TRL in the same run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bench = runpy.run_path(str(TESTS))
    tokenizer = a_tokenizer()
    print(f"| architecture | attention | mudarrib |{' TRL |' if arguments.trl else ''}")
    print(f"|---|---|---|{'---|' if arguments.trl else ''}")
    for name, config in {**bench["CONFIGS"], **bench["REFUSED"]}.items():
        alone = name in bench["EAGER_ALONE"] or name in bench["REFUSED"]
        for attn in ("eager",) if alone else ("eager", "sdpa"):
            cells = [attempt(ours, bench, config, attn)]
            if arguments.trl:
                cells.append(attempt(trls, bench, config, attn, tokenizer))
            print(f"| {name} | {attn} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
