"""The commonest mistakes over all packages: each answered with argument, value and fix, before the first step."""

import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset, IterableDataset

sys.path.insert(0, str(Path(__file__).parent))
from docs_kit import chat_model, classifier, rows_of, translation_model  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, HubPusher, ResumableBatches
from mudarrib.core_loop import ArgumentError, EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from mudarrib.launch import check, new, read
from mudarrib.launch.errors import ConfigError
from mudarrib.optim_extras import builders, memory, neftune
from mudarrib.sft import Seq2SeqTrainer, Seq2SeqTrainingArguments, SFTConfig, SFTTrainer

STEPS = []


class Steps(TrainerCallback):
    def on_optimizer_step(self, args, state, control, **kwargs):
        STEPS.append(state.global_step)


class Line(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = torch.nn.Linear(width, 1)

    def forward(self, x, labels=None):
        logits = self.linear(x).squeeze(-1)
        return {"logits": logits} if labels is None else {"loss": (logits - labels).square().mean(), "logits": logits}


ROWS = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(16)]
CHATS = Dataset.from_list(rows_of("chat.jsonl", 12))
TEXTS = Dataset.from_list([{"text": row["messages"][1]["content"]} for row in rows_of("chat.jsonl", 12)])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Tiny models with tokenizers, saved."""
    folder = tmp_path_factory.mktemp("models")
    chat_model(folder / "chat")
    translation_model(folder / "t5")
    classifier(folder / "bert")
    return folder


class Kit:
    """What the cases build: everything tiny, everything in one folder."""

    def __init__(self, folder, saved):
        self.folder, self.saved = folder, saved

    def args(self, cls=TrainingArguments, **settings):
        common = {"max_steps": 3, "per_device_train_batch_size": 4, "report_to": "none", "save_strategy": "no",
                  "use_cpu": True, "disable_tqdm": True}  # fmt: skip
        return cls(str(self.folder / "out"), **{**common, **settings})

    def run(self, model=None, rows=ROWS, settings=None, **more):
        more = {"callbacks": Steps, **more}
        return Trainer(model or Line(), self.args(**(settings or {})), train_dataset=rows, **more).train()

    def tokenizer(self, name, **changes):
        tokenizer = AutoTokenizer.from_pretrained(self.saved / name)
        for key, value in changes.items():
            setattr(tokenizer, key, value)
        return tokenizer

    def bert(self, **settings):
        return AutoModelForSequenceClassification.from_pretrained(self.saved / "bert", **settings)

    def ids(self, label=0, n=8, lengths=(5,)):
        return [{"input_ids": [3] * lengths[i % len(lengths)], "labels": label} for i in range(n)]

    def sft(self, rows=CHATS, settings=None, **more):
        model = more.pop("model", None) or AutoModelForCausalLM.from_pretrained(self.saved / "chat")
        more = {"processing_class": self.tokenizer("chat"), "callbacks": Steps, **more}
        config = {"gradient_checkpointing": False, **(settings or {})}
        return SFTTrainer(model, self.args(SFTConfig, **config), train_dataset=rows, **more).train()

    def seq2seq(self, rows, settings=None, **more):
        model = more.pop("model", None) or AutoModelForSeq2SeqLM.from_pretrained(self.saved / "t5")
        args = self.args(Seq2SeqTrainingArguments, **(settings or {}))
        return Seq2SeqTrainer(model, args, train_dataset=rows, processing_class=self.tokenizer("t5"), callbacks=Steps,
                              **more).train()  # fmt: skip

    def galore(self, name="galore_adamw", **settings):
        model = Line()
        groups = [{"params": list(model.parameters()), "weight_decay": 0.0}]
        return getattr(builders, name)(model, groups, lr=0.1, **settings)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


def on_meta():
    with torch.device("meta"):
        return Line()


class NoLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        return {"logits": self.linear(x)}


class Mute(NoLoss):
    def forward(self, x, labels=None):
        return None


def checkpoint(kit, **settings):
    kit.run(settings={"save_strategy": "steps", "save_steps": 3, **settings})
    STEPS.clear()
    return str(kit.folder / "out" / "checkpoint-3")


def store(kit, **settings):
    return CheckpointStore(kit.folder / "store", **settings)


def finding(kit, config, code):
    """What a rule says of a wrong config, as an error."""
    found = {f.code: f for f in check(config)}
    assert code in found, sorted(found)
    raise ConfigError(found[code].key, found[code].message, found[code].fix)


# What is named in the answer, and the mistake.
MISTAKES = {
    # the model
    "a name instead of a model": ("model", lambda k: Trainer("bert", k.args())),
    "no model": ("model", lambda k: Trainer(args=k.args())),
    "model and model_init": ("model", lambda k: Trainer(Line(), k.args(), model_init=Line)),
    "a model on the meta device": ("model", lambda k: Trainer(on_meta(), k.args())),
    "everything frozen": ("model", lambda k: Trainer(Line().requires_grad_(False), k.args())),
    "model_init that returns nothing": ("model_init", lambda k: Trainer(model_init=lambda: None, args=k.args())),
    "a model without a loss": ("loss", lambda k: k.run(NoLoss())),
    "a model that returns nothing": ("model", lambda k: k.run(Mute())),
    # the data
    "no training data": ("train_dataset", lambda k: Trainer(Line(), k.args()).train()),
    "empty training data": ("train_dataset", lambda k: k.run(rows=[])),
    "a path instead of data": ("train_dataset", lambda k: k.run(rows="train.csv")),
    "a dict of splits instead of one": ("train_dataset", lambda k: k.run(rows={"train": ROWS, "test": ROWS})),
    "texts that nobody tokenized": ("train_dataset", lambda k: k.run(k.bert(), [{"text": "a"}] * 8)),
    "wrong column names": ("train_dataset", lambda k: k.run(rows=[{"features": 1.0, "target": 2.0}] * 8)),
    "no labels": ("labels", lambda k: k.run(k.bert(), [{"input_ids": [1, 2]}] * 8)),
    "a label out of range": ("labels", lambda k: k.run(k.bert(), k.ids(label=7))),
    "a negative label": ("labels", lambda k: k.run(k.bert(), k.ids(label=-3))),
    "labels that are texts": ("labels", lambda k: k.run(k.bert(), k.ids(label="good"))),
    "token ids beyond the vocabulary": ("input_ids", lambda k: k.run(k.bert(), [{"input_ids": [99_999], "labels": 0}] * 8)),
    "rows of different lengths": ("data_collator", lambda k: k.run(k.bert(), k.ids(lengths=(3, 5)))),
    "a tokenizer without pad token": (
        "pad_token",
        lambda k: k.run(k.bert(), k.ids(lengths=(3, 5)), processing_class=k.tokenizer("chat", pad_token=None)),
    ),
    "a collator that is none": ("data_collator", lambda k: k.run(data_collator="pad")),
    "a collator that returns nothing": ("data_collator", lambda k: k.run(data_collator=lambda rows: None)),
    "a stream without max_steps": (
        "max_steps",
        lambda k: k.run(rows=IterableDataset.from_generator(lambda: iter(ROWS)), settings={"max_steps": -1}),
    ),
    # the arguments
    "a dict as arguments": ("args", lambda k: Trainer(Line(), {"output_dir": str(k.folder)})),
    "an unknown argument": ("learning_rte", lambda k: k.args(learning_rte=1e-3)),
    "a learning rate that is a word": ("learning_rate", lambda k: k.args(learning_rate="fast")),
    "a negative learning rate": ("learning_rate", lambda k: k.args(learning_rate=-1.0)),
    "batches of no rows": ("per_device_train_batch_size", lambda k: k.args(per_device_train_batch_size=0)),
    "no epochs": ("num_train_epochs", lambda k: k.args(num_train_epochs=0, max_steps=-1)),
    "accumulation over no batch": ("gradient_accumulation_steps", lambda k: k.args(gradient_accumulation_steps=0)),
    "an unknown strategy": ("eval_strategy", lambda k: k.args(eval_strategy="sometimes")),
    "an unknown schedule": ("lr_scheduler_type", lambda k: k.args(lr_scheduler_type="cosin")),
    "a wrong setting of a schedule": (
        "lr_scheduler_kwargs",
        lambda k: k.run(settings={"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"cycles": 1}}),
    ),
    "half precision twice": ("fp16", lambda k: k.args(fp16=True, bf16=True)),
    "float16 on a CPU": ("fp16", lambda k: k.args(fp16=True)),
    "prefetching without workers": ("dataloader_prefetch_factor", lambda k: k.args(dataloader_prefetch_factor=2)),
    "a folder that cannot be made": (
        "output_dir",
        lambda k: Trainer(Line(), TrainingArguments(str(k.file("a file", "") / "out"), use_cpu=True), train_dataset=ROWS),
    ),
    "an unknown tool to report to": ("report_to", lambda k: k.run(settings={"report_to": "nowhere"})),
    "an unknown sampling": ("train_sampling_strategy", lambda k: k.run(settings={"train_sampling_strategy": "best"})),
    # evaluation
    "evaluation without data": ("eval_strategy", lambda k: k.run(settings={"eval_strategy": "steps", "eval_steps": 1})),
    "evaluate() without data": ("eval_dataset", lambda k: Trainer(Line(), k.args()).evaluate()),
    "evaluate() on an unknown name": (
        "eval_dataset",
        lambda k: Trainer(Line(), k.args(), eval_dataset={"a": ROWS}).evaluate("b"),
    ),
    "the best model without evaluations": ("load_best_model_at_end", lambda k: k.args(load_best_model_at_end=True)),
    "saves that miss the evaluations": (
        "save_steps",
        lambda k: k.args(load_best_model_at_end=True, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=3),
    ),
    "metrics that are no dict": (
        "compute_metrics",
        lambda k: Trainer(Line(), k.args(), eval_dataset=ROWS, compute_metrics=lambda p: 0.5).evaluate(),
    ),
    "a best metric that nobody computes": (
        "metric_for_best_model",
        lambda k: k.run(eval_dataset=ROWS, settings={"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps",
                        "save_steps": 3, "load_best_model_at_end": True, "metric_for_best_model": "f1"}),
    ),
    "early stopping without a metric": (
        "metric_for_best_model",
        lambda k: k.run(callbacks=[EarlyStoppingCallback(), Steps], eval_dataset=ROWS),
    ),
    "a patience of none": ("early_stopping_patience", lambda k: EarlyStoppingCallback(0)),
    "a callback that is none": ("callbacks", lambda k: k.run(callbacks=[print])),
    # optimizers
    "an unknown optimizer": ("optim", lambda k: k.run(settings={"optim": "adamm"})),
    "GaLore without targets": ("optim_target_modules", lambda k: k.run(settings={"optim": "galore_adamw"})),
    "targets that match nothing": (
        "target_modules",
        lambda k: k.run(settings={"optim": "galore_adamw", "optim_target_modules": ["attention"]}),
    ),
    "an unknown option": (
        "rnk",
        lambda k: k.run(settings={"optim": "galore_adamw", "optim_target_modules": "all-linear", "optim_args": "rnk=2"}),
    ),
    "options without a name": (
        "optim_args",
        lambda k: k.run(settings={"optim": "galore_adamw", "optim_target_modules": "all-linear", "optim_args": "64"}),
    ),
    "a rank of none": ("rank", lambda k: k.galore(target_modules="all-linear", options={"rank": "0"})),
    "an unknown kind of projection": (
        "proj_type",
        lambda k: k.galore(target_modules="all-linear", options={"proj_type": "up"}),
    ),
    "a share that is no number": ("scale", lambda k: k.galore(target_modules="all-linear", options={"scale": "much"})),
    "an unknown clipping": ("clip", lambda k: k.galore("lomo", options={"clip": "sometimes"})),
    "two optimizers at once": (
        "optimizers",
        lambda k: Trainer(Line(), k.args(), optimizers=(torch.optim.SGD([torch.ones(1)]), None),
                          optimizer_cls_and_kwargs=(torch.optim.SGD, {})),
    ),
    "memory of an unknown optimizer": ("optimizer|name", lambda k: memory(Line(), "adamax")),
    "noise on a model without embeddings": ("model|embedding", lambda k: neftune(Line(), 5.0).__enter__()),
    "negative noise": ("neftune_noise_alpha", lambda k: k.args(neftune_noise_alpha=-1)),
    # resuming
    "nothing to resume": (
        "resume_from_checkpoint",
        lambda k: Trainer(Line(), k.args(), train_dataset=ROWS).train(resume_from_checkpoint=True),
    ),
    "a checkpoint that is not there": (
        "resume_from_checkpoint",
        lambda k: Trainer(Line(), k.args(), train_dataset=ROWS).train("nowhere/checkpoint-1"),
    ),
    "a checkpoint of another model": (
        "resume_from_checkpoint",
        lambda k: Trainer(Line(7), k.args(max_steps=6), train_dataset=ROWS).train(checkpoint(k)),
    ),
    "a checkpoint of another optimizer": (
        "optim",
        lambda k: Trainer(Line(), k.args(max_steps=6, optim="sgd"), train_dataset=ROWS).train(checkpoint(k)),
    ),
    "a checkpoint without optimizer": (
        "save_only_model",
        lambda k: Trainer(Line(), k.args(max_steps=6), train_dataset=ROWS).train(checkpoint(k, save_only_model=True)),
    ),
    # ckpt-hub
    "a store that keeps none": ("keep", lambda k: store(k, keep=0)),
    "a part that has no state": ("model", lambda k: store(k).save(1, {"model": 5})),
    "a state that is no plain data": (
        "part",
        lambda k: store(k).save(1, {"thing": type("T", (), {"state_dict": lambda s: {"f": open}, "load_state_dict": print})()}),
    ),
    "a step that is none": ("step", lambda k: store(k).save(-1, {"model": Line()})),
    "batches of no size": ("batch_size", lambda k: ResumableBatches(10, batch_size=0)),
    "an unknown hub strategy": ("strategy", lambda k: HubPusher("me/model", strategy="often")),
    # SFT and seq2seq
    "columns that mean nothing": ("train_dataset|dataset_text_field", lambda k: k.sft(Dataset.from_list([{"a": 1}] * 4))),
    "splits instead of one set": ("train_dataset", lambda k: k.sft({"train": CHATS})),
    "packing without a length": ("max_length", lambda k: k.sft(settings={"packing": True, "max_length": None})),
    "an unknown packing": ("packing_strategy", lambda k: k.sft(settings={"packing_strategy": "tight"})),
    "answers alone, of plain texts": ("assistant_only_loss", lambda k: k.sft(TEXTS, {"assistant_only_loss": True})),
    "completions alone, of plain texts": ("completion_only_loss", lambda k: k.sft(TEXTS, {"completion_only_loss": True})),
    "an EOS token that is none": ("eos_token", lambda k: k.sft(settings={"eos_token": "<end>"})),
    "no EOS token at all": ("eos_token", lambda k: k.sft(TEXTS, processing_class=k.tokenizer("chat", eos_token=None))),
    "conversations without a template": (
        "chat_template",
        lambda k: k.sft(processing_class=k.tokenizer("chat", chat_template=None)),
    ),
    "an encoder as language model": ("model", lambda k: k.sft(model=k.bert())),
    "a model that is nowhere": ("model", lambda k: SFTTrainer("no/such-model", k.args(SFTConfig), train_dataset=TEXTS)),
    "options for a model that is loaded": ("model_init_kwargs", lambda k: k.sft(settings={"model_init_kwargs": {"dtype": "float32"}})),
    "adapters of another kind": ("peft_config", lambda k: k.sft(peft_config={"r": 8})),
    "generation by a model that cannot": (
        "predict_with_generate",
        lambda k: k.seq2seq(k.ids(), {"predict_with_generate": True}, model=k.bert()),
    ),
    "translations without labels": ("train_dataset|labels", lambda k: k.seq2seq(Dataset.from_list([{"input_ids": [3, 4]}] * 8))),
    "a generation of no tokens": ("generation_max_length", lambda k: k.args(Seq2SeqTrainingArguments, generation_max_length=0)),
    # launch
    "an unknown kind of launch": ("kind", lambda k: new("fsdp3")),
    "an unknown key": ("num_procs", lambda k: new("ddp", num_procs=2)),
    "a config that is no YAML": ("YAML", lambda k: read(k.file("c.yaml", "a: [1"))),
    "a config that is not there": ("nowhere.yaml", lambda k: read(k.folder / "nowhere.yaml")),
    "a precision that is none": ("mixed_precision", lambda k: finding(k, new("ddp", mixed_precision="fp15"), "P002")),
    "float16 on CPUs": ("mixed_precision", lambda k: finding(k, new("cpu", mixed_precision="fp16"), "P003")),
}  # fmt: skip


def test_there_are_sixty_of_them():
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.filterwarnings("ignore")
def test_a_mistake_is_answered_before_the_first_step(tmp_path, saved, name):
    argument, mistake = MISTAKES[name]
    STEPS.clear()
    with pytest.raises((ValueError, TypeError, CheckpointError), match=argument) as caught:
        mistake(Kit(tmp_path, saved))
    assert STEPS == [], "answered too late"
    error = caught.value
    if isinstance(error, ArgumentError | CheckpointError | ConfigError) or hasattr(error, "fix"):
        assert len(str(error.fix)) > 5 and str(error.fix) in str(error)
    else:
        assert len(str(error)) > 30, "what to do is missing"
