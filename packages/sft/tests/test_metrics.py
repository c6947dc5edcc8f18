"""The numbers beside the loss, against their definitions."""

import pytest
import torch

from mudarrib.sft.metrics import TokenMeter, dft_loss, entropies, n_tokens, predictions


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_predictions_are_shifted_masked_and_summed(rows):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, 9, 8000, generator=generator)
    labels = torch.randint(0, 8000, (rows, 9), generator=generator)
    labels[:, 1:4] = logits[:, 0:3].argmax(-1)
    labels[:, 6:] = -100
    counted, correct, entropy = predictions(logits, labels)
    expected = torch.distributions.Categorical(logits=logits[:, :5].double()).entropy().sum()
    assert counted == rows * 5 and correct == rows * 3
    assert float(entropy) == pytest.approx(float(expected), rel=1e-5)


def test_entropy_of_impossible_and_of_certain_classes():
    entropy, chosen = entropies(torch.tensor([[0.0, float("-inf"), 0.0], [100.0, 0.0, 0.0]]))
    torch.testing.assert_close(entropy, torch.tensor([2.0, 1.0]).log(), atol=1e-6, rtol=0)
    assert chosen.tolist() in ([0, 0], [2, 0])


def test_tokens_of_padded_and_of_packed_batches():
    labels = torch.zeros(2, 5)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]])  # the second row ends in padding
    assert n_tokens({"attention_mask": mask}, labels) == 8
    assert n_tokens({"position_ids": positions}, labels) == 7
    assert n_tokens({}, labels) == 10


def test_a_meter_sums_and_starts_anew():
    meter = TokenMeter()
    labels = torch.tensor([[1, 2, 3]])
    for _ in range(2):
        meter.add(torch.zeros(1, 3, 8), labels, {"attention_mask": torch.ones(1, 3)})
    metrics = meter.drain(lambda sums: sums, training=True)
    assert metrics["num_tokens"] == 6 and metrics["padding"] == 0
    assert metrics["entropy"] == pytest.approx(torch.tensor(8.0).log().item())
    assert meter.drain(lambda sums: sums, training=True) == {}
    meter.add(torch.zeros(1, 3, 8), labels, {})
    assert meter.state()["attributes"]["seen"] == 9


def test_dynamic_fine_tuning_weights_by_probability():
    logits = torch.randn(2, 4, 8, requires_grad=True)
    labels = torch.tensor([[1, 2, 3, -100], [-100, 4, 5, 6]])
    log_p = torch.log_softmax(logits[:, :-1], -1).gather(-1, labels[:, 1:].clamp(0)[..., None])[..., 0]
    kept = labels[:, 1:] != -100
    expected = -(log_p * log_p.exp().detach())[kept].sum()
    torch.testing.assert_close(dft_loss(logits, labels, None), expected / kept.sum())
    torch.testing.assert_close(dft_loss(logits, labels, 10), expected / 10)
    torch.testing.assert_close(
        torch.autograd.grad(dft_loss(logits, labels, None), logits)[0],
        torch.autograd.grad(expected / kept.sum(), logits)[0],
    )
