"""Every field of SFTConfig does something: for each a test that its effect can be seen."""

import dataclasses
from pathlib import Path

import pytest
import torch
import transformers
from datasets import Dataset

from mudarrib.core_loop import ArgumentError, TrainingArguments
from mudarrib.sft import SFTConfig, SFTTrainer

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
DOCS = Path(__file__).parents[1] / "docs" / "fields.md"
TURNS = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good film"}]
TRL_FIELDS = {
    "learning_rate", "logging_steps", "gradient_checkpointing", "bf16", "model_init_kwargs", "trust_remote_code",
    "router_aux_loss_coef", "chat_template_path", "dataset_text_field", "dataset_kwargs", "dataset_num_proc",
    "eos_token", "max_length", "truncation_mode", "shuffle_dataset", "packing", "packing_strategy", "padding_free",
    "pad_to_multiple_of", "eval_packing", "completion_only_loss", "assistant_only_loss", "loss_type",
    "activation_offloading", "pad_token",
}  # fmt: skip


def texts(rows):
    return Dataset.from_dict({"text": rows})


def first_batch(trainer):
    return next(iter(trainer.get_train_dataloader()))


def forward_sees(trainer, look):
    """What a look at the language model's head sees during training."""
    seen = []
    handle = trainer.model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(look(output)))
    trainer.train()
    handle.remove()
    return seen


def learning_rate(make, rows, **_):
    trainer = make(train_dataset=rows, learning_rate=0.0)
    before = trainer.model.lm_head.weight.clone()
    trainer.train()
    assert torch.equal(before, trainer.model.lm_head.weight)
    assert SFTConfig("x").learning_rate == 2e-5


def logging_steps(make, rows, **_):
    trainer = make(train_dataset=rows, logging_steps=2, max_steps=4)
    trainer.train()
    assert [log["step"] for log in trainer.state.log_history if "loss" in log] == [2, 4]
    assert SFTConfig("x").logging_steps == 10


def gradient_checkpointing(make, rows, **_):
    trainer = make(train_dataset=rows, gradient_checkpointing=True)
    trainer.train()
    assert trainer.model.is_gradient_checkpointing and SFTConfig("x").gradient_checkpointing


def bf16(make, rows, **_):
    assert forward_sees(make(train_dataset=rows, bf16=True), lambda out: out.dtype)[0] == torch.bfloat16
    assert forward_sees(make(train_dataset=rows), lambda out: out.dtype)[0] == torch.float32
    assert SFTConfig("x", use_cpu=True).bf16 is False


def by_folder(model, tokenizer, folder, rows, config):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return SFTTrainer(str(folder), config, train_dataset=rows)


def model_init_kwargs(make, rows, llama, tokenizer, tmp_path, config, **_):
    options = {"attn_implementation": "eager", "dtype": "bfloat16"}
    trainer = by_folder(llama(), tokenizer(), tmp_path, rows, config(model_init_kwargs=options))
    assert trainer.model.config._attn_implementation == "eager" and trainer.model.dtype == torch.bfloat16
    with pytest.raises(ArgumentError, match="model_init_kwargs"):
        config(model_init_kwargs="[1]")


def trust_remote_code(make, rows, llama, tokenizer, tmp_path, config, **_):
    (tmp_path / "theirs.py").write_text(
        "from transformers import LlamaForCausalLM\nclass Theirs(LlamaForCausalLM):\n    pass\n"
    )
    model = llama()
    model.config.auto_map = {"AutoModelForCausalLM": "theirs.Theirs"}
    model.config.architectures = ["Theirs"]
    trainer = by_folder(model, tokenizer(), tmp_path, rows, config(trust_remote_code=True))
    assert type(trainer.model).__name__ == "Theirs"
    plain = by_folder(llama(), tokenizer(), tmp_path / "plain", rows, config())
    assert type(plain.model).__name__ == "LlamaForCausalLM"


def router_aux_loss_coef(make, rows, **_):
    settings = {
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_local_experts": 2,
    }
    losses = []
    for coefficient in (0.0, 10.0):
        torch.manual_seed(0)
        config = transformers.MixtralConfig(**settings, num_attention_heads=4, num_key_value_heads=2, pad_token_id=1)
        trainer = make(
            model=transformers.MixtralForCausalLM(config),
            train_dataset=rows,
            router_aux_loss_coef=coefficient,
            max_steps=1,
        )
        trainer.train()
        losses.append(trainer.state.log_history[0]["loss"])
    assert losses[1] > losses[0] + 5
    with pytest.raises(ArgumentError, match="router_aux_loss_coef"):
        make(train_dataset=rows, router_aux_loss_coef=0.1)


def chat_template_path(make, tokenizer, llama, tmp_path, **_):
    rows = Dataset.from_list([{"messages": TURNS}] * 8)
    (tmp_path / "t.jinja").write_text("{% for m in messages %}{{ m['content'] + ' dull ' }}{% endfor %}")
    made = tokenizer()
    trainer = make(train_dataset=rows, processing_class=made, chat_template_path=str(tmp_path / "t.jinja"))
    assert made.decode(trainer.train_dataset[0]["input_ids"]) == "hello dull good film dull"
    source = tokenizer(template="{% for m in messages %}{{ '<new> ' + m['content'] + ' ' }}{% endfor %}")
    source.add_tokens([f"<new{i}>" for i in range(20)] + ["<new>"])
    source.save_pretrained(tmp_path / "source")
    made, model = tokenizer(), llama()
    trainer = make(model=model, train_dataset=rows, processing_class=made, chat_template_path=str(tmp_path / "source"))
    assert "<new>" in made.get_vocab() and model.get_input_embeddings().num_embeddings >= len(made)
    trainer.train()
    with pytest.raises(ArgumentError, match="chat_template_path"):
        make(train_dataset=rows, chat_template_path=str(tmp_path / "none.jinja"))


def dataset_text_field(make, rows, **_):
    trainer = make(train_dataset=rows.rename_column("text", "body"), dataset_text_field="body")
    assert len(trainer.train_dataset) == len(rows)


def dataset_kwargs(make, **_):
    rows = Dataset.from_list([{"input_ids": [5] * 50, "labels": [5] * 50}] * 8)
    assert first_batch(make(train_dataset=rows))["input_ids"].shape[1] == 32
    skipped = make(train_dataset=rows, dataset_kwargs={"skip_prepare_dataset": True})
    assert skipped.train_dataset is rows and first_batch(skipped)["input_ids"].shape[1] == 50
    with pytest.raises(ArgumentError, match="dataset_kwargs"):
        make(train_dataset=rows, dataset_kwargs={"add_special_tokens": False})
    with pytest.raises(ArgumentError, match="input_ids"):
        make(train_dataset=texts(["a"]), dataset_kwargs={"skip_prepare_dataset": True})


def dataset_num_proc(make, rows, caplog, **_):
    make(train_dataset=rows, dataset_num_proc=8)
    assert "faster in 1 process" in caplog.text
    with pytest.raises(ArgumentError, match="dataset_num_proc"):
        make(train_dataset=rows, dataset_num_proc=0)


def eos_token(make, rows, tokenizer, llama, **_):
    made, model = tokenizer(), llama()
    trainer = make(model=model, train_dataset=rows, processing_class=made, eos_token="</s>")
    end = made.convert_tokens_to_ids("</s>")
    assert all(row[-1] == end for row in trainer.train_dataset["input_ids"])
    assert model.config.eos_token_id == end and end in model.generation_config.eos_token_id
    with pytest.raises(ArgumentError, match="eos_token"):
        make(train_dataset=rows, eos_token="<nowhere>")


def max_length(make, rows, **_):
    assert first_batch(make(train_dataset=rows, max_length=4))["input_ids"].shape[1] == 4
    long = texts(["a " * 60] * 8)
    assert first_batch(make(train_dataset=long, max_length=None))["input_ids"].shape[1] == 61
    with pytest.raises(ArgumentError, match="max_length"):
        make(train_dataset=rows, max_length=0)
    with pytest.raises(ArgumentError, match="max_length"):
        make(train_dataset=rows, max_length=None, packing=True)


def max_seq_length(make, rows, **_):
    with pytest.warns(FutureWarning, match="max_seq_length"):
        assert first_batch(make(train_dataset=rows, max_seq_length=4))["input_ids"].shape[1] == 4


def truncation_mode(make, **_):
    rows = texts(["a a a a a a film was"] * 8)
    ends = [make(train_dataset=rows, max_length=4, truncation_mode=mode).train_dataset[0]["input_ids"][-1] for mode in
            ("keep_start", "keep_end")]  # fmt: skip
    assert ends[1] == 2 and ends[0] != 2
    with pytest.raises(ArgumentError, match="truncation_mode"):
        make(train_dataset=rows, truncation_mode="middle")


def shuffle_dataset(make, rows, **_):
    orders = [make(train_dataset=rows, shuffle_dataset=shuffle).train_dataset["input_ids"] for shuffle in (False, True)]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])


def packing(make, rows, **_):
    packed = make(train_dataset=rows, packing=True)
    assert len(packed.train_dataset) < len(rows) and "position_ids" in first_batch(packed)


def packing_strategy(make, **_):
    rows = texts(["a " * 40] * 8)
    tokens = {
        strategy: sum(
            len(row["input_ids"]) for row in map(make(train_dataset=rows, packing=True, packing_strategy=strategy)
                                                 .train_dataset.__getitem__, range(8))
        ) for strategy in ("bfd", "bfd_split", "wrapped")
    }  # fmt: skip
    assert tokens["bfd"] == 8 * 32 and tokens["wrapped"] == 8 * 32
    split = make(train_dataset=rows, packing=True, packing_strategy="bfd_split").train_dataset
    assert split.plan.n_tokens == 8 * 41
    with pytest.raises(ArgumentError, match="packing_strategy"):
        make(train_dataset=rows, packing_strategy="best")


def padding_free(make, rows, **_):
    batch = first_batch(make(train_dataset=rows, padding_free=True))
    assert batch["input_ids"].shape[0] == 1 and (batch["position_ids"] == 0).sum() == 8


def pad_to_multiple_of(make, rows, **_):
    assert first_batch(make(train_dataset=rows, pad_to_multiple_of=16))["input_ids"].shape[1] % 16 == 0
    assert SFTConfig("x").pad_to_multiple_of is None
    with pytest.raises(ArgumentError, match="pad_to_multiple_of"):
        make(train_dataset=rows, pad_to_multiple_of="some")


def eval_packing(make, rows, **_):
    sizes = [
        len(make(train_dataset=rows, eval_dataset=rows, packing=True, eval_packing=pack).eval_dataset)
        for pack in (None, True, False)
    ]
    assert sizes[0] == sizes[1] < sizes[2] == len(rows)


def completion_only_loss(make, **_):
    rows = Dataset.from_list([{"prompt": "a film ", "completion": "was good"}] * 8)
    counts = [
        int((first_batch(make(train_dataset=rows, completion_only_loss=only))["labels"] != -100).sum())
        for only in (None, True, False)
    ]
    assert counts == [8 * 3, 8 * 3, 8 * 5]
    with pytest.raises(ArgumentError, match="completion_only_loss"):
        make(train_dataset=rows, completion_only_loss=True, formatting_func=lambda row: row["prompt"])


def assistant_only_loss(make, tokenizer, chatml, **_):
    rows = Dataset.from_list([{"messages": TURNS}] * 8)
    made = tokenizer(template=chatml)
    trainer = make(train_dataset=rows, processing_class=made, assistant_only_loss=True)
    assert int((first_batch(trainer)["labels"] != -100).sum()) == 8 * 3


def loss_type(make, rows, **_):
    losses = {}
    for kind in ("nll", "dft"):
        trainer = make(train_dataset=rows, loss_type=kind, max_steps=1, per_device_train_batch_size=len(rows))
        trainer.train()
        losses[kind] = trainer.state.log_history[0]["loss"]
    assert 0 < losses["dft"] < losses["nll"] / 2
    with pytest.warns(FutureWarning, match="chunked_nll"):
        assert SFTConfig("x", loss_type="chunked_nll").loss_type == "nll"
    with pytest.raises(ArgumentError, match="loss_type"):
        make(train_dataset=rows, loss_type="mse")
    with pytest.raises(ArgumentError, match="label_smoothing_factor"):
        make(train_dataset=rows, loss_type="dft", label_smoothing_factor=0.1)


def activation_offloading(make, rows, **_):
    def hooked(output):
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None

    assert all(forward_sees(make(train_dataset=rows, activation_offloading=True), hooked))
    assert not any(forward_sees(make(train_dataset=rows), hooked))


def pad_token(make, rows, tokenizer, **_):
    made = tokenizer()
    batch = first_batch(make(train_dataset=rows, processing_class=made, pad_token="dull"))
    assert (batch["input_ids"][batch["attention_mask"] == 0] == made.convert_tokens_to_ids("dull")).all()
    with pytest.raises(ArgumentError, match="pad_token"):
        make(train_dataset=rows, pad_token="<nowhere>")


CHECKS = [
    learning_rate, logging_steps, gradient_checkpointing, bf16, model_init_kwargs, trust_remote_code,
    router_aux_loss_coef, chat_template_path, dataset_text_field, dataset_kwargs, dataset_num_proc, eos_token,
    max_length, max_seq_length, truncation_mode, shuffle_dataset, packing, packing_strategy, padding_free,
    pad_to_multiple_of, eval_packing, completion_only_loss, assistant_only_loss, loss_type, activation_offloading,
    pad_token,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_field_does_something(check, sft, sentences, tokenizer, llama, chatml, tmp_path, run_args, caplog):
    caplog.set_level("INFO", logger="mudarrib.sft")
    check(
        make=sft, rows=texts(sentences(24)), tokenizer=tokenizer, llama=llama, chatml=chatml, tmp_path=tmp_path, caplog=caplog,
        config=lambda **options: SFTConfig(**{**run_args, **options}),
    )  # fmt: skip


def test_no_field_is_left_out():
    inherited = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    own = {field.name for field in dataclasses.fields(SFTConfig) if inherited.get(field.name, "none") != field.default}
    checked = {check.__name__ for check in CHECKS}
    assert own == checked and TRL_FIELDS <= checked


def test_the_docs_have_every_field():
    page = DOCS.read_text()
    for check in CHECKS:
        assert f"| `{check.__name__}` |" in page
