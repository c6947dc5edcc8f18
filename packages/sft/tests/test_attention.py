"""SDPA by example: the numbers of the usual way, and no way around the mask."""

import json

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from mudarrib.sft import attention, isolate
from mudarrib.sft.attention import NAME, groups_of, sdpa_by_example


class Layer(torch.nn.Module):
    num_key_value_groups = 2
    is_causal = True


def packed_mask(*rows):
    """Boolean masks, shape (rows, 1, seq, seq), of rows that hold examples of these lengths."""
    return torch.stack([torch.block_diag(*(torch.ones(n, n).tril() for n in row)) for row in rows])[:, None].bool()


def inputs(length, seed=0, rows=2):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, heads, length, 8) for heads in (4, 2, 2)]
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("lengths", [[(3, 8, 9, 1, 1, 6, 12), (8, 8, 15, 9)], [(2,) * 20, (8,) * 5]])
def test_values_and_gradients_are_those_of_the_mask(lengths):
    mask = packed_mask(*lengths)
    assert groups_of(mask, 2) is not None, "it goes by example"
    results = []
    for function in (sdpa_attention_forward, sdpa_by_example):
        tensors = inputs(40)
        made, _ = function(Layer(), *tensors, mask, scaling=0.3)
        made.square().sum().backward()
        results.append([made.detach(), *(x.grad for x in tensors)])
    for usual, ours in zip(*results):
        torch.testing.assert_close(ours, usual, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "mask",
    [
        None,
        packed_mask((40,)),  # nothing is saved
        packed_mask((20, 20)).float(),
        packed_mask((20, 20)) & torch.ones(40, 40).triu(-3).bool(),  # a sliding window
        packed_mask((10,) * 4) | torch.eye(40).roll(-1, 1).bool(),  # looks ahead
        packed_mask((10,) * 4).roll(10, 3),  # looks at another example
        packed_mask((10,) * 4).expand(1, 4, 40, 40),  # one mask a head
    ],
    ids=["none", "one example", "additive", "sliding", "not causal", "elsewhere", "by head"],
)
def test_anything_else_goes_the_usual_way(mask):
    assert mask is None or groups_of(mask, 1) is None
    tensors = inputs(40, rows=1)
    usual, ours = (f(Layer(), *tensors, mask, is_causal=True)[0] for f in (sdpa_attention_forward, sdpa_by_example))
    assert torch.equal(usual, ours)


def test_a_model_goes_by_example_and_is_saved_without_a_trace(llama, tmp_path, monkeypatch):
    model = llama()
    isolate(model)
    assert model.config._attn_implementation == NAME
    seen = []
    monkeypatch.setattr(attention, "_grouped", lambda mask: seen.append(mask) or None)
    positions = torch.arange(6).repeat(10)[None]
    model(input_ids=torch.full((1, 60), 5), position_ids=positions, use_cache=False)
    assert len(seen) == 1, "one look for all layers"
    model.save_pretrained(tmp_path)
    assert NAME not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
    assert type(model).from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_other_implementations_stay(llama):
    model = llama(attn="eager")
    isolate(model)
    assert model.config._attn_implementation == "eager"
