"""Does a small T5, made from a config, learn to translate? BLEU and ROUGE-L before and after, by `Seq2SeqTrainer`.

It also checks that `predict` gives the strings of a plain loop over `model.generate`.

    python tools/bench/sft_seq2seq.py train.jsonl test.jsonl [--steps N] [--source en] [--target de]

Lines hold the two texts. Needs the extra [metrics]: rouge-score and sacrebleu.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset, disable_progress_bars
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import corpus_bleu
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from mudarrib.sft import Seq2SeqTrainer, Seq2SeqTrainingArguments

LONGEST = 48


def subword(texts: list[str]) -> Any:
    """A tokenizer of 1,500 subwords that ends each text in EOS."""
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    core.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1_500, special_tokens=special))
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--steps", type=int, default=2_500)
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    arguments = parser.parse_args()
    disable_progress_bars()
    pairs = {
        name: [
            (line[arguments.source], line[arguments.target]) for line in map(json.loads, path.read_text().splitlines())
        ]
        for name, path in (("train", arguments.train), ("test", arguments.test))
    }
    tokenizer = subword([text for pair in pairs["train"] for text in pair])

    def rows(name: str) -> Dataset:
        sources, targets = zip(*pairs[name], strict=True)
        made = tokenizer(list(sources), max_length=LONGEST, truncation=True, return_token_type_ids=False)
        labels = tokenizer(list(targets), max_length=LONGEST, truncation=True)["input_ids"]
        return Dataset.from_dict({**made, "labels": labels})

    def scores(prediction: Any) -> dict[str, float]:
        labels = np.where(prediction.label_ids == -100, tokenizer.pad_token_id, prediction.label_ids)
        made = tokenizer.batch_decode(prediction.predictions, skip_special_tokens=True)
        wanted = tokenizer.batch_decode(labels, skip_special_tokens=True)
        rouge = RougeScorer(["rougeL"])
        f = np.mean([rouge.score(a, b)["rougeL"].fmeasure for a, b in zip(wanted, made, strict=True)])
        return {"bleu": corpus_bleu(made, [wanted]).score, "rougeL": 100 * float(f)}

    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=len(tokenizer),
            d_model=128,
            d_kv=32,
            d_ff=256,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
        )
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            tempfile.mkdtemp(),
            max_steps=arguments.steps,
            learning_rate=2e-3,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=50,
            warmup_steps=100,
            logging_steps=100,
            predict_with_generate=True,
            generation_max_length=24,
            sortish_sampler=True,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=rows("train"),
        eval_dataset=rows("test"),
        processing_class=tokenizer,
        compute_metrics=scores,
    )
    before = trainer.evaluate()
    trainer.train()
    after, seen = trainer.evaluate(), trainer.evaluate(rows("train").select(range(300)))
    for name, result in (("before", before), ("after", after), ("after, on 300 training rows", seen)):
        bleu, rouge, loss = (result[f"eval_{score}"] for score in ("bleu", "rougeL", "loss"))
        print(f"{name}: BLEU {bleu:.2f}, ROUGE-L {rouge:.2f}, loss {loss:.3f}")
    test = rows("test").select(range(50))
    made = tokenizer.batch_decode(trainer.predict(test).predictions, skip_special_tokens=True)
    model.eval()
    plain = [
        tokenizer.decode(model.generate(input_ids=torch.tensor([ids]), max_length=24)[0], skip_special_tokens=True)
        for ids in test["input_ids"]
    ]
    print(f"predict equals a plain loop over generate: {made == plain}")
    for source, target in zip(pairs["test"][:3], made, strict=False):
        print(f"  {source[0]} -> {target}")


if __name__ == "__main__":
    main()
