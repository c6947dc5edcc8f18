"""Tiny real models and rows for the tests of core-loop."""

import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from mudarrib.core_loop import TrainingArguments


class Regressor(torch.nn.Module):
    """A linear map with a mean-squared loss; dropout so that the random state shows in the weights."""

    def __init__(self, width=4, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x, labels=None):
        logits = self.dropout(self.linear(x)).squeeze(-1)
        loss = None if labels is None else torch.nn.functional.mse_loss(logits, labels)
        return {"loss": loss, "logits": logits}


class Classifier(torch.nn.Module):
    """A linear classifier without any keyword of the peers' models."""

    def __init__(self, width=4, classes=3):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(width, classes)

    def forward(self, x, labels=None):
        logits = self.linear(x)
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}


class Rows(torch.utils.data.Dataset):
    """Map-style rows {x, labels}; float labels for a regression, class numbers with `classes`."""

    def __init__(self, n=20, width=4, classes=None, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, width, generator=generator)
        self.labels = self.x.sum(-1) if classes is None else torch.randint(classes, (n,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.labels[index]}


def bert(classes=3, seed=0):
    torch.manual_seed(seed)
    return BertForSequenceClassification(
        BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                   num_labels=classes, hidden_dropout_prob=0.1)
    )  # fmt: skip


def gpt2(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=1, n_head=2, resid_pdrop=dropout,
                   embd_pdrop=dropout, attn_pdrop=dropout)
    )  # fmt: skip


def arguments(folder, **settings):
    settings = {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "max_steps": 4,
        "learning_rate": 1e-2,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        **settings,
    }
    return TrainingArguments(str(folder), **settings)


def weights(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def furthest(a, b):
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
