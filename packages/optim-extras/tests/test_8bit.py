"""8-bit states: what comes back, and which kernels do it."""

from importlib.util import find_spec

import pytest
import torch

from mudarrib.optim_extras import blockwise_8bit as eight


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("shape", [(1000,), (40, 300), (3, 5, 7)])
def test_what_comes_back_is_the_nearest_that_a_code_can_say(shape, signed):
    torch.manual_seed(0)
    values = torch.randn(shape) if signed else torch.randn(shape).square()
    codes, scales = eight.quantise(values, signed)
    back = eight.dequantise(codes, scales, values.shape, signed)
    assert codes.dtype == torch.uint8 and codes.shape == (len(scales), eight.BLOCK)
    table = eight.codebook(signed, values.device)
    blocks = torch.nn.functional.pad(values.flatten(), (0, -values.numel() % eight.BLOCK)).view(-1, eight.BLOCK)
    nearest = (blocks[..., None] / scales[:, None, None] - table).abs().amin(-1) * scales[:, None]
    nearest = nearest.flatten()[: values.numel()].view(shape)
    torch.testing.assert_close((back - values).abs(), nearest, atol=1e-6, rtol=1e-4)


def test_zeros_stay_zeros():
    codes, scales = eight.quantise(torch.zeros(300), True)
    assert torch.equal(eight.dequantise(codes, scales, torch.Size([300]), True), torch.zeros(300))


def test_the_codebook_holds_256_ascending_values():
    for signed in (True, False):
        table = eight.codebook(signed, torch.device("cpu"))
        assert len(table) == 256 and bool((table.diff() > 0).all()) and float(table[-1]) == 1.0


def test_bitsandbytes_serves_cuda_alone_and_only_where_it_is_installed():
    assert eight.kernels(torch.device("cpu")) is None
    assert eight.kernels(torch.device("meta")) is None
    assert (eight.kernels(torch.device("cuda")) is not None) == (find_spec("bitsandbytes") is not None)
