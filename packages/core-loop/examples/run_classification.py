"""Text classification from CSV files, the flags those of the well-known run_glue script.

    accelerate launch --config_file config.yaml run_classification.py \\
        --model_name_or_path your-model --task_name topics --data_dir data --do_train --do_eval \\
        --max_seq_length 128 --per_device_train_batch_size 16 --learning_rate 5e-5 --num_train_epochs 3 \\
        --output_dir out --overwrite_output_dir

`data` holds `<task>_train.csv` and `<task>_test.csv` with the columns text and label.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mudarrib.core_loop import TrainingArguments, parse_args


@dataclass
class TaskArguments:
    model_name_or_path: str = field(metadata={"help": "Name or folder of a pretrained model."})
    task_name: str = field(default="topics", metadata={"help": "Beginning of the files' names."})
    data_dir: str = field(default="data", metadata={"help": "Folder of the CSV files."})
    max_seq_length: int = field(default=128, metadata={"help": "Tokens of a text; what is longer is cut."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Take only so many rows to train on."})


def main() -> None:
    task, args = parse_args(TaskArguments, TrainingArguments, description=__doc__)

    # Loaded only now, so that --help answers at once.
    import datasets
    import numpy as np
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from mudarrib.core_loop import Trainer

    files = {name: f"{task.data_dir}/{task.task_name}_{name}.csv" for name in ("train", "test")}
    data = {name: datasets.Dataset.from_csv(path) for name, path in files.items()}
    labels = sorted(set(data["train"]["label"]))
    tokenizer = AutoTokenizer.from_pretrained(task.model_name_or_path)

    def encode(batch: dict) -> dict:
        encoded = tokenizer(batch["text"], truncation=True, max_length=task.max_seq_length)
        return {**encoded, "labels": [labels.index(label) for label in batch["label"]]}

    with args.main_process_first(desc="tokenising"):
        data = {name: rows.map(encode, batched=True, remove_columns=["text", "label"]) for name, rows in data.items()}
    if task.max_train_samples is not None:
        data["train"] = data["train"].select(range(task.max_train_samples))
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(task.model_name_or_path, num_labels=len(labels)),
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        compute_metrics=lambda p: {"accuracy": float(np.mean(p.predictions.argmax(-1) == p.label_ids))},
    )
    if args.do_train:
        result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_model()
        trainer.log_metrics("train", result.metrics)
        trainer.save_metrics("train", result.metrics)
    if args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
