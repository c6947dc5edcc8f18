"""The trainer as a whole: what is learned, what is logged, and that packing changes only the speed."""

import json

import pytest
import torch
from datasets import Dataset

from mudarrib.core_loop import ArgumentError, Trainer, TrainingArguments
from mudarrib.sft import SFTConfig, SFTTrainer

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")


def texts(rows):
    return Dataset.from_dict({"text": rows})


def history(trainer, name="loss"):
    return [log[name] for log in trainer.state.log_history if name in log]


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def test_packing_changes_no_loss_no_gradient_and_no_metric(sft, sentences):
    """All examples in each step: the same targets, so the same curve, whether in packed rows or padded ones."""
    rows = texts(sentences(24))
    curves, counted = [], []
    for packing in (False, True):
        trainer = sft(
            train_dataset=rows, packing=packing, per_device_train_batch_size=24, max_steps=6, learning_rate=1e-2
        )
        trainer.train()
        curves.append(history(trainer))
        counted.append(
            [history(trainer, name) for name in ("mean_token_accuracy", "entropy", "num_tokens", "grad_norm")]
        )
    assert curves[0][-1] < curves[0][0] - 0.1, "it learns"
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), atol=2e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(counted[1]), torch.tensor(counted[0]), atol=2e-4, rtol=1e-5)


def test_padding_free_batches_train_alike(sft, sentences):
    rows = texts(sentences(24))
    curves = []
    for free in (False, True):
        trainer = sft(train_dataset=rows, padding_free=free, per_device_train_batch_size=4, max_steps=4)
        trainer.train()
        curves.append(history(trainer))
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), atol=2e-5, rtol=0)


def test_accumulation_over_packed_rows_is_one_mean(sft, sentences):
    rows = texts(sentences(24))
    ends = []
    for batch, accumulation in ((6, 1), (1, 6)):
        trainer = sft(
            train_dataset=rows, packing=True, per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation, max_steps=1,
        )  # fmt: skip
        assert len(trainer.train_dataset) == 6
        trainer.train()
        ends.append(history(trainer))
    assert ends[0] == pytest.approx(ends[1], abs=1e-5)


def test_metrics_equal_their_definitions(sft, sentences):
    trainer = sft(train_dataset=texts(sentences(4)), per_device_train_batch_size=4, max_steps=1, learning_rate=0.0)
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.train()
    with torch.no_grad():
        logits = trainer.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    targets = batch["labels"][:, 1:]
    counted = targets != -100
    distribution = torch.distributions.Categorical(logits=logits)
    log = trainer.state.log_history[0]
    assert log["mean_token_accuracy"] == pytest.approx(float((logits.argmax(-1) == targets)[counted].float().mean()))
    assert log["entropy"] == pytest.approx(float(distribution.entropy()[counted].mean()), rel=1e-5)
    assert log["loss"] == pytest.approx(float(-distribution.log_prob(targets.clamp(0))[counted].mean()), rel=1e-5)
    tokens = int(batch["attention_mask"].sum())
    assert log["num_tokens"] == tokens
    assert log["padding"] == pytest.approx(1 - tokens / batch["input_ids"].numel())
    assert log["tokens_per_second"] > 0


def test_evaluation_has_its_own_metrics(sft, sentences):
    trainer = sft(
        train_dataset=texts(sentences(16)), eval_dataset=texts(sentences(8, 1)), eval_strategy="steps", eval_steps=1,
        max_steps=2, logging_steps=2,
    )  # fmt: skip
    trainer.train()
    evaluations = [log for log in trainer.state.log_history if "eval_loss" in log]
    assert all({"eval_mean_token_accuracy", "eval_entropy", "eval_padding"} <= set(log) for log in evaluations)
    training = next(log for log in trainer.state.log_history if "loss" in log)
    assert training["num_tokens"] == sum(len(row) for row in trainer.train_dataset["input_ids"])


def test_evaluation_is_the_same_packed(sft, sentences):
    rows = texts(sentences(12))
    results = [sft(train_dataset=rows, eval_dataset=rows, eval_packing=packing).evaluate() for packing in (False, True)]
    for name in ("eval_loss", "eval_mean_token_accuracy", "eval_entropy"):
        assert results[0][name] == pytest.approx(results[1][name], rel=1e-5)


def test_evaluate_and_predict_take_raw_data(sft, sentences):
    trainer = sft(train_dataset=texts(sentences(12)), packing=True)
    rows = texts(sentences(10, 1))
    assert trainer.evaluate(rows)["eval_loss"] > 0
    by_name = trainer.evaluate({"a": rows, "b": rows})
    assert by_name["eval_a_loss"] == pytest.approx(by_name["eval_b_loss"])
    assert len(trainer.predict(rows).predictions) == 10


@pytest.mark.parametrize("packing", [False, True])
def test_a_resumed_run_equals_the_whole_one_bit_for_bit(sft, sentences, tmp_path, packing):
    rows = texts(sentences(60))
    settings = {
        "train_dataset": rows, "packing": packing, "per_device_train_batch_size": 2, "max_steps": 6,
        "save_strategy": "steps",
        "save_steps": 3, "learning_rate": 1e-2,
    }  # fmt: skip
    whole = sft(**settings, output_dir=str(tmp_path / "whole"))
    whole.train()
    assert whole.state.epoch % 1, "the checkpoint lies within an epoch"
    resumed = sft(**settings, output_dir=str(tmp_path / "resumed"))
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())
    assert history(resumed)[-3:] == history(whole)[-3:]
    assert history(resumed, "num_tokens")[-1] == history(whole, "num_tokens")[-1]


def test_a_packed_stream_trains_and_resumes(sft, sentences, tmp_path):
    rows = texts(sentences(60))
    settings = {
        "packing": True, "per_device_train_batch_size": 2, "max_steps": 5, "save_strategy": "steps", "save_steps": 2,
        "learning_rate": 1e-2,
    }  # fmt: skip
    whole = sft(train_dataset=rows.to_iterable_dataset(), **settings, output_dir=str(tmp_path / "whole"))
    whole.train()
    resumed = sft(train_dataset=rows.to_iterable_dataset(), **settings, output_dir=str(tmp_path / "resumed"))
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())


def test_eos_is_learned_where_it_is_the_pad_token(sft, tokenizer, sentences):
    made = tokenizer(pad="[EOS]")
    trainer = sft(train_dataset=texts(sentences(8)), processing_class=made)
    for batch in trainer.get_train_dataloader():
        for labels in batch["labels"]:
            kept = labels[labels != -100]
            assert kept[-1] == made.eos_token_id and (kept == made.eos_token_id).sum() == 1


def test_a_tokenizer_without_a_pad_token_serves(sft, tokenizer, sentences):
    trainer = sft(train_dataset=texts(sentences(8)), processing_class=tokenizer(pad=None))
    trainer.train()
    assert all(loss > 0 for loss in history(trainer))


def test_plain_arguments_and_the_keywords_of_the_guide(llama, tokenizer, sentences, run_args):
    plain = {name: run_args[name] for name in run_args if name != "max_length"}
    arguments = TrainingArguments(**plain, learning_rate=5e-5)
    with pytest.warns(FutureWarning, match="dataset_text_field"):
        trainer = SFTTrainer(
            model=llama(), args=arguments, train_dataset=Dataset.from_dict({"body": sentences(16, low=40, high=60)}),
            dataset_text_field="body", max_seq_length=24, tokenizer=tokenizer(),
        )  # fmt: skip
    assert max(batch["input_ids"].shape[1] for batch in trainer.get_train_dataloader()) == 24
    assert isinstance(trainer.args, SFTConfig) and trainer.args.learning_rate == 5e-5
    assert not hasattr(arguments, "packing"), "the given arguments stay as they were"
    trainer.train()


def test_a_model_given_by_folder(llama, tokenizer, sentences, run_args, tmp_path):
    llama().to(torch.bfloat16).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    options = {**run_args, "model_init_kwargs": {"attn_implementation": "eager"}}
    trainer = SFTTrainer(str(tmp_path / "model"), SFTConfig(**options), train_dataset=texts(sentences(8)))
    assert trainer.model.config._attn_implementation == "eager"
    assert trainer.model.dtype == torch.float32, "bfloat16 weights would lose small updates"
    trainer.train()


def test_loading_options_for_a_loaded_model_are_refused(sft, sentences):
    with pytest.raises(ArgumentError, match="model_init_kwargs"):
        sft(train_dataset=texts(sentences(8)), model_init_kwargs={"dtype": "bfloat16"})


def test_model_init_makes_each_model_ready(tokenizer, llama, sentences, run_args):
    trainer = SFTTrainer(
        args=SFTConfig(**run_args, packing=True), model_init=lambda: llama(), train_dataset=texts(sentences(30)),
        processing_class=tokenizer(),
    )  # fmt: skip
    first, second = trainer.train(), trainer.train()
    assert first.training_loss == second.training_loss
    assert trainer.model._forward_pre_hooks


def test_a_list_of_rows_serves(sft, sentences):
    trainer = sft(train_dataset=[{"text": text} for text in sentences(8)])
    trainer.train()
    assert len(history(trainer)) == 3


def test_checkpointing_of_activations_changes_nothing(sft, sentences):
    curves = []
    for options in ({}, {"gradient_checkpointing": True}, {"activation_offloading": True}):
        trainer = sft(train_dataset=texts(sentences(24)), packing=True, **options)
        trainer.train()
        curves.append(history(trainer))
    assert curves[0] == pytest.approx(curves[1], abs=1e-6) and curves[0] == curves[2]


def test_a_model_that_cannot_be_packed_is_refused_before_training(sft, sentences):
    import transformers

    config = transformers.MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1, pad_token_id=1)
    model = transformers.MambaForCausalLM(config)
    for option in ("packing", "padding_free"):
        with pytest.raises(ArgumentError, match=option):
            sft(model=model, train_dataset=texts(sentences(8)), **{option: True})
    sft(model=model, train_dataset=texts(sentences(8))).train()


def test_no_private_method_of_the_trainer_is_overridden():
    from mudarrib.sft import Seq2SeqTrainer

    for cls in (SFTTrainer, Seq2SeqTrainer):
        private = [name for name in vars(cls) if name.startswith("_") and not name.startswith("__")]
        assert not set(private) & {name for base in Trainer.__mro__ for name in vars(base)}


def test_the_config_survives_json(tmp_path, run_args):
    config = SFTConfig(**run_args, packing=True, dataset_kwargs={"skip_prepare_dataset": False})
    config.to_json(tmp_path / "args.json")
    saved = json.loads((tmp_path / "args.json").read_text())
    assert saved["packing"] is True and saved["max_length"] == 32
    assert SFTConfig.from_json(tmp_path / "args.json").packing is True


def test_the_balancing_loss_of_experts_is_a_mean_over_micro_batches(sft, sentences):
    import transformers

    losses = []
    for batch, accumulation in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        config = transformers.MixtralConfig(
            vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_local_experts=2,
            num_attention_heads=4, num_key_value_heads=2, pad_token_id=1,
        )  # fmt: skip
        trainer = sft(
            model=transformers.MixtralForCausalLM(config), train_dataset=texts(sentences(8)), router_aux_loss_coef=10.0,
            per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=1,
        )  # fmt: skip
        trainer.train()
        losses.append(history(trainer)[0])
    assert losses[0] > 15, "the balancing loss is most of it"
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_flex_attention_is_refused_for_training_where_it_has_no_backward_pass(sft, llama, sentences):
    rows = Dataset.from_dict({"text": sentences(16)})
    with pytest.raises(ArgumentError, match=r"flex_attention.*backward.*sdpa"):
        sft(model=llama(attn="flex_attention"), train_dataset=rows)
    sft(model=llama(attn="flex_attention"), eval_dataset=rows)
