"""Adapters from peft around models that SFTTrainer trains: saved alone, resumed bit for bit, merged on request."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import peft
import pytest
import torch
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torchao.quantization import Int8WeightOnlyConfig

from mudarrib.core_loop import ArgumentError
from mudarrib.sft import SFTConfig, SFTTrainer

WORDS = "the a film was good bad not very and plot".split()


@pytest.fixture
def tokenizer():
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "[PAD]", "[EOS]", *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]"
    )


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=20, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, pad_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


def lora(**options):
    return peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], **options)


@pytest.fixture
def trainer(tokenizer, tmp_path):
    rows = Dataset.from_dict({"text": [" ".join(WORDS[i % 7 : i % 7 + 2 + i % 3]) for i in range(40)]})

    def make(folder="out", model=None, peft_config=None, quantization_config=None, **options):
        settings = {
            "report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "max_steps": 4, "max_length": 16,
            "per_device_train_batch_size": 4, "learning_rate": 1e-2, "save_strategy": "no",
        }  # fmt: skip
        return SFTTrainer(
            model=model or llama(),
            args=SFTConfig(str(tmp_path / folder), **{**settings, **options}),
            train_dataset=rows,
            processing_class=tokenizer,
            peft_config=peft_config,
            quantization_config=quantization_config,
        )

    return make


def logits(model):
    model.eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([[4, 5, 6, 7]])).logits


@pytest.mark.parametrize("packing", [False, True])
def test_only_adapters_learn_and_are_saved(trainer, tmp_path, packing):
    before = llama().state_dict()
    made = trainer(peft_config=lora(), save_strategy="steps", save_steps=2, packing=packing)
    made.train()
    for name, value in made.model.get_base_model().state_dict().items():
        if "lora" not in name:
            assert torch.equal(value, before[name.replace(".base_layer", "")])
    saved = sorted(path.name for path in (tmp_path / "out" / "checkpoint-4").iterdir())
    assert "adapter_model.safetensors" in saved and "model.safetensors" not in saved
    losses = [log["loss"] for log in made.state.log_history if "loss" in log]
    assert losses[-1] < losses[0]
    again = peft.PeftModel.from_pretrained(llama(), tmp_path / "out" / "checkpoint-4")
    assert torch.equal(logits(again), logits(made.model))


@pytest.mark.parametrize("checkpointing", [False, True, "reentrant"])
def test_a_resumed_run_equals_the_whole_one(trainer, tmp_path, checkpointing):
    options = {"save_strategy": "steps", "save_steps": 2, "gradient_checkpointing": bool(checkpointing)}
    if checkpointing == "reentrant":
        options["gradient_checkpointing_kwargs"] = {"use_reentrant": True}
    config = lora(lora_dropout=0.1)
    whole = trainer("whole", peft_config=config, **options)
    whole.train()
    resumed = trainer("resumed", peft_config=lora(lora_dropout=0.1), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    one, other = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(value.abs().sum() > 0 for name, value in one.items() if "lora_B" in name), "it has learned"


def test_whole_modules_beside_the_adapters(trainer, tmp_path):
    made = trainer(peft_config=lora(modules_to_save=["lm_head"]), save_strategy="steps", save_steps=4)
    made.train()
    again = peft.PeftModel.from_pretrained(llama(), tmp_path / "out" / "checkpoint-4")
    assert torch.equal(logits(again), logits(made.model))
    assert not torch.equal(again.get_base_model().lm_head.weight, llama().lm_head.weight)


@pytest.mark.parametrize("packing", [False, True])
def test_merging_gives_a_plain_model_and_leaves_the_trained_one(trainer, tmp_path, packing):
    made = trainer(peft_config=lora(), packing=packing)
    made.train()
    expected = logits(made.model)
    made.save_merged(str(tmp_path / "merged"))
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(plain), expected, atol=1e-5, rtol=0)
    assert torch.equal(logits(made.model), expected) and hasattr(made.model, "peft_config")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "merged").eos_token == "[EOS]"


def test_other_adapters_serve(trainer):
    made = trainer(peft_config=peft.IA3Config(task_type="CAUSAL_LM", target_modules=["v_proj"], feedforward_modules=[]))
    made.train()
    assert len([log for log in made.state.log_history if "loss" in log]) == 4


def test_a_model_that_has_adapters_is_trained_as_it_is(trainer):
    made = trainer(model=peft.get_peft_model(llama(), lora()), packing=True)
    assert made.model.get_base_model()._forward_pre_hooks, "packed examples are kept apart in the base model"
    made.train()
    with pytest.raises(ArgumentError, match="peft_config"):
        trainer(model=peft.get_peft_model(llama(), lora()), peft_config=lora())


def test_wrong_configs_are_refused(trainer):
    with pytest.raises(ArgumentError, match="peft_config"):
        trainer(peft_config={"r": 4})
    with pytest.raises(ArgumentError, match="no adapters"):
        trainer().save_merged("anywhere")


@pytest.fixture
def quantized(tmp_path):
    """How to load a model whose linear layers have int8 weights, by torchao."""
    llama().save_pretrained(tmp_path / "model")
    return {
        "model": str(tmp_path / "model"),
        "quantization_config": transformers.TorchAoConfig(Int8WeightOnlyConfig()),
    }


@pytest.mark.parametrize("packing", [False, True])
def test_adapters_learn_on_a_quantized_model_and_resume_bit_for_bit(trainer, quantized, tmp_path, packing):
    options = {"save_strategy": "steps", "save_steps": 6, "max_steps": 12, "learning_rate": 5e-2, "packing": packing}
    whole = trainer("whole", **quantized, peft_config=lora(lora_dropout=0.1), **options)
    weight = whole.model.get_base_model().model.layers[0].self_attn.q_proj.base_layer.weight
    assert type(weight).__name__ == "Int8Tensor" and weight.dequantize().dtype == torch.float32
    before = {name: p.dequantize() for name, p in whole.model.named_parameters() if "Int8" in type(p).__name__}
    whole.train()
    losses = [log["loss"] for log in whole.state.log_history if "loss" in log]
    assert max(losses[-3:]) < losses[0] - 0.1
    after = dict(whole.model.named_parameters())
    assert len(before) == 14 and all(torch.equal(after[name].dequantize(), value) for name, value in before.items())
    saved = sorted(path.name for path in (tmp_path / "whole" / "checkpoint-12").iterdir())
    assert "adapter_model.safetensors" in saved and "model.safetensors" not in saved
    resumed = trainer("resumed", **quantized, peft_config=lora(lora_dropout=0.1), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-6"))
    again = dict(resumed.model.named_parameters())
    assert all(torch.equal(after[name], again[name]) for name in after if "lora" in name)


def test_quantized_weights_need_adapters(trainer, quantized):
    with pytest.raises(ArgumentError, match="quantized"):
        trainer(**quantized)
