"""The guide's rows about optimizers and noise, as its readers would type them."""

import time

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from mudarrib.core_loop import Trainer, TrainerCallback, TrainingArguments
from mudarrib.optim_extras import GaLoreAdamW


def gpt2(width=64):
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32, n_positions=16, n_embd=width, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
        )
    )  # fmt: skip


class Llamalike(nn.Module):
    """Linear layers under the names that the guide's example targets."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(32, 32)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"attn": nn.Linear(32, 32), "mlp": nn.Linear(32, 32), "norm": nn.LayerNorm(32)})
            for _ in range(2)
        )
        self.head = nn.Linear(32, 32)

    def forward(self, input_ids, labels=None):
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = hidden + layer["mlp"](torch.tanh(layer["attn"](layer["norm"](hidden))))
        logits = self.head(hidden)
        return {
            "loss": nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()),
            "logits": logits,
        }


def rows(n=64):
    starts = torch.randint(32, (n, 1), generator=torch.Generator().manual_seed(0))
    ids = (starts + torch.arange(8)) % 32
    return [{"input_ids": row, "labels": row} for row in ids]


def train(folder, model, resume=None, callbacks=None, **given):
    settings = {
        "max_steps": 8, "per_device_train_batch_size": 8, "learning_rate": 1e-2, "logging_steps": 1, "save_strategy": "no",
        "report_to": "none", "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    args = TrainingArguments(output_dir=str(folder), **{**settings, **given})
    trainer = Trainer(model=model, args=args, train_dataset=rows(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


class Breaks(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        raise RuntimeError("in the middle")


def test_G18_noise_in_training_only_and_the_layer_is_back_whatever_happened(tmp_path):
    plain, noisy = gpt2(), gpt2()
    without = train(tmp_path, plain)
    given = train(tmp_path, noisy, neftune_noise_alpha=0.1)
    assert losses(given) != losses(without) and losses(given)[-1] < losses(given)[0]
    broken = gpt2()
    with pytest.raises(RuntimeError, match="in the middle"):
        train(tmp_path, broken, neftune_noise_alpha=0.1, callbacks=[Breaks()])
    for model in (noisy, broken):
        embedding = model.get_input_embeddings()
        assert type(embedding) is nn.Embedding and not embedding._forward_hooks and "forward" not in vars(embedding)
        assert model.state_dict().keys() == plain.state_dict().keys()
        model.train()
        ids = rows(2)[0]["input_ids"][None]
        assert torch.equal(embedding(ids), embedding.weight[ids]), "no noise is left in training mode either"


GALORE = ["galore_adamw", "galore_adafactor", "galore_adamw_8bit"]


@pytest.mark.parametrize("optim", GALORE)
@pytest.mark.parametrize(
    ("targets", "projected"),
    [
        (["attn", "mlp"], {f"layers.{n}.{name}.weight" for n in (0, 1) for name in ("attn", "mlp")}),
        (r".*0\.(attn|mlp)", {"layers.0.attn.weight", "layers.0.mlp.weight"}),
        (["layers.1.mlp"], {"layers.1.mlp.weight"}),
    ],
)
def test_G19_G20_galore_on_the_linear_layers_that_are_named(tmp_path, optim, targets, projected):
    model = Llamalike()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    trainer = train(
        tmp_path, model, optim=optim, optim_target_modules=targets, optim_args="rank=16, update_proj_gap=100, scale=0.10"
    )  # fmt: skip
    names = {parameter: name for name, parameter in model.named_parameters()}
    low_rank = [group for group in trainer.optimizer.param_groups if group.get("rank")]
    assert {names[parameter] for group in low_rank for parameter in group["params"]} == projected
    assert {(group["rank"], group["update_proj_gap"], group["scale"]) for group in low_rank} == {(16, 100, 0.10)}
    assert losses(trainer)[-1] < losses(trainer)[0]
    assert all(not torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize("optim", [f"{name}_layerwise" for name in GALORE])
def test_G21_layerwise_with_accumulation_clipping_and_resume(tmp_path, optim):
    given = {
        "optim": optim, "optim_target_modules": ["attn", "mlp"], "optim_args": "rank=8, update_proj_gap=3, clip=global",
        "gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "save_strategy": "steps", "save_steps": 5,
    }  # fmt: skip
    whole, again = gpt2(), gpt2()
    uninterrupted = train(tmp_path, whole, **given)
    assert losses(uninterrupted)[-1] < losses(uninterrupted)[0]
    train(tmp_path, again, resume=str(tmp_path / "checkpoint-5"), **given)
    assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in again.state_dict().items())


def test_G22_the_decomposition_costs_a_small_part_of_the_full_one():
    def fastest(work, times=3):
        took = []
        for _ in range(times):
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
        return min(took)

    weight = nn.Parameter(torch.zeros(1024, 1024))
    weight.grad = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    optimizer = GaLoreAdamW([{"params": [weight], "rank": 128, "update_proj_gap": 1}], lr=1e-3)
    optimizer.step()
    with_refresh = fastest(optimizer.step)
    assert with_refresh < fastest(lambda: torch.linalg.svd(weight.grad, full_matrices=False)) / 5


@pytest.mark.parametrize("optim", ["lomo", "adalomo"])
def test_G23_gradient_and_update_are_one_step(tmp_path, optim):
    class Held(TrainerCallback):
        """The bytes of gradients that are held once all of them have been made."""

        bytes = []

        def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
            self.bytes.append(sum(p.grad.nbytes for p in model.parameters() if p.grad is not None))

    Held.bytes = []
    trainer = train(tmp_path, gpt2(), optim=optim, callbacks=[Held], learning_rate=0.1 if optim == "lomo" else 1e-2)
    assert losses(trainer)[-1] < losses(trainer)[0]
    assert len(Held.bytes) == 8 and set(Held.bytes) == {0}
