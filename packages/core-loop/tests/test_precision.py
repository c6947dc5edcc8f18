"""Precision and memory: half precision, recomputed activations, out of memory."""

import pytest
import torch
from tiny import Classifier, Regressor, Rows, arguments, bert, furthest, gpt2, losses, same, weights

from mudarrib.core_loop import ArgumentError, Trainer, TrainerCallback


def rows(n=16):
    ids = torch.randint(0, 40, (n, 6), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": row, "labels": row} for row in ids]


def test_bf16_computes_in_bfloat16_and_keeps_float32_weights(tmp_path):
    seen = []

    class Look(Classifier):
        def forward(self, x, labels=None):
            out = super().forward(x, labels)
            seen.append(out["logits"].dtype)
            return out

    model = Look()
    Trainer(model=model, args=arguments(tmp_path, bf16=True, max_steps=2), train_dataset=Rows(classes=3)).train()
    assert seen == [torch.bfloat16] * 2 and model.linear.weight.dtype == torch.float32


def test_bf16_full_eval(tmp_path):
    model = Classifier()
    trainer = Trainer(model=model, args=arguments(tmp_path, bf16_full_eval=True, remove_unused_columns=False),
                      eval_dataset=[{"x": torch.ones(4, dtype=torch.bfloat16), "labels": 1}] * 8)  # fmt: skip
    assert trainer.evaluate()["eval_loss"] > 0
    assert model.linear.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["gradient_checkpointing", "activation_checkpointing"])
def test_recomputed_activations_change_no_weight(tmp_path, name):
    plain, recomputed = gpt2(), gpt2()
    Trainer(model=plain, args=arguments(tmp_path), train_dataset=rows()).train()
    settings = {name: True, f"{name}_kwargs": {"use_reentrant": False}}
    Trainer(model=recomputed, args=arguments(tmp_path, **settings), train_dataset=rows()).train()
    assert recomputed.is_gradient_checkpointing
    assert furthest(weights(plain), weights(recomputed)) < 1e-7


def test_a_model_that_cannot_recompute_is_named(tmp_path):
    with pytest.raises(ArgumentError, match="Regressor does not support it"):
        Trainer(model=Regressor(), args=arguments(tmp_path, gradient_checkpointing=True), train_dataset=Rows()).train()


def test_out_of_memory_halves_the_batch(tmp_path):
    class Hungry(Regressor):
        def forward(self, x, labels=None):
            if self.training and len(x) > 4:
                raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")
            return super().forward(x, labels)

    args = arguments(tmp_path, per_device_train_batch_size=16, auto_find_batch_size=True, logging_steps=1)
    trainer = Trainer(model=Hungry(), args=args, train_dataset=Rows(32))
    trainer.train()
    assert trainer.train_batch_size == 4 and trainer.state.train_batch_size == 4
    assert len(losses(trainer)) == 4


def test_out_of_memory_without_asking_is_raised(tmp_path):
    class Hungry(Regressor):
        def forward(self, x, labels=None):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        Trainer(model=Hungry(), args=arguments(tmp_path), train_dataset=Rows()).train()


def test_memory_in_the_metrics(tmp_path):
    args = arguments(tmp_path, skip_memory_metrics=False)
    assert Trainer(model=Regressor(), args=args, train_dataset=Rows()).train().metrics["train_mem_cpu_peak"] > 1e7


def test_tokens_and_operations_are_counted(tmp_path):
    model = gpt2()
    args = arguments(tmp_path, include_num_input_tokens_seen="all", logging_steps=1)
    trainer = Trainer(model=model, args=args, train_dataset=rows())
    trainer.train()
    assert trainer.state.num_input_tokens_seen == 4 * 4 * 6
    assert trainer.state.total_flos == 6 * model.num_parameters(exclude_embeddings=True) * 4 * 4 * 6
    entry = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert entry["num_input_tokens_seen"] == 24 and entry["train_tokens_per_second"] > 0


def test_nothing_waits_for_the_device_between_logs(tmp_path, monkeypatch):
    calls = []
    for name in ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__"):
        original = getattr(torch.Tensor, name)

        def watched(self, *args, _name=name, _original=original, **kwargs):
            calls.append(_name)
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, watched)

    class Marks(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 1:
                calls.clear()

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 11:
                self.seen = list(calls)

    marks = Marks()
    Trainer(model=Classifier(), args=arguments(tmp_path, max_steps=12), train_dataset=Rows(60, classes=3),
            callbacks=[marks]).train()  # fmt: skip
    assert marks.seen == []


def test_the_underflow_watcher_is_the_peers(tmp_path):
    trainer = Trainer(model=bert(), args=arguments(tmp_path, debug="underflow_overflow"),
                      train_dataset=[{"input_ids": torch.arange(5), "labels": 1}] * 8)  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == 4


def test_a_compiled_model_trains_the_same_and_is_saved_as_itself(tmp_path):
    plain, compiled = Classifier(), Classifier()
    settings = {"save_strategy": "steps", "save_steps": 4}
    Trainer(model=plain, args=arguments(tmp_path / "a", **settings), train_dataset=Rows(classes=3)).train()
    args = arguments(tmp_path / "b", torch_compile_backend="eager", **settings)
    trainer = Trainer(model=compiled, args=args, train_dataset=Rows(classes=3), eval_dataset=Rows(8, classes=3))
    trainer.train()
    assert args.torch_compile and trainer.model_wrapped is not compiled
    assert same(weights(plain), weights(compiled)) and trainer.evaluate()["eval_loss"] > 0
    a, b = (tmp_path / name / "checkpoint-4" / "model.safetensors" for name in "ab")
    assert a.read_bytes() == b.read_bytes()
