"""APOLLO and Muon: against independent arithmetic, and by name."""

import pytest
import torch

from mudarrib.optim_extras import ApolloAdamW, OptionError, builders


def by_hand(weight, gradients, bases, lr, scale, tensor_wise, beta1=0.9, beta2=0.999, eps=1e-6):
    """APOLLO of a tall matrix in float64, written from the paper."""
    w, m, v, last = weight.double(), 0.0, 0.0, None
    for t, (g, p) in enumerate(zip(gradients, bases), start=1):
        g = g.double()
        r = g @ p.double()
        m, v = beta1 * m + (1 - beta1) * r, beta2 * v + (1 - beta2) * r**2
        moved = m / (v.sqrt() + eps)
        ratio = (
            moved.norm() / r.norm() if tensor_wise else moved.norm(dim=1, keepdim=True) / r.norm(dim=1, keepdim=True)
        )
        u = g * ratio
        if last is not None and u.norm() > 1.01 * last:
            u = u / u.norm() * 1.01 * last
        last = u.norm()
        w = w - lr * (1 - beta2**t) ** 0.5 / (1 - beta1**t) * scale**0.5 * u
    return w


@pytest.mark.parametrize(("scale_type", "rank", "scale"), [("channel", 4, 1.0), ("tensor", 1, 128.0)])
def test_apollo_by_hand(scale_type, rank, scale):
    torch.manual_seed(0)
    start = torch.randn(12, 7)
    gradients = [torch.randn(12, 7) * (1 + step) for step in range(6)]
    weight = torch.nn.Parameter(start.clone())
    group = {"params": [weight], "rank": rank, "scale": scale, "scale_type": scale_type, "update_proj_gap": 3}
    optimizer = ApolloAdamW([group], lr=1e-2)
    bases = []
    for gradient in gradients:
        state = {"place": 0, **optimizer.state[weight]}
        state.setdefault("step", 0)
        bases.append(optimizer.basis(gradient, "right", state, optimizer.param_groups[0]))
        weight.grad = gradient
        optimizer.step()
    expected = by_hand(start, gradients, bases, 1e-2, scale, scale_type == "tensor")
    torch.testing.assert_close(weight.detach().double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(bases[0], bases[2]) and not torch.equal(bases[2], bases[3])


def test_muon_steps_matrices_and_adamw_the_rest():
    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))

    ours, theirs = net(), net()
    groups = [{"params": list(ours.parameters()), "weight_decay": 0.01}]
    optimizer = builders.muon(ours, groups, lr=1e-2, betas=(0.8, 0.9), eps=1e-5)
    matrices = [p for p in theirs.parameters() if p.dim() == 2]
    rest = [p for p in theirs.parameters() if p.dim() == 1]
    references = [
        torch.optim.Muon(matrices, lr=1e-2, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=1e-2, weight_decay=0.01, betas=(0.8, 0.9), eps=1e-5),
    ]
    for step in range(4):
        x = torch.randn(5, 8)
        for group in (*optimizer.param_groups, *(g for r in references for g in r.param_groups)):
            group["lr"] = 1e-2 / (1 + step)
        for model, optimizers in ((ours, [optimizer]), (theirs, references)):
            (model(x) - x).square().mean().backward()
            for each in optimizers:
                each.step()
            model.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))


def test_muon_leaves_embeddings_and_output_to_adamw():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embeddings, self.hidden, self.head = (
                torch.nn.Embedding(9, 4),
                torch.nn.Linear(4, 4),
                torch.nn.Linear(4, 9),
            )

        def get_input_embeddings(self):
            return self.embeddings

        def get_output_embeddings(self):
            return self.head

    model = Model()
    optimizer = builders.muon(model, [{"params": list(model.parameters())}], lr=1e-2)
    assert [p for g in optimizer.param_groups if g["muon"] for p in g["params"]] == [model.hidden.weight]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("apollo_adamw", {"svd": "full"}, "the options of apollo_adamw are"),
        ("apollo_adamw", {"proj_type": "full"}, "reverse_std"),
        ("apollo_mini", {"scale_type": "row"}, "channel, tensor"),
        ("muon", {"nesterov": "maybe"}, "true or false"),
    ],
)
def test_bad_options_are_refused(name, options, said):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    with pytest.raises(OptionError, match=said):
        getattr(builders, name)(
            net, [{"params": list(net.parameters())}], lr=1e-2, target_modules="all-linear", options=options
        )
