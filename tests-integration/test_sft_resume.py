"""A packed run that is killed inside an epoch goes on where it was, bit for bit, also from a stream."""

import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

SCRIPT = """
import os, sys, time
import torch, transformers
from datasets import Dataset
from mudarrib.core_loop import TrainerCallback
from mudarrib.sft import SFTConfig, SFTTrainer
from tokenizers import Tokenizer, models, pre_tokenizers

folder, streaming, killed = sys.argv[1], sys.argv[2] == "stream", sys.argv[3] == "killed"
torch.set_num_threads(1)
words = [f"w{i}" for i in range(20)]
core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["[UNK]", "[PAD]", "[EOS]", *words])}, unk_token="[UNK]"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", eos_token="[EOS]")
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    attention_dropout=0.1, max_position_embeddings=64))
rows = Dataset.from_dict({"text": [" ".join(words[i % 9: i % 9 + 2 + i % 11]) for i in range(96)]})

class Waits(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if killed and state.global_step == 5:
            open(folder + "/at-step-5", "w").close()
            time.sleep(60)

config = SFTConfig(folder, packing=True, max_length=24, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                   max_steps=12, logging_steps=1, save_steps=3, report_to="none", use_cpu=True, disable_tqdm=True,
                   learning_rate=1e-2)
trainer = SFTTrainer(model=model, args=config, train_dataset=rows.to_iterable_dataset() if streaming else rows,
                     processing_class=tokenizer, callbacks=[Waits()])
trainer.train(resume_from_checkpoint=True if len(sys.argv) > 4 else None)
trainer.save_model(folder)
print("SEEN", trainer.token_meter.seen)
"""


def start(script, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip


def finish(process):
    shown, _ = process.communicate(timeout=200)
    assert process.returncode == 0, shown[-3000:]
    return shown.rsplit("SEEN", 1)[1].strip()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["rows", "stream"])
def test_a_killed_packed_run_goes_on_bit_for_bit(tmp_path, source):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    broken.mkdir()
    expected = start(script, whole, source, "whole")
    killed = start(script, broken, source, "killed")
    for _ in range(600):
        if (broken / "at-step-5").exists() or killed.poll() is not None:
            break
        time.sleep(0.2)
    assert killed.poll() is None, killed.stdout.read()[-3000:]
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    seen = finish(expected)
    assert finish(start(script, broken, source, "whole", "resume")) == seen
    one, other = (load_file(folder / "model.safetensors") for folder in (whole, broken))
    assert one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)
