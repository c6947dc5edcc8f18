"""Packed fine-tuning of a small causal model: sft from its wheel, with what it pulls."""

import datasets
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mudarrib.sft import SFTConfig, SFTTrainer

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    pad_token_id=0, eos_token_id=1,
)  # fmt: skip
words = WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"w{n}": n for n in range(3, 64)}, unk_token="<unk>")
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(words), pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
)
rows = [{"input_ids": [3 + n % 5, *range(5, 7 + n % 6), 1]} for n in range(24)]
args = SFTConfig("out", packing=True, max_length=32, max_steps=3, use_cpu=True, disable_tqdm=True, report_to="none")
trainer = SFTTrainer(
    LlamaForCausalLM(config), args, train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer
)
assert trainer.train().training_loss > 0
