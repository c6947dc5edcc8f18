"""Updates inside backward: accumulation, checkpointing, resume, bf16, freed gradients, two processes."""

import io
import os
import socket
import subprocess
import sys

import pytest
import torch
from loops_kit import IN_BACKWARD, NAMES, build, data, furthest, model, take_step, train

from mudarrib.optim_extras import FusedBackward, OptionError, builders, match_modules
from mudarrib.optim_extras.norms import euclidean


@pytest.mark.parametrize("name", NAMES)
def test_accumulation_equals_one_batch(name):
    whole, _ = train(name)
    parts, _ = train(name, parts=4)
    assert furthest(whole, parts) < 1e-5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stop", [1, 4])
def test_a_state_dict_without_pickle_goes_on_bit_for_bit(name, stop):
    whole, _ = train(name)
    net, optimizer = train(name, steps=stop)
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again = model()
    again.load_state_dict(saved["model"])
    restored = build(name, again)
    restored.load_state_dict(saved["optimizer"])
    train(name, net=again, optimizer=restored, first=stop)
    assert furthest(whole, again) == 0


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_inside_backward_equals_in_step(name):
    fused, _ = train(name)
    net = model()
    plain = build(name, net, clip="global")
    assert not isinstance(plain, FusedBackward)
    train(name, net=net, optimizer=plain)
    assert furthest(fused, net) == 0


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_gradients_are_never_all_alive(name):
    net = model()
    optimizer = build(name, net)
    alive = []
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _: alive.append(sum(p.grad is not None for p in net.parameters()))
        )
    take_step(net, optimizer, 0)
    assert max(alive) <= 1
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_outside_of_a_step_nothing_is_updated(name):
    net = model()
    optimizer = build(name, net)
    take_step(net, optimizer, 0)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    x, y = data(1)
    (net(x) - y).square().mean().backward()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_the_norm_is_that_of_all_gradients(name):
    net = model()
    optimizer = build(name, net)
    x, y = data(0)
    (net(x) - y).square().mean().backward()
    expected = torch.nn.utils.get_total_norm([parameter.grad for parameter in net.parameters()])
    net.zero_grad()
    take_step(net, optimizer, 0)
    torch.testing.assert_close(optimizer.last_grad_norm(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_large_tensors_are_exact(dtype):
    torch.manual_seed(0)
    tensor = torch.randn(4096, 4096).to(dtype)
    exact = tensor.double().square().sum().sqrt()
    assert float(euclidean(tensor) / exact) == pytest.approx(1.0, abs=1e-6)
    assert float(euclidean(tensor[0, :7]) / tensor[0, :7].double().norm()) == pytest.approx(1.0, abs=1e-6)
    assert float(euclidean(torch.tensor(-3.0))) == 3.0


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_with_recomputed_activations(name):
    class Recomputed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model()

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    expected, _ = train(name)
    net, _ = train(name, net=Recomputed())
    assert furthest(expected, net) == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_learns(name, dtype):
    net = model(dtype)
    if name == "muon" and dtype == torch.float16:
        with pytest.raises(OptionError, match="load the model in bfloat16"):
            build(name, net)
        return
    optimizer = build(name, net)
    losses = [take_step(net, optimizer, step % 4, dtype=dtype) for step in range(40)]
    assert sum(losses[-4:]) < sum(losses[:4])


@pytest.mark.parametrize("name", NAMES)
def test_the_schedule_is_followed(name):
    net = model()
    optimizer = build(name, net)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step > 0))
    before = [parameter.detach().clone() for parameter in net.parameters()]
    take_step(net, optimizer, 0)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters())), "the rate was 0"
    schedule.step()
    take_step(net, optimizer, 1)
    assert not all(torch.equal(a, b) for a, b in zip(before, net.parameters()))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("galore_adamw", {"rnak": "4"}, "did you mean 'rank'"),
        ("galore_adamw", {"rank": "many"}, "whole number"),
        ("galore_adamw", {"rank": "0"}, "at least 1"),
        ("galore_adamw", {"proj_type": "up"}, "reverse_std"),
        ("galore_adamw", {"svd": "fast"}, "warm, full"),
        ("lomo", {"rank": "4"}, "the options of lomo are"),
        ("adalomo", {"clip": "norm"}, "none, global"),
    ],
)
def test_bad_options_are_refused(name, options, said):
    with pytest.raises(OptionError, match=said):
        build(name, model(), **options)


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_a_closure_is_the_last_micro_batch(name):
    expected, _ = train(name, parts=2)
    net = model()
    optimizer = build(name, net)
    for step in range(6):
        x, y = data(step)
        first, last = zip(x.chunk(2), y.chunk(2))

        def closure(part):
            loss = (net(part[0]) - part[1]).square().mean() / 2
            loss.backward()
            return loss

        closure(first)
        assert float(optimizer.step(lambda: closure(last)).detach()) > 0
    assert furthest(expected, net) == 0


def test_a_model_that_is_one_linear_layer_is_matched():
    net = torch.nn.Linear(8, 8)
    assert match_modules(net, "all-linear").parameters == (net.weight,)


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_a_scaled_loss_gives_the_same_weights(name):
    expected, _ = train(name, steps=4)
    net = model()
    optimizer = build(name, net)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer.use_scaler(scaler)
    for step in range(4):
        x, y = data(step)
        optimizer.begin_micro_batch(True)
        scaler.scale((net(x) - y).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert furthest(expected, net) < 1e-6
    assert scaler.get_scale() == 2.0**10


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_what_overflows_is_not_used_and_the_scale_falls(name):
    net = model()
    optimizer = build(name, net)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer.use_scaler(scaler)
    x, _ = data(0)
    optimizer.begin_micro_batch(True)
    scaler.scale(net(x).sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    assert scaler.get_scale() == 2.0**9


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_groups_of_equal_shape_are_told_apart(name):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    groups = [{"params": list(layer.parameters()), "weight_decay": decay} for layer, decay in zip(net, (0.0, 0.5))]
    options = {} if "lomo" in name else {"rank": "2"}
    build_one = getattr(builders, name)
    optimizer = build_one(net, groups, lr=1e-2, target_modules="all-linear", options=options)
    optimizer.begin_micro_batch(True)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert all(parameter.grad is None for parameter in net.parameters())


TWO = """
import contextlib, os, sys
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
from loops_kit import build, data, model
import torch.distributed as dist
import torch.distributed.fsdp
from mudarrib.optim_extras import FusedBackward
dist.init_process_group("gloo")
rank, kind, folder = dist.get_rank(), sys.argv[1], sys.argv[2]
for name in sys.argv[3:]:
    net = model()
    if kind == "fsdp":
        torch.distributed.fsdp.fully_shard(net, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    optimizer = build(name, net)
    run = torch.nn.parallel.DistributedDataParallel(net) if kind == "ddp" else net
    for step in range(5):
        x, y = data(step)
        for part in range(2):
            if isinstance(optimizer, FusedBackward):
                optimizer.begin_micro_batch(part == 1)
            if kind == "fsdp":
                net.set_requires_gradient_sync(part == 1)
            waits = kind == "ddp" and part == 0
            rows = slice(rank * 4 + part * 2, rank * 4 + part * 2 + 2)
            with run.no_sync() if waits else contextlib.nullcontext():
                ((run(x[rows]) - y[rows]).square().mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {{key: w.full_tensor() if kind == "fsdp" else w for key, w in net.state_dict().items()}}
    if rank == 0:
        torch.save(weights, os.path.join(folder, name))
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "names"), [("bare", IN_BACKWARD), ("ddp", NAMES), ("fsdp", NAMES)])
def test_two_processes_equal_one(tmp_path, kind, names):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    code = TWO.format(folder=os.path.dirname(__file__))
    processes = []
    for rank in range(2):
        ranked = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-c", code, kind, str(tmp_path), *names]
        processes.append(subprocess.Popen(command, env={**os.environ, **ranked}))
    assert [process.wait(120) for process in processes] == [0, 0]
    for name in names:
        expected, _ = train(name, steps=5)
        got = model()
        got.load_state_dict(torch.load(tmp_path / name, weights_only=True))
        assert furthest(expected, got) < 1e-6, name
