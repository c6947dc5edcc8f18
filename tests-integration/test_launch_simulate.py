"""Simulation: at any number of processes, for models with and without a formula, and what it refuses."""

import dataclasses
import json
import sys

import pytest
import torch.distributed as dist

from mudarrib.launch import ConfigError, Setup, Work, memory_of
from mudarrib.launch.cli import main
from mudarrib.launch.model_config import shape_of
from mudarrib.launch.simulate import simulate

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 160,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
COHERE = {**LLAMA, "model_type": "cohere", "architectures": ["CohereForCausalLM"], "bos_token_id": 1, "eos_token_id": 2}
WORK = Work(batch=2, seq_len=64)
FULL = Setup("fsdp2", "fsdp2", "all", 8, 8)


@pytest.mark.parametrize("world", [8, 16])
def test_weights_and_states_are_shared_out_exactly(world):
    found = simulate(LLAMA, WORK, dataclasses.replace(FULL, processes=world, world=world))
    count = shape_of(LLAMA).count
    assert found.weights == pytest.approx(4 * count / world, rel=0.02)
    assert found.states == pytest.approx(8 * count / world, rel=0.02)
    assert not dist.is_initialized()


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize(("engine", "shards"), [("ddp", "nothing"), ("fsdp2", "all"), ("fsdp2", "gradients")])
def test_formula_and_simulation_agree(engine, shards, precision, checkpointing):
    work = dataclasses.replace(WORK, batch=4, seq_len=256, mixed_precision=precision)
    setup = Setup("x", engine, shards, 1 if engine == "ddp" else 4, 4, checkpointing)
    assert memory_of(shape_of(LLAMA), work, setup).total == pytest.approx(simulate(LLAMA, work, setup).total, rel=0.10)


def test_hybrid_sharding_shares_out_within_a_machine():
    found = simulate(LLAMA, WORK, Setup("hybrid", "fsdp1", "all", 4, 16))
    assert found.weights == pytest.approx(shape_of(LLAMA).count, rel=0.02)


def test_it_tells_of_every_layer():
    heard = []
    simulate(LLAMA, WORK, FULL, heard.append)
    assert heard[0] == "building the model" and heard[-1] == "layer 4 of 4"


@pytest.mark.parametrize(
    ("work", "setup", "said"),
    [
        (WORK, Setup("zero-3", "deepspeed", "all", 8, 8), "DDP and FSDP"),
        (WORK, dataclasses.replace(FULL, offload="all"), "DDP and FSDP"),
        (dataclasses.replace(WORK, optimizer="lomo"), FULL, "inside backward"),
    ],
)
def test_what_cannot_be_simulated_is_said(work, setup, said):
    with pytest.raises(ConfigError, match=said):
        simulate(LLAMA, work, setup)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "nothing_known"}, "cannot build"),
        ({**LLAMA, "architectures": ["NoSuchModel"]}, "cannot build"),
        ({**LLAMA, "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "pad_token_id": 0},
         "looks at values"),
        ({"model_type": "marian", "architectures": ["MarianMTModel"], "d_model": 64, "encoder_layers": 2,
          "decoder_layers": 2, "pad_token_id": 0}, "does not run"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_simulated_are_named(values, said, capfd):
    with pytest.raises(ConfigError, match=said):
        simulate(values, WORK, FULL)
    assert not dist.is_initialized()
    assert "Traceback" not in capfd.readouterr().err, "nothing is logged that the error says"


def test_a_model_without_a_formula_is_planned_by_simulation(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(COHERE))
    arguments = ["plan", "--model", str(tmp_path), "--gpus", "2", "--gpu-memory", "24GB", "--seq-len", "64"]
    assert main(arguments) == 2
    assert "--simulate" in capsys.readouterr().err
    out = tmp_path / "made.yaml"
    assert main([*arguments, "--simulate", "-o", str(out)]) == 0
    printed = capsys.readouterr()
    assert "fits, simulated" in printed.out and out.exists()
    # Not a terminal: no line that says how far it is.
    assert "\r" not in printed.err


def test_progress_is_shown_on_a_terminal_only_after_two_seconds(monkeypatch, capsys):
    from mudarrib.launch import cli_plan

    status = cli_plan.Status()
    status.tell("layer 1 of 9")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(status, "began", status.began - 3)
    status.tell("layer 2 of 9")
    assert "layer 2 of 9 (3 s)" in capsys.readouterr().err
    assert sys.stderr is not None
