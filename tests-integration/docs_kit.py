"""Tiny models with real tokenizers, saved where a page names one of the hub, and data for pages that say `rows`."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

DATA = Path(__file__).resolve().parent.parent / "tools" / "site" / "data"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ m['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def rows_of(name, n=None):
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:n]]


def tokenizer_of(texts, **special):
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    named = [*dict.fromkeys([*special.values(), "<|im_start|>"])]
    core.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=500, special_tokens=named, show_progress=False,
                                   initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )  # fmt: skip
    return core, PreTrainedTokenizerFast(tokenizer_object=core, **special)


def chat_model(folder="tiny-model"):
    """A Llama of one layer and a ChatML tokenizer, saved in a folder."""
    texts = [message["content"] for row in rows_of("chat.jsonl") for message in row["messages"]]
    _, tokenizer = tokenizer_of(texts, eos_token="<|im_end|>", pad_token="<|pad|>")
    tokenizer.chat_template = CHATML
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def translation_model(folder="tiny-t5"):
    """A T5 of one layer and its tokenizer, saved in a folder."""
    rows = rows_of("en_de.jsonl")
    core, tokenizer = tokenizer_of((row[key] for row in rows for key in row), eos_token="</s>", pad_token="<pad>")
    end = core.token_to_id("</s>")
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", end)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", pad_token="<pad>")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id, decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def classifier(folder="tiny-bert", labels=2):
    """A BERT of one layer for texts of package descriptions, saved in a folder."""
    texts = [row["messages"][1]["content"] for row in rows_of("chat.jsonl")]
    _, tokenizer = tokenizer_of(texts, pad_token="<pad>", eos_token="</s>")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        num_labels=labels,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
