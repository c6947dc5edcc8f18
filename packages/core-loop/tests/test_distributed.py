"""Two real processes (gloo) equal one with the same rows a step."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = """
import json, sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from tiny import Classifier, Regressor, Rows, arguments, gpt2
from mudarrib.core_loop import Trainer, TrainerCallback
from test_loss import pad, ragged_rows

kind, folder, batch, resume = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "resume"
rows = ragged_rows(22) if kind == "gpt2" else Rows(22, classes=3)
model = gpt2() if kind == "gpt2" else Classifier()
args = arguments(folder, per_device_train_batch_size=batch, per_device_eval_batch_size=2, max_steps=7,
                 gradient_accumulation_steps=2, logging_steps=1, eval_strategy="steps", eval_steps=7, save_strategy="steps",
                 save_steps=2, optim="sgd", learning_rate=0.1, seed=3)
wide = lambda p: {{"rows": float(len(p.predictions)), "sum": float(p.label_ids[p.label_ids >= 0].sum())}}
trainer = Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows[:7] if kind == "gpt2" else Rows(7, classes=3),
                  data_collator=pad if kind == "gpt2" else None, compute_metrics=wide)
trainer.train(resume_from_checkpoint=f"{{folder}}/checkpoint-4" if resume else None)
if trainer.is_world_process_zero():
    inner = trainer.model.state_dict()
    torch.save(inner, f"{{folder}}/weights.pt")
    json.dump(trainer.state.log_history, open(f"{{folder}}/history.json", "w"))
"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def run(folder, kind, world, batch, resume="no"):
    folder.mkdir(exist_ok=True)
    code = SCRIPT.format(tests=str(Path(__file__).parent))
    base = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes = []
    for rank in range(world):
        ranked = {**base, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)} if world > 1 else base
        command = [sys.executable, "-c", code, kind, str(folder), str(batch), resume]
        processes.append(
            subprocess.Popen(command, env=ranked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(outputs)[-4000:]
    weights = torch.load(folder / "weights.pt", weights_only=True)
    return weights, json.loads((folder / "history.json").read_text())


def values(history, name):
    return [entry[name] for entry in history if name in entry]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", "gpt2"])
def test_two_processes_equal_one_and_go_on_as_one(tmp_path, kind):
    one, one_history = run(tmp_path / "one", kind, world=1, batch=4)
    two, two_history = run(tmp_path / "two", kind, world=2, batch=2)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-6, rtol=1e-5)
    assert values(two_history, "loss") == pytest.approx(values(one_history, "loss"), abs=1e-5)
    assert values(two_history, "eval_loss") == pytest.approx(values(one_history, "eval_loss"), abs=1e-5)
    assert values(two_history, "eval_rows") == values(one_history, "eval_rows") == [7.0]
    assert values(two_history, "eval_sum") == values(one_history, "eval_sum")
    if kind == "classifier":
        return
    again, _ = run(tmp_path / "two", kind, world=2, batch=2, resume="resume")
    assert all(torch.equal(again[name], tensor) for name, tensor in two.items()), "resumed bit for bit"
    elastic, _ = run(tmp_path / "two", kind, world=1, batch=4, resume="resume")
    for name, tensor in one.items():
        torch.testing.assert_close(elastic[name], tensor, atol=1e-6, rtol=1e-5)
