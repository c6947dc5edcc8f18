"""The special tokens that a model takes over from its tokenizer are those that the peers' Trainer gives it."""

import copy

import pytest
import transformers
from tokenizers import Tokenizer, models
from transformers.trainer_utils import align_special_tokens as by_the_peers

from mudarrib.core_loop import Trainer, TrainingArguments


def tokenizer_of(**special):
    words = {word: n for n, word in enumerate(["<pad>", "</s>", "<s>", "<turn>", "a", "b"])}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "a")), **special)


def model_of(generation=True, **tokens):
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=8, **shape, **tokens))
    if not generation:
        model.generation_config = None
    return model


def held(model):
    return [
        getattr(holder, name, None)
        for holder in (model.config, model.generation_config)
        for name in ("eos_token_id", "bos_token_id", "pad_token_id")
    ]


ALL = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>"}


@pytest.mark.parametrize("generation", [True, False])
@pytest.mark.parametrize("special", [ALL, {**ALL, "eos_token": "<turn>"}, {"eos_token": "<turn>"}, {}])
@pytest.mark.parametrize(
    "tokens",
    [
        {"pad_token_id": None, "eos_token_id": 1, "bos_token_id": 2},
        {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2},
        {"pad_token_id": 5, "eos_token_id": [1, 5], "bos_token_id": None},
        {"pad_token_id": None, "eos_token_id": None, "bos_token_id": None},
    ],
)
def test_as_the_peers(tmp_path, generation, special, tokens):
    tokenizer, ours = tokenizer_of(**special), model_of(generation, **tokens)
    theirs = copy.deepcopy(ours)
    by_the_peers(theirs, tokenizer)
    args = TrainingArguments(
        str(tmp_path), max_steps=1, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True
    )
    rows = [{"input_ids": [2, 4, 5, 1], "labels": [2, 4, 5, 1]}] * 8
    Trainer(ours, args, train_dataset=rows, processing_class=tokenizer,
            data_collator=transformers.default_data_collator).train()  # fmt: skip
    assert held(ours) == held(theirs)
