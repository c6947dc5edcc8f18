"""The guide's rows about its other trainers, as its readers would type them."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import json

import peft
import pytest
import torch
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torchao.quantization import Int8WeightOnlyConfig

from mudarrib.core_loop import Trainer, TrainingArguments
from mudarrib.sft import Seq2SeqTrainer, Seq2SeqTrainingArguments, SFTConfig, SFTTrainer

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


@pytest.fixture
def texts():
    return Dataset.from_dict({"text": [" ".join(WORDS[i % 7 : i % 7 + 2 + i % 3]) for i in range(64)]})


def settings(folder, **given):
    common = {"max_steps": 6, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "logging_steps": 1}
    return {"output_dir": str(folder), "report_to": "none", "use_cpu": True, "disable_tqdm": True, **common, **given}


def losses(trainer):
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


def test_G4_trainer_for_any_task(tmp_path, tokenizer, texts):
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=20, **shape))
    rows = texts.map(lambda row: {**tokenizer(row["text"]), "label": int("good" in row["text"])})
    trainer = Trainer(
        model=model, args=TrainingArguments(**settings(tmp_path)), train_dataset=rows, processing_class=tokenizer
    )
    trainer.train()
    assert losses(trainer)[-1] < losses(trainer)[0]


def test_G4_seq2seq_generates_at_evaluation(tmp_path, tokenizer, texts):
    torch.manual_seed(0)
    shape = {
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 1,
        "num_heads": 2,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=20, decoder_start_token_id=1, **shape)
    )
    rows = texts.map(lambda row: {**tokenizer(row["text"]), "labels": tokenizer(row["text"])["input_ids"][:2]})
    rows = rows.remove_columns(
        [name for name in rows.column_names if name not in ("input_ids", "attention_mask", "labels")]
    )
    seen = []

    def compute_metrics(prediction):
        seen.append(tokenizer.batch_decode(prediction.predictions, skip_special_tokens=True))
        return {"words": sum(len(text.split()) for text in seen[-1])}

    args = Seq2SeqTrainingArguments(**settings(tmp_path), predict_with_generate=True, generation_max_length=5)
    trainer = Seq2SeqTrainer(
        model=model, args=args, train_dataset=rows, eval_dataset=rows.select(range(6)), processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )  # fmt: skip
    trainer.train()
    assert trainer.evaluate()["eval_words"] == sum(len(text.split()) for text in seen[-1])
    assert len(seen[-1]) == 6 and all(len(text.split()) <= 5 for text in seen[-1])


@pytest.mark.parametrize("quantized", [False, True])
def test_G4_G26_packing_with_adapters_on_a_whole_and_on_a_quantized_model(tmp_path, tokenizer, model, texts, quantized):
    model.save_pretrained(tmp_path / "base")
    how = {"quantization_config": transformers.TorchAoConfig(Int8WeightOnlyConfig())} if quantized else {}
    trainer = SFTTrainer(
        model=str(tmp_path / "base"),
        args=SFTConfig(**settings(tmp_path / "out"), packing=True, max_length=16),
        train_dataset=texts,
        processing_class=tokenizer,
        peft_config=peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        **how,
    )
    assert len(trainer.train_dataset) < len(texts) / 2, "several texts share a row"
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    assert losses(trainer)[-1] < losses(trainer)[0]
    saved = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert "adapter_model.safetensors" in saved and "model.safetensors" not in saved
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 4
    if quantized:
        assert any("Int8" in type(parameter).__name__ for parameter in trainer.model.parameters())


@pytest.mark.parametrize("optim", ["adalomo", "lomo", "galore_adamw", "galore_adamw_layerwise"])
def test_G24_G25_the_guides_call(tmp_path, tokenizer, model, optim):
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
