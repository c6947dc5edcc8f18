"""Parameters counted from a config are those of the model that transformers builds; memory is near to its simulation."""

import json

import pytest
import torch
import transformers

from mudarrib.launch import Setup, Work, memory_of
from mudarrib.launch.model_config import shape_of
from mudarrib.launch.simulate import simulate

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 300}
LLAMA = {**SMALL, "intermediate_size": 96, "num_key_value_heads": 2}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
CASES = [
    ("LlamaConfig", "LlamaForCausalLM", LLAMA),
    ("LlamaConfig", "LlamaForCausalLM", {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("LlamaConfig", "LlamaForSequenceClassification", {**LLAMA, "num_labels": 5}),
    ("MistralConfig", "MistralForCausalLM", LLAMA),
    ("Qwen2Config", "Qwen2ForCausalLM", LLAMA),
    ("Qwen3Config", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 32}),
    ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**LLAMA, **EXPERTS}),
    ("MixtralConfig", "MixtralForCausalLM", {**LLAMA, "num_local_experts": 4}),
    ("GemmaConfig", "GemmaForCausalLM", {**LLAMA, "head_dim": 32}),
    ("Gemma2Config", "Gemma2ForCausalLM", {**LLAMA, "head_dim": 32}),
    ("Gemma3TextConfig", "Gemma3ForCausalLM", {**LLAMA, "head_dim": 32}),
    ("Phi3Config", "Phi3ForCausalLM", {**LLAMA, "pad_token_id": 0}),
    ("PhiConfig", "PhiForCausalLM", {**SMALL, "intermediate_size": 96}),
    ("Olmo2Config", "Olmo2ForCausalLM", LLAMA),
    ("GraniteConfig", "GraniteForCausalLM", LLAMA),
    ("SmolLM3Config", "SmolLM3ForCausalLM", {**LLAMA, "pad_token_id": 0}),
    ("StableLmConfig", "StableLmForCausalLM", LLAMA),
    ("StableLmConfig", "StableLmForCausalLM", {**LLAMA, "use_qkv_bias": True}),
    ("Starcoder2Config", "Starcoder2ForCausalLM", LLAMA),
    ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300}),
    ("GPT2Config", "GPT2ForSequenceClassification", {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300}),
    ("GPTJConfig", "GPTJForCausalLM", {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300, "rotary_dim": 8}),
    ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**SMALL, "intermediate_size": 96}),
    ("BloomConfig", "BloomForCausalLM", {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300}),
    ("OPTConfig", "OPTForCausalLM", {**SMALL, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    ("BertConfig", "BertForMaskedLM", {**SMALL, "intermediate_size": 96}),
    ("BertConfig", "BertForSequenceClassification", {**SMALL, "intermediate_size": 96, "num_labels": 5}),
    ("BertConfig", "BertForTokenClassification", {**SMALL, "intermediate_size": 96}),
    ("BertConfig", "BertForQuestionAnswering", {**SMALL, "intermediate_size": 96}),
    ("BertConfig", "BertForPreTraining", {**SMALL, "intermediate_size": 96}),
    ("BertConfig", "BertModel", {**SMALL, "intermediate_size": 96}),
    ("RobertaConfig", "RobertaForSequenceClassification", {**SMALL, "intermediate_size": 96}),
    ("XLMRobertaConfig", "XLMRobertaForMaskedLM", {**SMALL, "intermediate_size": 96}),
    ("ElectraConfig", "ElectraForSequenceClassification", {**SMALL, "intermediate_size": 96, "embedding_size": 32}),
    ("ElectraConfig", "ElectraForPreTraining", {**SMALL, "intermediate_size": 96}),
    ("DistilBertConfig", "DistilBertForSequenceClassification", {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96}),
    ("DistilBertConfig", "DistilBertForMaskedLM", {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96}),
    ("T5Config", "T5ForConditionalGeneration", {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_heads": 4}),
    ("MT5Config", "MT5ForConditionalGeneration", {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_heads": 4}),
    ("BartConfig", "BartForConditionalGeneration", {"d_model": 64, "encoder_layers": 2, "decoder_layers": 3}),
    ("MBartConfig", "MBartForConditionalGeneration", {"d_model": 64, "encoder_layers": 2, "decoder_layers": 3}),
    ("MarianConfig", "MarianMTModel", {"d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "pad_token_id": 0}),
    ("PegasusConfig", "PegasusForConditionalGeneration", {"d_model": 64, "encoder_layers": 2, "decoder_layers": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "model", "settings"), CASES, ids=[f"{m}-{i}" for i, (_, m, _) in enumerate(CASES)])
def test_the_count_is_that_of_the_real_model(config, model, settings):
    config = getattr(transformers, config)(**settings, architectures=[model])
    with torch.device("meta"):
        real = getattr(transformers, model)(config)
    shape = shape_of(json.loads(config.to_json_string()))
    assert shape.count == sum(p.numel() for p in real.parameters() if p.requires_grad)
    layers = set(shape.layer_classes.split(","))
    assert layers <= {type(module).__name__ for module in real.modules()}


SIMULATED = {model: (config, settings) for config, model, settings in CASES}
FAMILIES = [
    "MistralForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Phi3ForCausalLM",
    "Olmo2ForCausalLM", "StableLmForCausalLM", "Starcoder2ForCausalLM", "GPTJForCausalLM", "GPTNeoXForCausalLM",
    "BloomForCausalLM", "OPTForCausalLM", "RobertaForSequenceClassification", "ElectraForSequenceClassification",
    "DistilBertForMaskedLM", "BartForConditionalGeneration", "Qwen2ForCausalLM", "GemmaForCausalLM",
    "GraniteForCausalLM", "SmolLM3ForCausalLM", "PhiForCausalLM", "MBartForConditionalGeneration",
]  # fmt: skip
DDP, FSDP = Setup("ddp", "ddp", "nothing", 1, 4), Setup("fsdp2", "fsdp2", "all", 4, 4)
# Experts are multiplied by a kernel that is there for bfloat16 only.
WITH_EXPERTS = [(model, setup, half) for model in ("Qwen3MoeForCausalLM", "MixtralForCausalLM")
                for setup, half in ((DDP, {"dtype": "bfloat16"}), (FSDP, {"mixed_precision": "bf16"}))]  # fmt: skip


@pytest.mark.parametrize(("model", "setup", "half"), [*((model, DDP, {}) for model in FAMILIES), *WITH_EXPERTS])
def test_the_formula_is_near_to_the_simulation(model, setup, half):
    config, settings = SIMULATED[model]
    config = getattr(transformers, config)(**settings, architectures=[model])
    values = json.loads(config.to_json_string())
    work = Work(batch=4, seq_len=256, on_cpu=True, **half)
    formula, simulated = memory_of(shape_of(values), work, setup), simulate(values, work, setup)
    assert formula.total == pytest.approx(simulated.total, rel=0.10)
    assert formula.activations + formula.buffers == pytest.approx(simulated.activations + simulated.buffers, rel=0.12)
