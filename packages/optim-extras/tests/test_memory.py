"""The memory report against what optimizers really hold."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from mudarrib.optim_extras import FusedBackward, OptionError, builders, compare, memory

PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
NAMES = ["adamw", *PYPROJECT["project"]["entry-points"]["mudarrib.optimizers"]]


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(300, 128), torch.nn.Linear(128, 512), torch.nn.LayerNorm(512), torch.nn.Linear(512, 96)
    )


def held(optimizer):
    tensors = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def build(name, net):
    if name == "adamw":
        return torch.optim.AdamW(net.parameters())
    rank = {"rank": "16"} if "galore" in name or "apollo_adamw" in name else {}
    targets = None if name == "muon" else "all-linear"
    return builders.BY_NAME[name](
        net, [{"params": list(net.parameters())}], lr=1e-3, target_modules=targets, options=rank
    )


class WithEnds(torch.nn.Sequential):
    """Names its embeddings and its output layer, as models of transformers do."""

    def get_input_embeddings(self):
        return self[0]

    def get_output_embeddings(self):
        return self[3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_states_are_those_of_the_optimizer_byte_for_byte(name, dtype):
    net = WithEnds(*model()).to(dtype)
    optimizer = build(name, net)
    if isinstance(optimizer, FusedBackward):
        optimizer.begin_micro_batch(True)
    net(torch.randint(300, (4, 5))).square().mean().backward()
    optimizer.step()
    assert memory(net, name, rank=16).states == held(optimizer)


def test_galore_states_are_the_papers():
    net = torch.nn.Sequential(torch.nn.Linear(96, 200, bias=False))
    m, n, r = 200, 96, 8
    assert memory(net, "galore_adamw", rank=r).states == 4 * (2 * m * r + r * n)
    assert memory(net, "galore_adamw", rank=r, proj_type="left").states == 4 * (2 * r * n + m * r)
    assert memory(net, "galore_adamw", rank=r, proj_type="full").states == 4 * (2 * r * r + r * (m + n))


def test_one_gradient_at_a_time_where_updates_are_in_backward():
    net = model()
    largest = max(p.numel() for p in net.parameters()) * 4
    whole = sum(p.numel() for p in net.parameters()) * 4
    assert memory(net, "galore_adamw").gradients == whole
    assert memory(net, "galore_adamw_layerwise").gradients == memory(net, "lomo").gradients == largest


def test_frozen_parameters_cost_their_weights_alone():
    net = model()
    net[1].requires_grad_(False)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    assert memory(net, "adamw").states == 2 * memory(net, "sgd").gradients + 4 * len(trained)
    assert memory(net, "adamw").weights == 4 * sum(p.numel() for p in net.parameters())


def test_the_meta_device_serves():
    assert memory(model().to("meta"), "adalomo") == memory(model(), "adalomo")


def test_a_wrong_name_is_refused():
    with pytest.raises(OptionError, match="galore_adamw_layerwise"):
        memory(model(), "galore")


def test_a_rank_of_nothing_is_refused():
    with pytest.raises(OptionError, match="rank = 0"):
        memory(model(), "galore_adamw", rank=0)


def test_a_report_reads_as_a_line():
    reports = compare(model(), rank=8)
    assert reports[0].name == "adamw" and str(reports[0]).count("MiB") == 1


def test_without_matplotlib_the_picture_says_what_to_install():
    code = "import sys; sys.modules['matplotlib'] = None; from mudarrib.optim_extras import draw; draw([], 'x.png')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "mudarrib-optim-extras[report]" in done.stderr
