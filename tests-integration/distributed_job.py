"""What every process of the distributed tests runs: train, save, start again from a checkpoint; tell what came out."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import peft
import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from mudarrib.core_loop import Trainer, TrainingArguments

torch.set_num_threads(1)

ROWS, EVAL_ROWS = 22, 7


def model_of(kind):
    torch.manual_seed(0)
    if kind == "bert":
        config = BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=32,
        )  # fmt: skip
        return BertForSequenceClassification(config)
    config = GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    model = GPT2LMHeadModel(config)
    if kind == "gpt2":
        return model
    adapter = peft.LoraConfig(r=4, target_modules=["c_attn"], modules_to_save=["ln_f"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, adapter)


def rows_of(kind, n):
    generator = torch.Generator().manual_seed(n)
    rows = []
    for number in range(n):
        length = 4 + number % 5
        ids = torch.randint(3, 64, (length,), generator=generator).tolist()
        rows.append({"input_ids": ids, "labels": number % 3 if kind == "bert" else list(ids)})
    return rows


def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    pad = lambda values, value: values + [value] * (longest - len(values))
    batch = {
        "input_ids": torch.tensor([pad(row["input_ids"], 0) for row in rows]),
        "attention_mask": torch.tensor([pad([1] * len(row["input_ids"]), 0) for row in rows]),
    }
    labels = [row["labels"] if isinstance(row["labels"], int) else pad(row["labels"], -100) for row in rows]
    return {**batch, "labels": torch.tensor(labels)}


def metrics(prediction):
    labels = prediction.label_ids
    return {"rows": float(len(labels)), "labels": float(labels[labels >= 0].sum())}


class FailingTrainer(Trainer):
    """Breaks down, or is killed, on the second process at a step, if that is asked for."""

    fails_at = dies_at = None

    def training_step(self, model, inputs, num_items_in_batch=None):
        if self.args.process_index == 1 and self.state.global_step == self.fails_at:
            raise ZeroDivisionError("the second process breaks down")
        if self.args.process_index == 1 and self.state.global_step == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(model, inputs, num_items_in_batch)


def take_turns(args, mark):
    """The main process comes first before there is a Trainer, too."""
    with args.main_process_first(desc="leaving a mark"):
        if args.process_index == 0:
            time.sleep(0.2)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        assert mark.exists(), "the other process did not wait"


def trainer_of(options, output_dir):
    settings = {
        "use_cpu": True, "disable_tqdm": True, "seed": 3, "max_steps": 6, "learning_rate": 0.01, "logging_steps": 1,
        "lr_scheduler_type": "linear", "warmup_steps": 2, "weight_decay": 0.1, "max_grad_norm": 0.5,
        "per_device_train_batch_size": options.batch, "per_device_eval_batch_size": 2,
        "gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps",
        "save_steps": 3, "report_to": "none", "remove_unused_columns": False,
    }  # fmt: skip
    args = TrainingArguments(output_dir, **{**settings, **json.loads(options.arguments)})
    take_turns(args, Path(output_dir) / "first")
    return FailingTrainer(
        model_of(options.kind), args, train_dataset=rows_of(options.kind, options.rows), data_collator=collate,
        eval_dataset=rows_of(options.kind, EVAL_ROWS), compute_metrics=metrics,
    )  # fmt: skip


def told(trainer):
    """What the first process says of a run."""
    wrapped = trainer.model_wrapped
    local = sum(getattr(p, "to_local", lambda p=p: p)().numel() for p in wrapped.parameters())
    partitioned = sum(p.ds_tensor.numel() for p in wrapped.parameters() if hasattr(p, "ds_tensor"))
    return {
        "wrapper": type(wrapped).__name__,
        "modules": sorted({type(module).__name__ for module in wrapped.modules()}),
        "local": partitioned or local,
        "optimizer_state": sum(
            getattr(value, "to_local", lambda value=value: value)().numel()
            for state in trainer.optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        ),
        "history": trainer.state.log_history,
    }


def main(given=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", default="bert")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--arguments", default="{}")
    parser.add_argument("--resume", help="a checkpoint to start from, instead of the run's own third step")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--fail_at", type=int)
    parser.add_argument("--die_at", type=int)
    options = parser.parse_args(given)
    FailingTrainer.fails_at, FailingTrainer.dies_at = options.fail_at, options.die_at
    said = {}
    if options.resume is None:
        first = trainer_of(options, options.folder / "run")
        first.evaluate()
        # One row for two processes: the other has none, and must not be waited for.
        one_row = first.evaluate(rows_of(options.kind, 1))
        first.train()
        first.save_model(options.folder / "final")
        said["first"] = {**told(first), "one_row": one_row}
        options.resume = options.folder / "run" / "checkpoint-3"
    again = trainer_of(options, options.folder / "again")
    again.train(resume_from_checkpoint=str(options.resume))
    again.save_model(options.folder / "again" / "final")
    said["again"] = told(again)
    if again.is_world_process_zero():
        (options.folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    sys.exit(main())
