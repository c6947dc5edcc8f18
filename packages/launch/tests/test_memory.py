"""Bytes by formula: published counts, the papers' tables, and what must hold for any model."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudarrib.launch import ConfigError, Setup, Work, memory_of, read_model
from mudarrib.launch.model_config import shape_of
from mudarrib.launch.states import OPTIMIZERS, state_bytes

LLAMA_7B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
BERT = {
    "model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 768, "vocab_size": 30522,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
    "type_vocab_size": 2,
}  # fmt: skip
PUBLISHED = [
    (LLAMA_7B, 6_738_415_616),
    ({**LLAMA_7B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8}, 68_976_648_192),
    ({**LLAMA_7B, "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256}, 8_030_261_248),
    ({**LLAMA_7B, "model_type": "mistral", "intermediate_size": 14336, "num_key_value_heads": 8}, 7_241_732_096),
    ({**LLAMA_7B, "model_type": "mixtral", "intermediate_size": 14336, "num_key_value_heads": 8,
      "num_local_experts": 8}, 46_702_792_704),
    (GPT2, 124_439_808),
    ({**BERT, "architectures": ["BertModel"]}, 109_482_240),
    ({"model_type": "t5", "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 6, "num_heads": 8,
      "vocab_size": 32128}, 60_506_624),
]  # fmt: skip
DDP = Setup("ddp", "ddp", "nothing", 1, 8)
ZERO = [
    Setup(f"zero-{stage}", "deepspeed", shards, 64, 64)
    for stage, shards in enumerate(("states", "gradients", "all"), 1)
]


@pytest.mark.parametrize(("values", "count"), PUBLISHED, ids=[f"{v['model_type']}-{c}" for v, c in PUBLISHED])
def test_the_count_is_the_published_one(values, count):
    assert shape_of(values).count == count


def test_zero_is_the_papers_table():
    """arXiv 1910.02054, figure 1: 7.5 billion parameters, 64 GPUs, mixed precision Adam: 120, 31.4, 16.6, 1.9 GB."""
    shape, work = shape_of(LLAMA_7B), Work(mixed_precision="bf16", batch=1, seq_len=1, accumulation=2)
    scale = 7.5e9 / shape.count
    stages = [memory_of(shape, work, setup) for setup in ZERO]
    totals = [(m.weights + m.gradients + m.states) * scale / 1e9 for m in stages]
    assert totals == pytest.approx([31.4, 16.6, 1.9], rel=0.02)


def test_adamw_takes_eight_bytes_a_parameter_and_galore_what_its_paper_says():
    shape = shape_of(LLAMA_7B)
    # And the number of the step, 4 bytes a tensor.
    assert state_bytes(shape, "adamw", 4, 128) == 8 * shape.count + 4 * (32 * 9 + 3)
    assert state_bytes(shape, "sgd", 4, 128) == state_bytes(shape, "lomo", 4, 128) == 0
    # Table 1: mr + 2nr for a matrix of m x n, m <= n; the rest has AdamW's two moments.
    layers = [weight for weight, times in shape.weights if weight.kind == "linear" and times == 32]
    low_rank = 32 * 4 * sum(128 * (min(w.shape) + 2 * max(w.shape)) for w in layers)
    rest = shape.count - 32 * sum(w.count for w in layers)
    head = 4 * 128 * (4096 + 2 * 32000) - 8 * 32000 * 4096
    assert state_bytes(shape, "galore_adamw", 4, 128) == low_rank + 8 * rest + head


def test_each_optimizer_takes_less_than_the_one_it_saves_on():
    shape = shape_of(LLAMA_7B)
    size = {name: state_bytes(shape, name, 4, 128) for name in OPTIMIZERS}
    for less, more in (("adamw_8bit", "adamw"), ("galore_adamw", "adamw_8bit"), ("galore_adamw_8bit", "galore_adamw"),
                       ("adafactor", "galore_adamw"), ("adalomo", "adamw_8bit"), ("apollo_mini", "apollo_adamw"),
                       ("muon", "adamw"), ("lion_8bit", "lion_32bit")):  # fmt: skip
        assert size[less] < size[more], (less, more)


def test_in_backward_no_gradient_but_one_is_alive():
    shape = shape_of(LLAMA_7B)
    setup = Setup("one-gpu", "ddp", "nothing", 1, 1)
    plain = memory_of(shape, Work(optimizer="sgd", batch=1, seq_len=16), setup)
    fused = memory_of(shape, Work(optimizer="lomo", batch=1, seq_len=16), setup)
    assert plain.gradients == 4 * shape.count
    assert fused.gradients <= 4 * 32000 * 4096


def test_checkpointing_keeps_the_inputs_of_layers_and_one_layer():
    shape, work = shape_of(LLAMA_7B), Work(batch=8, seq_len=2048)
    kept = memory_of(shape, work, DDP)
    again = memory_of(shape, work, dataclasses.replace(DDP, checkpointing=True))
    assert again.activations < kept.activations / 5
    assert again.weights == kept.weights and again.states == kept.states


@given(
    batch=st.integers(1, 16), seq=st.integers(1, 1024), world=st.integers(2, 512),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)), dtype=st.sampled_from(["float32", "bfloat16"]),
    checkpointing=st.booleans(),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_more_work_never_takes_less_and_more_processes_never_more(batch, seq, world, optimizer, dtype, checkpointing):
    shape = shape_of(GPT2)
    work = Work(batch=batch, seq_len=seq, optimizer=optimizer, dtype=dtype)
    for engine, shards in (("ddp", "nothing"), ("fsdp2", "all"), ("fsdp2", "gradients"), ("deepspeed", "all")):
        setup = Setup("x", engine, shards, world, world, checkpointing)
        found = memory_of(shape, work, setup)
        assert min(found.parts.values()) >= 0
        assert memory_of(shape, dataclasses.replace(work, batch=batch + 1), setup).total >= found.total
        if engine != "ddp":
            wider = dataclasses.replace(setup, processes=2 * world, world=2 * world)
            assert memory_of(shape, work, wider).total <= found.total


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "mamba"}, "--simulate"),
        ({"model_type": "llava", "text_config": {}}, "made of several models"),
        ({"model_type": "llama"}, "vocab_size|hidden_size"),
        ({**LLAMA_7B, "num_hidden_layers": "32"}, "whole number"),
        ({**LLAMA_7B, "num_attention_heads": 30}, "does not divide"),
        ({**LLAMA_7B, "hidden_size": -4}, "above 0"),
    ],
)
def test_what_has_no_formula_is_said(values, said):
    with pytest.raises(ConfigError, match=said):
        shape_of(values)


def test_a_model_is_found_by_file_folder_and_name(tmp_path, monkeypatch):
    cached = tmp_path / "hub" / "models--me--mine" / "snapshots" / "abc"
    cached.mkdir(parents=True)
    (cached / "config.json").write_text(json.dumps(GPT2))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert read_model(cached / "config.json") == read_model(cached) == read_model("me/mine")
    for missing in ("me/other", str(tmp_path / "hub"), ""):
        with pytest.raises(ConfigError, match="config.json"):
            read_model(missing)
    (cached / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        read_model("me/mine")


def test_an_unknown_optimizer_is_named_with_its_nearest():
    with pytest.raises(ConfigError, match="did you mean galore_adamw"):
        state_bytes(shape_of(GPT2), "galor_adamw", 4, 8)
