"""Every case of the numeric oracles, to 1e-5."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mudarrib.optim_extras import FusedAdaLomo, FusedLomo, GaLoreAdafactor, GaLoreAdamW
from mudarrib.optim_extras.neftune import with_noise

FOLDER = Path(__file__).parent / "oracles"
CASES = json.loads((FOLDER / "index.json").read_text())
GALORE = [name for name in CASES if name.startswith("galore")]
LOMO = [name for name in CASES if "lomo" in name]


def load(name):
    return {key: torch.from_numpy(value) for key, value in np.load(FOLDER / f"{name}.npz").items()}


def outer(state):
    left, right = state.get("basis_left"), state.get("basis_right")
    if left is not None and right is not None:
        pad = lambda m: torch.nn.functional.pad(m, (0, 8 - m.shape[1], 0, 8 - m.shape[0]))
        return torch.stack([pad(left @ left.T), pad(right @ right.T)])
    basis = left if left is not None else right
    return basis @ basis.T if basis.shape[0] > basis.shape[1] else basis.T @ basis


@pytest.mark.parametrize("name", GALORE)
def test_galore(name):
    case, arrays = CASES[name], load(name)
    dtype = torch.bfloat16 if "bfloat16" in case["dtype"] else torch.float32
    weight = torch.nn.Parameter(arrays["w0"].to(dtype))
    group = {"params": [weight]}
    if case.get("rank") is not None:
        group |= {key: case[key] for key in ("rank", "update_proj_gap", "scale", "proj_type")} | {"svd": "full"}
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in case["kwargs"].items()}
    if "Adafactor" in case["optimizer"]:
        optimizer = GaLoreAdafactor([group], **settings)
    else:
        optimizer = GaLoreAdamW([group], **settings, state_dtype="parameter")
    close = {"atol": 1e-5, "rtol": 1e-5}
    # Projected on both sides by its own singular vectors, a gradient is diagonal: AdamW divides what rounding leaves
    # beside the diagonal (1e-8, another on each kind of CPU) by eps, 1e-6. The moments are held to 1e-5 all the same.
    diagonal = case.get("proj_type") == "full" and "AdamW" in case["optimizer"]
    close_weights = {**close, "atol": 1e-4} if diagonal else close
    for step, gradient in enumerate(arrays["grads"]):
        weight.grad = gradient.to(dtype)
        optimizer.step()
        state = optimizer.state[weight]
        torch.testing.assert_close(weight.detach().float(), arrays["w"][step], **close_weights)
        if "abs_exp_avg" in arrays:
            torch.testing.assert_close(state["exp_avg"].abs().float(), arrays["abs_exp_avg"][step], **close)
        for key in ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"):
            if key in arrays:
                torch.testing.assert_close(state[key].float(), arrays[key][step], **close)
        if "projector_outer" in arrays:
            torch.testing.assert_close(outer(state).float(), arrays["projector_outer"][step], **close)


@pytest.mark.parametrize("name", LOMO)
def test_lomo(name):
    case, arrays = CASES[name], load(name)
    weights = [torch.nn.Parameter(arrays[f"w0_{i}"].clone()) for i in range(3)]
    settings = {key: v for key, v in case["kwargs"].items() if key not in ("clip_grad_norm", "loss_scale")}
    cls = FusedAdaLomo if "AdaLomo" in case["optimizer"] else FusedLomo
    optimizer = cls(weights, lr=0.1, **settings)
    limit = case["kwargs"].get("clip_grad_norm")
    for step in range(5):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (1 + step)
        loss = lambda: sum((w * arrays[f"g_{i}"][step]).sum() for i, w in enumerate(weights))
        if limit is not None:
            with optimizer.measuring():
                loss().backward()
        optimizer.begin_micro_batch(is_last=True, max_grad_norm=limit)
        loss().backward()
        optimizer.step()
        for i, weight in enumerate(weights):
            torch.testing.assert_close(weight.detach(), arrays[f"w_{i}"][step], atol=1e-5, rtol=1e-5)
            state = optimizer.state[weight]
            for key, short in (("exp_avg_sq_row", "row"), ("exp_avg_sq_col", "col"), ("exp_avg_sq", "v")):
                if f"{short}_{i}" in arrays:
                    torch.testing.assert_close(state[key], arrays[f"{short}_{i}"][step], atol=1e-5, rtol=1e-5)


def test_neftune():
    arrays = load("neftune")
    torch.manual_seed(123)
    torch.testing.assert_close(with_noise(arrays["clean"], 5.0, None), arrays["hf_train"], atol=1e-6, rtol=1e-6)
    mask = (arrays["ids"] != 0).long()
    noise = (with_noise(arrays["clean"], 5.0, mask) - arrays["clean"]).abs()
    assert (noise[mask == 0] == 0).all()
    for row, bound in enumerate(arrays["paper_bound"]):
        assert 0.5 * bound < noise[row].max() <= bound * 1.0001


def test_every_case_is_used():
    assert len(GALORE) + len(LOMO) + 1 == len(CASES) == 42
