"""Packed batches give each example the logits that it has alone, whatever the architecture, or are refused."""

import pytest
import torch
import transformers

from mudarrib.core_loop import ArgumentError
from mudarrib.sft.isolation import Isolation, segments
from mudarrib.sft.probe import crosstalk, isolate

COMMON = {"vocab_size": 40, "bos_token_id": 3, "eos_token_id": 2}


def opt():
    return transformers.OPTConfig(
        hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32, dropout=0.0,
        max_position_embeddings=64, pad_token_id=1, **COMMON
    )  # fmt: skip


def bloom():
    return transformers.BloomConfig(hidden_size=32, n_layer=2, n_head=4, **COMMON)


def mpt():
    return transformers.MptConfig(d_model=32, n_layers=2, n_heads=4, max_seq_len=64, **COMMON)


def mamba():
    return transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, pad_token_id=1, **COMMON)


def make(config, attn="eager"):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attn).eval()


def rows():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(4, 40, (n,), generator=generator) for n in (4, 9, 2, 6)]


def packed_logits(model, examples):
    positions = torch.cat([torch.arange(len(row)) for row in examples])[None]
    return model(input_ids=torch.cat(examples)[None], position_ids=positions).logits


def alone(model, examples):
    return torch.cat([model(input_ids=row[None]).logits for row in examples], dim=1)


@torch.no_grad()
@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_a_direct_call_of_the_model_is_exact(llama, attn):
    model = llama(attn=attn).eval()
    expected, before = alone(model, rows()), packed_logits(model, rows())
    assert not torch.allclose(before, expected, atol=1e-3), "with its default cache transformers mixes the examples"
    assert not isolate(model).in_layers
    torch.testing.assert_close(packed_logits(model, rows()), expected, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(("config", "attn"), [(opt, "eager"), (opt, "sdpa"), (bloom, "eager"), (mpt, "eager")])
def test_models_that_ignore_positions_get_borders_in_their_layers(config, attn):
    model = make(config(), attn)
    assert isolate(model).in_layers
    torch.testing.assert_close(packed_logits(model, rows()), alone(model, rows()), atol=1e-5, rtol=0)


def test_a_model_that_carries_state_along_is_refused():
    with pytest.raises(ArgumentError, match=r"packing.*MambaForCausalLM.*packing=False"):
        isolate(make(mamba()))


def test_the_refused_model_is_left_as_it_was():
    model = make(mamba())
    with pytest.raises(ArgumentError):
        isolate(model)
    assert not any(module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
def test_gradients_survive_recomputation(llama):
    torch.set_grad_enabled(True)
    plain, checkpointed = make(bloom()), make(bloom())
    checkpointed.gradient_checkpointing_enable()
    checkpointed.train()
    for model in (plain, checkpointed):
        isolate(model)
        packed_logits(model, rows()).square().sum().backward()
    for one, other in zip(plain.parameters(), checkpointed.parameters()):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_padded_batches_and_generation_pass_unchanged(llama):
    model = llama().eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    mask = torch.ones_like(ids)
    logits = model(input_ids=ids, attention_mask=mask).logits
    written = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
    isolate(model)
    assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, logits)
    assert torch.equal(model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=5, do_sample=False), written)


def test_the_probe_leaves_modes_and_random_state_alone(llama):
    model = llama().train()
    model.model.layers[0].eval()
    state = torch.get_rng_state()
    isolate(model)
    assert model.training and not model.model.layers[0].training
    assert torch.equal(torch.get_rng_state(), state)


def test_crosstalk_sees_a_leak_in_bfloat16(llama):
    model = llama().to(torch.bfloat16)
    exact = Isolation(model, in_layers=False)
    assert crosstalk(model) <= 1
    exact.remove()
    leaky = make(bloom()).to(torch.bfloat16)
    assert crosstalk(leaky) > 1


def test_segments_count_restarts():
    assert segments(torch.tensor([[0, 1, 2, 0, 1, 0, 0]])).tolist() == [[1, 1, 1, 2, 2, 3, 4]]


def test_a_model_whose_weights_are_elsewhere_is_probed_by_a_shallow_copy(llama):
    """As under ZeRO 3, where a process holds no weights yet: the decision is that for the architecture."""
    for config, in_layers in ((llama().config, False), (opt(), True)):
        model = make(config)
        for parameter in model.parameters():
            parameter.data = parameter.data.new_empty(0)
        assert isolate(model).in_layers == in_layers and model._forward_pre_hooks


def test_a_second_trainer_on_the_same_model_adds_no_second_hooks():
    model = make(opt())
    for _ in range(3):
        assert isolate(model).in_layers
    assert len(model._forward_pre_hooks) == 1
    assert {len(layer._forward_pre_hooks) for layer in model.model.decoder.layers} == {1}
