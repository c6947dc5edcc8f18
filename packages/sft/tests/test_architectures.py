"""Packing changes no token's loss and no gradient, for many architectures, made small from their configs."""

import numpy as np
import pytest
import torch
import transformers as t

from mudarrib.core_loop import ArgumentError
from mudarrib.sft import attention
from mudarrib.sft.collate import CausalCollator
from mudarrib.sft.packing import pack
from mudarrib.sft.probe import isolate

VOCABULARY = 40
TOKENS = {"vocab_size": VOCABULARY, "bos_token_id": 3, "eos_token_id": 2, "pad_token_id": 1}
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**TOKENS, **SHAPE, "num_key_value_heads": 2}
OLD = {**TOKENS, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
WINDOW = {"sliding_window": 6}

CONFIGS = {
    "gpt2": lambda: t.GPT2Config(**OLD, **NO_DROPOUT),
    "gpt_bigcode": lambda: t.GPTBigCodeConfig(**OLD, **NO_DROPOUT),
    "gptj": lambda: t.GPTJConfig(**OLD, **NO_DROPOUT, rotary_dim=4),
    "codegen": lambda: t.CodeGenConfig(**OLD, **NO_DROPOUT, rotary_dim=4),
    "gpt_neo": lambda: t.GPTNeoConfig(
        **TOKENS, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=6,
        max_position_embeddings=64, resid_dropout=0.0, embed_dropout=0.0, attention_dropout=0.0,
    ),
    "gpt_neox": lambda: t.GPTNeoXConfig(**TOKENS, **SHAPE),
    "llama": lambda: t.LlamaConfig(**GROUPED),
    "mistral": lambda: t.MistralConfig(**GROUPED, **WINDOW),
    "mixtral": lambda: t.MixtralConfig(**GROUPED, num_local_experts=2),
    "qwen2": lambda: t.Qwen2Config(**GROUPED),
    "qwen3": lambda: t.Qwen3Config(**GROUPED, head_dim=8),
    "gemma": lambda: t.GemmaConfig(**GROUPED, head_dim=8),
    "gemma2": lambda: t.Gemma2Config(**GROUPED, **WINDOW, head_dim=8),
    "gemma3": lambda: t.Gemma3TextConfig(**GROUPED, **WINDOW, head_dim=8),
    "phi": lambda: t.PhiConfig(**TOKENS, **SHAPE, resid_pdrop=0.0),
    "phi3": lambda: t.Phi3Config(**GROUPED),
    "falcon": lambda: t.FalconConfig(**TOKENS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "falcon-alibi": lambda: t.FalconConfig(
        **TOKENS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True
    ),
    "olmo": lambda: t.OlmoConfig(**GROUPED),
    "olmo2": lambda: t.Olmo2Config(**GROUPED),
    "stablelm": lambda: t.StableLmConfig(**GROUPED),
    "cohere": lambda: t.CohereConfig(**GROUPED),
    "starcoder2": lambda: t.Starcoder2Config(**GROUPED, residual_dropout=0.0, embedding_dropout=0.0),
    "granite": lambda: t.GraniteConfig(**GROUPED),
    "nemotron": lambda: t.NemotronConfig(**GROUPED),
    "smollm3": lambda: t.SmolLM3Config(**GROUPED),
    "opt": lambda: t.OPTConfig(
        **TOKENS, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
        max_position_embeddings=64, dropout=0.0,
    ),
    "xglm": lambda: t.XGLMConfig(
        **TOKENS, d_model=32, ffn_dim=48, num_layers=2, attention_heads=4, max_position_embeddings=64, dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0,
    ),
    "bloom": lambda: t.BloomConfig(**TOKENS, hidden_size=32, n_layer=2, n_head=4),
    "mpt": lambda: t.MptConfig(**TOKENS, d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
}  # fmt: skip
REFUSED = {
    "mamba": lambda: t.MambaConfig(**TOKENS, hidden_size=32, num_hidden_layers=2),
    "mamba2": lambda: t.Mamba2Config(
        **TOKENS, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=8, n_groups=1, chunk_size=8
    ),
    "rwkv": lambda: t.RwkvConfig(**TOKENS, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2),
}
EAGER_ALONE = {"gemma2", "gpt_neo", "bloom", "mpt", "xglm"}  # transformers has no SDPA for them
FLEX = ("llama", "qwen3", "opt")


def make(config, attn):
    torch.manual_seed(0)
    model = t.AutoModelForCausalLM.from_config(config(), attn_implementation=attn)
    return model.train()


def examples():
    rng = np.random.default_rng(0)
    return [rng.integers(4, VOCABULARY, n) for n in rng.integers(2, 16, 12)]


def packed_batch(rows, max_length=32):
    plan = pack([len(row) for row in rows], max_length)
    packed = []
    for row in range(len(plan)):
        pieces = plan.pieces(row)
        ids = np.concatenate([rows[i] for i in plan.examples[pieces]])
        packed.append({"input_ids": ids, "seq_lengths": plan.lengths[pieces]})
    return CausalCollator(pad_token_id=1)(packed), plan.examples


def losses(model, batch):
    """Loss of each predicted token, in order."""
    labels = batch.pop("labels")
    logits = model(**batch).logits[:, :-1]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")
    return each[labels[:, 1:] != -100]


def gradients(model, loss):
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("name", "attn"),
    [(name, attn) for name in CONFIGS for attn in ("eager", "sdpa") if attn == "eager" or name not in EAGER_ALONE]
    + [(name, "flex_attention") for name in FLEX],
)
def test_losses_and_gradients_equal_those_of_the_examples_alone(name, attn, monkeypatch):
    monkeypatch.setattr(attention, "WORTH_IT", float("inf"))  # these rows are too short for it to pay
    packed, alone = make(CONFIGS[name], attn), make(CONFIGS[name], attn)
    backward = attn != "flex_attention"  # on a CPU torch computes flex attention forward only
    with torch.set_grad_enabled(backward), torch.compiler.set_stance("force_eager"):  # compiling takes half a minute
        isolate(packed)
        batch, order = packed_batch(examples())
        together = losses(packed, batch)
        rows = [examples()[i] for i in order]
        apart = torch.cat(
            [losses(alone, {"input_ids": ids, "labels": ids}) for ids in (torch.tensor(row)[None] for row in rows)]
        )
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)
    if backward:
        one, other = gradients(packed, together.mean()), gradients(alone, apart.mean())
        assert one.keys() == other.keys()
        for key in one:
            torch.testing.assert_close(one[key], other[key], atol=1e-5, rtol=0, msg=key)


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_carry_state_are_refused(name):
    with pytest.raises(ArgumentError, match="packing=False"):
        isolate(make(REFUSED[name], "eager"))
