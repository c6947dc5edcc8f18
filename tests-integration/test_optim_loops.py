"""The low-memory optimizers and NEFTune in our Trainer, the peers', Lightning, and with PEFT; and the picture."""

import lightning
import pytest
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

from mudarrib.core_loop import Trainer, TrainerCallback, TrainingArguments
from mudarrib.optim_extras import OptionError, builders, compare, draw, for_hf_trainer, neftune

OPTIONS = {"galore": "rank=4, update_proj_gap=2", "apollo": "rank=4, update_proj_gap=2"}
NAMES = [
    "galore_adamw", "galore_adafactor_layerwise", "galore_adamw_8bit_layerwise", "apollo_adamw", "apollo_adamw_layerwise",
    "apollo_mini", "lomo", "adalomo", "muon",
]  # fmt: skip


def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return GPT2LMHeadModel(config)


def rows(n=32):
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(32, (n, 1), generator=generator)
    ids = (starts + torch.arange(8)) % 32
    return [{"input_ids": row, "labels": row, "attention_mask": torch.ones_like(row)} for row in ids]


def settings(tmp_path, **given):
    common = {"max_steps": 4, "per_device_train_batch_size": 8, "report_to": "none", "save_strategy": "no"}
    return {"output_dir": str(tmp_path), "use_cpu": True, "learning_rate": 1e-2, **common, **given}


def options_of(name):
    return OPTIONS.get(name.split("_")[0]) if name != "apollo_mini" else None


def targets_of(name):
    return None if "lomo" in name or name == "muon" else ["attn", "mlp"]


@pytest.mark.parametrize("name", NAMES)
def test_by_name_in_our_trainer(tmp_path, name):
    args = TrainingArguments(
        **settings(tmp_path, max_steps=30, optim=name, optim_args=options_of(name), optim_target_modules=targets_of(name)),
        gradient_accumulation_steps=2, lr_scheduler_type="constant", logging_steps=5,
    )  # fmt: skip
    trainer = Trainer(model=gpt2(), args=args, train_dataset=rows(64))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "name", ["galore_adamw", "galore_adamw_layerwise", "galore_adamw_8bit_layerwise", "apollo_adamw"]
)
def test_betas_epsilon_and_decay_of_the_arguments_reach_every_group(tmp_path, name):
    args = TrainingArguments(
        **settings(tmp_path, optim=name, optim_args=options_of(name), optim_target_modules=targets_of(name)),
        adam_beta1=0.5, adam_beta2=0.6, adam_epsilon=1e-3, weight_decay=0.1,
    )  # fmt: skip
    trainer = Trainer(model=gpt2(), args=args, train_dataset=rows())
    trainer.train()
    groups = trainer.optimizer.param_groups
    assert {(*group["betas"], group["eps"]) for group in groups} == {(0.5, 0.6, 1e-3)}
    assert {group["weight_decay"] for group in groups if group.get("rank")} == {0.1}
    assert {group["weight_decay"] for group in groups} == {0.1, 0.0}


@pytest.mark.parametrize("name", ["galore_adamw_layerwise", "galore_adafactor_layerwise", "lomo", "adalomo"])
def test_updates_inside_backward_follow_the_schedule(tmp_path, name):
    class Watch(TrainerCallback):
        rates, sizes = [], []

        def on_step_begin(self, args, state, control, model, optimizer, **kwargs):
            self.rates.append({group["lr"] for group in optimizer.param_groups})
            self.before = [parameter.detach().clone() for parameter in model.parameters()]

        def on_step_end(self, args, state, control, model, **kwargs):
            pairs = zip(model.parameters(), self.before, strict=True)
            self.sizes.append(sum(float((a - b).norm().detach()) for a, b in pairs))

    Watch.rates, Watch.sizes = [], []
    args = TrainingArguments(
        **settings(tmp_path, optim=name, optim_args=options_of(name), optim_target_modules=targets_of(name)),
        lr_scheduler_type="linear", warmup_steps=2,
    )  # fmt: skip
    Trainer(model=gpt2(), args=args, train_dataset=rows(), callbacks=[Watch]).train()
    assert Watch.rates == [{0.0}, {0.005}, {0.01}, {0.005}]
    assert Watch.sizes[0] == 0 < Watch.sizes[3] < Watch.sizes[2]


@pytest.mark.parametrize("name", ["galore_adamw", "apollo_mini", "lomo", "muon"])
def test_in_the_peers_trainer_as_in_ours(tmp_path, name):
    clip = {"clip": "global"} if name == "lomo" else {}
    low = {"rank": "4"} if name == "galore_adamw" else {}
    pair = for_hf_trainer(name, lr=1e-2, target_modules=targets_of(name), options={**low, **clip}, betas=(0.8, 0.95))
    args = transformers.TrainingArguments(**settings(tmp_path / "theirs"))
    data = rows()
    trainer = transformers.Trainer(model=gpt2(), args=args, train_dataset=data, optimizer_cls_and_kwargs=pair)
    trainer.train()
    expected = gpt2()
    build, given = pair
    chosen = build()(expected, **given)
    other = transformers.Trainer(model=expected, args=args, train_dataset=data, optimizers=(chosen, None))
    other.train()
    for a, b in zip(trainer.model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(expected.transformer.wte.weight, gpt2().transformer.wte.weight)


@pytest.mark.parametrize("name", ["lomo", "galore_adamw_layerwise"])
def test_the_peers_trainer_cannot_step_what_updates_inside_backward(tmp_path, name):
    net = gpt2()
    optimizer = builders.BY_NAME[name](net, net.parameters(), lr=1e-2, target_modules=targets_of(name))
    args = transformers.TrainingArguments(**settings(tmp_path))
    trainer = transformers.Trainer(model=net, args=args, train_dataset=rows(), optimizers=(optimizer, None))
    with pytest.raises(OptionError, match="28 gradients that no update has used': call begin_micro_batch"):
        trainer.train()


class Module(lightning.LightningModule):
    def __init__(self, name, automatic):
        super().__init__()
        self.net, self.name = torch.nn.Linear(8, 1), name
        self.automatic_optimization = automatic

    def configure_optimizers(self):
        return getattr(builders, self.name)(
            self.net, [{"params": list(self.net.parameters())}], lr=1e-1, target_modules="all-linear"
        )

    def training_step(self, batch, number):
        inside = self.optimizers().optimizer
        if not self.automatic_optimization:
            inside.begin_micro_batch(is_last=True)
        loss = (self.net(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()
        if not self.automatic_optimization:
            self.manual_backward(loss)
            self.optimizers().step()
        self.last = float(loss.detach())
        return loss


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "automatic"), [("galore_adamw", True), ("lomo", True), ("lomo", False)])
def test_in_lightning(tmp_path, name, automatic):
    torch.manual_seed(0)
    module = Module(name, automatic)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(256, 8)), batch_size=8)
    trainer = lightning.Trainer(
        max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, data)
    assert module.last < 1.0


def test_noise_with_peft_and_tied_embeddings():
    from peft import LoraConfig, get_peft_model

    net = gpt2()
    assert net.lm_head.weight is net.transformer.wte.weight
    model = get_peft_model(net, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    ids = torch.tensor([[1, 2, 3, 4]])
    before, keys = model(input_ids=ids).logits, list(model.state_dict())
    model.train()
    with neftune(model, 5.0):
        assert not torch.equal(model(input_ids=ids).logits, before)
        assert list(model.state_dict()) == keys
        model.eval()
        assert torch.equal(model(input_ids=ids).logits, before)
    model.train()
    assert torch.equal(model(input_ids=ids).logits, before)


def test_the_picture_of_memory(tmp_path):
    draw(compare(gpt2(), rank=4), tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes()[:4] == b"\x89PNG"
