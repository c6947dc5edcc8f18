"""The guide's own SFT calls, with only the import lines changed."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers

from mudarrib.core_loop import TrainingArguments
from mudarrib.sft import SFTTrainer

WORDS = "the a film was good bad not very and plot".split()


@pytest.fixture
def tokenizer():
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "[PAD]", "[EOS]", *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]"
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=20, max_position_embeddings=512, **shape))


@pytest.mark.parametrize("optim", ["adalomo", "lomo", "galore_adamw", "galore_adamw_layerwise"])
def test_the_guides_call(tmp_path, tokenizer, model, optim):
    train_dataset = Dataset.from_dict({"text": [" ".join(WORDS[i % 7 : i % 7 + 3] * 4) for i in range(64)]})
    before = {name: p.clone() for name, p in model.named_parameters()}
    more = (
        {"optim_target_modules": ["attn", "mlp"], "optim_args": "rank=4, update_proj_gap=5"}
        if "galore" in optim
        else {}
    )
    args = TrainingArguments(
        output_dir=str(tmp_path / "test-lomo"),
        max_steps=10,
        per_device_train_batch_size=4,
        optim=optim,
        gradient_checkpointing=True,
        logging_strategy="steps",
        logging_steps=1,
        learning_rate=1e-2,
        save_strategy="no",
        run_name="lomo-imdb",
        report_to="none",
        use_cpu=True,
        **more,
    )
    with pytest.warns(FutureWarning, match="dataset_text_field"):
        trainer = SFTTrainer(
            model=model,
            args=args,
            train_dataset=train_dataset,
            dataset_text_field="text",
            max_seq_length=512,
            processing_class=tokenizer,
        )
    trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert len(losses) == 10 and losses[-1] < losses[0]
    assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters() if "norm" not in name)
