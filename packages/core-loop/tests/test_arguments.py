"""TrainingArguments: fields, old spellings, checks, flags."""

import dataclasses
import json
import warnings

import pytest

from mudarrib.core_loop import ArgumentError, TrainingArguments, parse_args
from mudarrib.core_loop.arguments import legacy, validate_with_data


def test_every_field_has_a_help_text():
    fields = dataclasses.fields(TrainingArguments)
    assert len(fields) == 117
    assert all(len(field.metadata["help"]) > 10 for field in fields)


def test_choices_are_texts_and_take_the_peers_members():
    from transformers import TrainingArguments as Theirs
    from transformers.trainer_utils import IntervalStrategy, SchedulerType

    args = TrainingArguments("x", eval_strategy=IntervalStrategy.EPOCH, lr_scheduler_type=SchedulerType.COSINE)
    assert args.eval_strategy == "epoch" and args.lr_scheduler_type == "cosine"
    assert TrainingArguments("x", optim=Theirs("x").optim).optim == "adamw_torch_fused"


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        ("evaluation_strategy", "epoch", "eval_strategy", "epoch"),
        ("no_cuda", True, "use_cpu", True),
        ("per_gpu_train_batch_size", 3, "per_device_train_batch_size", 3),
        ("per_gpu_eval_batch_size", 3, "per_device_eval_batch_size", 3),
        ("warmup_ratio", 0.1, "warmup_steps", 0.1),
        ("group_by_length", True, "train_sampling_strategy", "group_by_length"),
        ("push_to_hub_model_id", "a/b", "hub_model_id", "a/b"),
        ("push_to_hub_organization", "org", "hub_model_id", "org/x"),
        ("push_to_hub_token", "secret", "hub_token", "secret"),
        ("include_inputs_for_metrics", True, "include_for_metrics", ["inputs"]),
        ("include_tokens_per_second", True, "include_num_input_tokens_seen", "all"),
        ("dispatch_batches", True, "accelerator_config", {"dispatch_batches": True}),
        ("split_batches", True, "accelerator_config", {"split_batches": True}),
        ("adafactor", True, "optim", "adafactor"),
        ("fsdp_transformer_layer_cls_to_wrap", "L", "fsdp_config", {"transformer_layer_cls_to_wrap": "L"}),
    ],
)
def test_old_spellings_work_with_one_line_that_names_the_new(old, value, new, expected):
    with pytest.warns(FutureWarning) as caught:
        args = TrainingArguments("x", **{old: value})
    (warning,) = [warning for warning in caught if warning.category is FutureWarning]
    assert old in str(warning.message) and new in str(warning.message)
    assert warning.filename == __file__
    assert getattr(args, new) == expected


@pytest.mark.parametrize("old", sorted(legacy.GONE))
def test_what_has_no_effect_any_more_says_so(old):
    with pytest.warns(FutureWarning, match=f"{old} is an old argument without an effect"):
        TrainingArguments("x", **{old: True})


def test_pickled_weights_are_refused():
    with pytest.raises(ArgumentError, match="run code"):
        TrainingArguments("x", save_safetensors=False)


def test_both_spellings_at_once_are_refused():
    with pytest.raises(ArgumentError, match="evaluation_strategy"):
        TrainingArguments("x", evaluation_strategy="epoch", eval_strategy="steps")


def test_an_unknown_keyword_names_the_nearest():
    with pytest.raises(TypeError, match="Did you mean 'learning_rate'"):
        TrainingArguments("x", learnig_rate=1e-3)


WRONG = [
    ("per_device_train_batch_size", {"per_device_train_batch_size": 0}),
    ("per_device_eval_batch_size", {"per_device_eval_batch_size": -1}),
    ("gradient_accumulation_steps", {"gradient_accumulation_steps": 0}),
    ("learning_rate", {"learning_rate": -1.0}),
    ("learning_rate", {"learning_rate": "fast"}),
    ("learning_rate", {"learning_rate": float("nan")}),
    ("weight_decay", {"weight_decay": -0.1}),
    ("max_grad_norm", {"max_grad_norm": -1.0}),
    ("adam_beta1", {"adam_beta1": 1.0}),
    ("label_smoothing_factor", {"label_smoothing_factor": 1.5}),
    ("max_steps", {"max_steps": 0}),
    ("max_steps", {"max_steps": 1.5}),
    ("num_train_epochs", {"num_train_epochs": 0}),
    ("save_total_limit", {"save_total_limit": 0}),
    ("torch_empty_cache_steps", {"torch_empty_cache_steps": 0}),
    ("warmup_steps", {"warmup_steps": -3}),
    ("log_level", {"log_level": "loud"}),
    ("log_level_replica", {"log_level_replica": "quiet"}),
    ("eval_strategy", {"eval_strategy": "step"}),
    ("save_strategy", {"save_strategy": "always"}),
    ("hub_strategy", {"hub_strategy": "every"}),
    ("lr_scheduler_type", {"lr_scheduler_type": "lineal"}),
    ("train_sampling_strategy", {"train_sampling_strategy": "shuffled"}),
    ("debug", {"debug": "overflow"}),
    ("logging_steps", {"logging_steps": 0}),
    ("logging_steps", {"logging_steps": 1.5}),
    ("eval_steps", {"eval_strategy": "steps", "eval_steps": -1}),
    ("save_steps", {"save_steps": 2.5}),
    ("fp16", {"fp16": True, "bf16": True}),
    ("fp16", {"fp16": True, "use_cpu": True}),
    ("fp16_full_eval", {"fp16_full_eval": True, "bf16_full_eval": True}),
    ("fsdp", {"fsdp": "full_shard", "deepspeed": {"zero_optimization": {}}}),
    ("load_best_model_at_end", {"load_best_model_at_end": True}),
    ("save_strategy", {"load_best_model_at_end": True, "eval_strategy": "epoch"}),
    ("save_steps", {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 3, "save_steps": 4}),
    ("save_steps", {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 4}),
    ("save_strategy", {"save_strategy": "best"}),
    ("dataloader_prefetch_factor", {"dataloader_prefetch_factor": 2}),
    ("dataloader_persistent_workers", {"dataloader_persistent_workers": True}),
    ("dataloader_multiprocessing_context", {"dataloader_multiprocessing_context": "threads"}),
    ("include_for_metrics", {"include_for_metrics": ["outputs"]}),
    ("include_num_input_tokens_seen", {"include_num_input_tokens_seen": "some"}),
    ("lr_scheduler_kwargs", {"lr_scheduler_kwargs": "{bad"}),
    ("lr_scheduler_kwargs", {"lr_scheduler_kwargs": "min_lr=1"}),
    ("deepspeed", {"deepspeed": "nowhere.json"}),
    ("activation_checkpointing_kwargs", {"gradient_checkpointing_kwargs": {"use_reentrant": False}}),
    ("neftune_noise_alpha", {"neftune_noise_alpha": -5}),
]


@pytest.mark.parametrize(("argument", "settings"), WRONG, ids=[f"{i}-{name}" for i, (name, _) in enumerate(WRONG)])
def test_what_cannot_work_is_refused_with_argument_value_and_fix(argument, settings):
    with pytest.raises(ArgumentError) as caught:
        TrainingArguments("x", **settings)
    assert caught.value.argument == argument and argument in str(caught.value)
    assert len(caught.value.fix) > 8


@pytest.mark.parametrize(
    ("argument", "settings", "given"),
    [
        ("eval_strategy", {"eval_strategy": "steps"}, {"has_eval_dataset": False, "has_metrics": False}),
        ("eval_on_start", {"eval_on_start": True}, {"has_eval_dataset": False, "has_metrics": False}),
        ("batch_eval_metrics", {"batch_eval_metrics": True}, {"has_eval_dataset": True, "has_metrics": False}),
        (
            "metric_for_best_model",
            {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch",
             "metric_for_best_model": "accuracy"},
            {"has_eval_dataset": True, "has_metrics": False},
        ),
    ],
)  # fmt: skip
def test_what_the_trainer_is_given_is_checked_with_the_arguments(argument, settings, given):
    with pytest.raises(ArgumentError) as caught:
        validate_with_data(TrainingArguments("x", **settings), **given)
    assert caught.value.argument == argument


def test_derived_values():
    args = TrainingArguments("x", load_best_model_at_end=True, eval_strategy="steps", logging_steps=50)
    assert (args.eval_steps, args.metric_for_best_model, args.greater_is_better, args.do_eval) == (
        50,
        "loss",
        False,
        True,
    )
    args = TrainingArguments("x", metric_for_best_model="accuracy", torch_compile_mode="default")
    assert args.greater_is_better is True and args.torch_compile is True
    args = TrainingArguments("x", gradient_checkpointing=True, lr_scheduler_kwargs='{"num_cycles": 2}')
    assert args.activation_checkpointing is True and args.lr_scheduler_kwargs == {"num_cycles": 2}
    assert TrainingArguments("x", warmup_steps=0.1).get_warmup_steps(95) == 10
    assert TrainingArguments("x", warmup_steps=7).get_warmup_steps(95) == 7
    assert TrainingArguments().output_dir == "trainer_output"


def test_as_data_without_tokens(tmp_path):
    args = TrainingArguments(str(tmp_path), hub_token="secret", eval_strategy="epoch", report_to=["tensorboard"])
    for text in (str(args.to_dict()), args.to_json_string(), str(args.to_sanitized_dict())):
        assert "secret" not in text
    args.to_json(tmp_path / "args.json")
    assert "secret" not in (tmp_path / "args.json").read_text()
    assert json.loads((tmp_path / "args.json").read_text())["schema"] == 1
    again = TrainingArguments.from_json(tmp_path / "args.json")
    assert again.eval_strategy == "epoch" and again.report_to == ["tensorboard"]
    assert "secret" not in repr(args)


def test_setters():
    args = TrainingArguments("x").set_training(learning_rate=1e-3, batch_size=4).set_evaluate("epoch").set_save("epoch")
    assert (args.learning_rate, args.train_batch_size, args.eval_strategy, args.save_strategy) == (
        1e-3,
        4,
        "epoch",
        "epoch",
    )
    args = args.set_logging(steps=7, level="error").set_optimizer("sgd", learning_rate=0.1).set_lr_scheduler("cosine")
    assert (args.logging_steps, args.log_level, args.optim, args.lr_scheduler_type) == (7, "error", "sgd", "cosine")
    args = args.set_dataloader(num_workers=2).set_push_to_hub("a/b").set_testing(3)
    assert (args.dataloader_num_workers, args.push_to_hub, args.eval_batch_size) == (2, True, 3)
    with pytest.raises(ArgumentError):
        args.set_training(batch_size=0)


@dataclasses.dataclass
class Mine:
    task_name: str
    max_seq_length: int = 128


def test_flags_with_another_dataclass_and_old_spellings():
    flags = "--task_name topics --max_seq_length 64 --output_dir o --do_train --learning_rate 5e-5 --bf16 false " \
            "--num-train-epochs 3 --optim_target_modules attn mlp --overwrite_output_dir --evaluation_strategy epoch " \
            "--no_dataloader_pin_memory --max_grad_norm 0.5 --report_to tensorboard".split()  # fmt: skip
    flags = flags if isinstance(flags, list) else flags.split()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        mine, args = parse_args(Mine, TrainingArguments, args=flags)
    assert (mine.task_name, mine.max_seq_length) == ("topics", 64)
    assert (args.do_train, args.bf16, args.learning_rate, args.num_train_epochs) == (True, False, 5e-5, 3)
    assert args.optim_target_modules == ["attn", "mlp"] and args.eval_strategy == "epoch"
    assert args.dataloader_pin_memory is False and args.max_grad_norm == 0.5 and args.report_to == ["tensorboard"]


def test_flags_from_a_file(tmp_path):
    (tmp_path / "a.json").write_text('{"output_dir": "o", "task_name": "t", "max_steps": 5}')
    mine, args = parse_args(Mine, TrainingArguments, args=[str(tmp_path / "a.json")])
    assert (mine.task_name, args.max_steps) == ("t", 5)


def test_unknown_flags_are_refused(capsys):
    with pytest.raises(SystemExit):
        parse_args(TrainingArguments, args=["--learnig_rate", "1"])
    assert "learnig_rate" in capsys.readouterr().err


def test_a_subclass_with_more_fields_keeps_everything():
    @dataclasses.dataclass
    class More(TrainingArguments):
        extra: int = 3

    with pytest.warns(FutureWarning):
        args = More("x", evaluation_strategy="epoch", extra=5)
    assert (args.eval_strategy, args.extra) == ("epoch", 5)


def test_the_peers_parser_takes_it():
    from transformers import HfArgumentParser

    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        ["--output_dir", "o", "--log_level", "error", "--log_on_each_node", "0", "--eval_strategy", "epoch"]
    )
    assert (args.log_level, args.log_on_each_node, args.eval_strategy) == ("error", False, "epoch")
