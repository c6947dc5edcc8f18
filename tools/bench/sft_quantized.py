"""Trains LoRA adapters on quantized base models on a CPU, and says whether they learn and resume bit for bit.

    python tools/bench/sft_quantized.py bnb-4bit bnb-8bit torchao-int8

Needs the extra [lora], and bitsandbytes or torchao for the models asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers

from mudarrib.sft import SFTConfig, SFTTrainer

WORDS = "the a film was good bad not very and plot acting slow great dull fine".split()  # noqa: SIM905


def quantization(name: str) -> Any:
    """A quantization config of transformers."""
    if name == "bnb-4bit":
        return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    if name == "bnb-8bit":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    from torchao.quantization import Int8WeightOnlyConfig

    return transformers.TorchAoConfig(Int8WeightOnlyConfig())


def tokenizer() -> Any:
    """One token a word."""
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "[PAD]", "[EOS]", *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", eos_token="[EOS]")


def trainer(folder: Path, name: str, output: str) -> SFTTrainer:
    """A packed run over a model that is quantized as it is loaded."""
    rows = Dataset.from_dict({"text": [" ".join(WORDS[i % 9 : i % 9 + 3 + i % 3]) for i in range(80)]})
    config = SFTConfig(
        str(folder / output),
        packing=True,
        max_length=32,
        max_steps=20,
        save_steps=10,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    adapters = peft.LoraConfig(r=8, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM")
    return SFTTrainer(
        str(folder / "model"),
        config,
        train_dataset=rows,
        processing_class=tokenizer(),
        quantization_config=quantization(name),
        peft_config=adapters,
    )


def main() -> None:
    """Print a line for each kind of quantization."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=["bnb-4bit", "bnb-8bit", "torchao-int8"])
    arguments = parser.parse_args()
    disable_progress_bars()
    for name in arguments.kinds:
        folder = Path(tempfile.mkdtemp())
        torch.manual_seed(0)
        shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = transformers.LlamaConfig(vocab_size=32, max_position_embeddings=64, pad_token_id=1, **shape)
        transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
        with contextlib.redirect_stdout(io.StringIO()):
            whole = trainer(folder, name, "whole")
            whole.train()
            resumed = trainer(folder, name, "resumed")
            resumed.train(resume_from_checkpoint=str(folder / "whole" / "checkpoint-10"))
        losses = [log["loss"] for log in whole.state.log_history if "loss" in log]
        kind = type(whole.model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight).__name__
        states = [dict(run.model.named_parameters()) for run in (whole, resumed)]
        equal = all(torch.equal(value, states[1][key]) for key, value in states[0].items() if "lora" in key)
        files = sorted(path.name for path in (folder / "whole" / "checkpoint-20").glob("*model*"))
        print(f"{name}: {kind}, loss {losses[0]:.3f} to {losses[-1]:.3f}, resumed bit for bit: {equal}, saved {files}")


if __name__ == "__main__":
    main()
