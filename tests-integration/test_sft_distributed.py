"""Packed training in two processes: the loss, the metrics and the weights are those of one."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
from datasets import Dataset
from mudarrib.sft import SFTConfig, SFTTrainer
from tokenizers import Tokenizer, models, pre_tokenizers

torch.set_num_threads(1)
words = [f"w{i}" for i in range(20)]
core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["[UNK]", "[PAD]", "[EOS]", *words])}, unk_token="[UNK]"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", eos_token="[EOS]")
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64))
rows = Dataset.from_dict({"text": [" ".join(words[i % 9: i % 9 + 2 + i % 11]) for i in range(64)]})
config = SFTConfig(sys.argv[1], packing=True, max_length=24, per_device_train_batch_size=int(sys.argv[2]), max_steps=4,
                   logging_steps=1, report_to="none", use_cpu=True, disable_tqdm=True, save_strategy="no",
                   learning_rate=1e-2)
trainer = SFTTrainer(model=model, args=config, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)
trainer.train()
evaluation = trainer.evaluate()
if trainer.is_world_process_zero():
    total = sum(float(p.double().abs().sum()) for p in trainer.model.parameters())
    logs = [log for log in trainer.state.log_history if "loss" in log]
    print("RESULT" + json.dumps({"logs": logs, "evaluation": evaluation, "weights": total}))
"""


def run(tmp_path, processes, batch):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [*launcher, str(script), str(tmp_path / f"out{processes}"), str(batch)],
        capture_output=True, text=True, timeout=240, env=environment,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("RESULT"))


@pytest.mark.slow
def test_two_processes_train_and_count_as_one(tmp_path):
    one, two = run(tmp_path, 1, 4), run(tmp_path, 2, 2)
    assert len(one["logs"]) == len(two["logs"]) == 4
    for a, b in zip(one["logs"], two["logs"]):
        for name in ("loss", "mean_token_accuracy", "entropy", "grad_norm"):
            assert a[name] == pytest.approx(b[name], rel=1e-4), name
        assert a["num_tokens"] == b["num_tokens"]
    for name in ("eval_loss", "eval_mean_token_accuracy", "eval_entropy"):
        assert one["evaluation"][name] == pytest.approx(two["evaluation"][name], rel=1e-4), name
    assert one["weights"] == pytest.approx(two["weights"], rel=1e-6)
