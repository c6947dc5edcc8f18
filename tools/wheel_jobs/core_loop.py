"""Training that stops and goes on, with a model of transformers: core-loop with ckpt-hub from their wheels."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification

from mudarrib.core_loop import Trainer, TrainingArguments


def train(folder, steps, resume=None, **more):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    rows = [{"input_ids": [n % 50, 3, 4, 5], "labels": n % 3} for n in range(32)]
    settings = {"max_steps": steps, "save_strategy": "steps", "save_steps": 2, "use_cpu": True, "report_to": "none"}
    args = TrainingArguments(folder, disable_tqdm=True, lr_scheduler_type="constant", **{**settings, **more})
    trainer = Trainer(BertForSequenceClassification(config), args, train_dataset=rows, eval_dataset=rows[:8])
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.evaluate()["eval_loss"] > 0
    return trainer.model.state_dict()


optim = {name: value for name, _, value in (pair.partition("=") for pair in sys.argv[1:])}
whole = train("whole", 4, **optim)
train("parted", 2, **optim)
parted = train("parted", 4, resume=True, **optim)
assert all(torch.equal(weight, parted[name]) for name, weight in whole.items())
