"""The cheapest setup that fits, why others do not, the config, the bars, and the command."""

import json
import subprocess
import sys

import pytest

from mudarrib.launch import ConfigError, Hardware, Work, check, config_of, make_plan, read
from mudarrib.launch.cli import main
from mudarrib.launch.model_config import shape_of
from mudarrib.launch.picture import bars
from mudarrib.launch.plan import GIB, largest_batch

LLAMA_7B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}  # fmt: skip
LLAMA_70B = {
    **LLAMA_7B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8,
}  # fmt: skip
BERT = {
    "model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 768, "vocab_size": 30522,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
    "type_vocab_size": 2,
}  # fmt: skip
MIXED = Work(batch=1, seq_len=2048, mixed_precision="bf16")


def planned(values, gpus, gib, work=MIXED, **more):
    return make_plan(shape_of(values), work, Hardware(gpus, gib * GIB, **more))


def test_a_small_model_takes_ddp():
    assert planned(BERT, 2, 24, Work(batch=16, seq_len=128, mixed_precision="bf16")).chosen.setup.name == "ddp"


def test_7b_on_eight_80_gib_gpus_is_split_but_neither_offloaded_nor_computed_twice():
    found = planned(LLAMA_7B, 8, 80)
    names = {choice.setup.name: choice for choice in found.choices}
    assert "too much on each GPU; states take most" in names["ddp"].why_not
    chosen = found.chosen.setup
    assert chosen.engine == "fsdp2" and not chosen.checkpointing and chosen.offload == "nothing"


def test_70b_on_eight_80_gib_gpus_needs_offloading_and_the_machines_memory_counts():
    found = planned(LLAMA_70B, 8, 80)
    assert found.chosen.setup.offload != "nothing"
    host = found.chosen.memory.host * 8
    # 4 bytes of weights, 4 of gradients and 8 of states for each of 69 billion parameters.
    assert host == pytest.approx(16 * found.shape.count, rel=0.01)
    assert planned(LLAMA_70B, 8, 80, cpu_memory=host - 1).chosen is None
    assert planned(LLAMA_70B, 8, 80, nodes=8).chosen.setup.offload == "nothing"


def test_one_gpu_with_galore_inside_backward():
    """The paper's claim (arXiv 2403.03507): 7B on a GPU of 24 GB, in 8 bits, layer by layer, activations computed anew."""
    work = Work(batch=1, seq_len=256, optimizer="galore_adamw_8bit_layerwise", rank=1024, dtype="bfloat16")
    assert planned(LLAMA_7B, 1, 24, work).chosen is not None
    assert (
        planned(LLAMA_7B, 1, 24, Work(batch=1, seq_len=256, optimizer="adamw", dtype="bfloat16")).chosen.memory.host > 0
    )


def test_what_cannot_work_with_an_optimizer_says_so():
    found = planned(LLAMA_7B, 8, 80, Work(seq_len=128, optimizer="galore_adamw"))
    reasons = {choice.setup.name: choice.why_not for choice in found.choices}
    assert "flattens" in reasons["zero-2"] and "CPU" in reasons["fsdp2+offload+checkpointing"]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("gpus", [1, 4])
def test_nothing_in_any_setups_config_stops_a_run(gpus, version, nodes):
    found = make_plan(
        shape_of(BERT), Work(seq_len=128, mixed_precision="bf16"), Hardware(gpus, 80 * GIB, nodes), version
    )
    for choice in found.choices:
        config = config_of(found, choice)
        assert config.number("num_processes") == gpus * nodes and config.number("num_machines") == nodes
        assert not [finding for finding in check(config) if finding.stops], choice.setup.name
        assert config.get("fsdp_config.fsdp_transformer_layer_cls_to_wrap", "BertLayer") == "BertLayer"


def test_a_setup_and_its_config_mean_the_same():
    found = planned(BERT, 4, 80, Work(seq_len=128, mixed_precision="bf16", accumulation=4))
    configs = {choice.setup.name: config_of(found, choice) for choice in found.choices}
    assert configs["fsdp2-grad-op"].get("fsdp_config.fsdp_reshard_after_forward") is False
    assert configs["fsdp2+checkpointing"].get("fsdp_config.fsdp_activation_checkpointing") is True
    assert configs["fsdp2+offload+checkpointing"].get("fsdp_config.fsdp_offload_params") is True
    zero = configs["zero-2+offload+checkpointing"].section("deepspeed_config")
    assert (zero["zero_stage"], zero["offload_optimizer_device"], zero["offload_param_device"]) == (2, "cpu", "none")
    assert zero["gradient_accumulation_steps"] == 4
    assert configs["ddp"].kind == "MULTI_GPU" and "main_process_ip" not in configs["ddp"].values


def test_the_largest_batch_fits_and_one_more_does_not():
    found = planned(LLAMA_7B, 8, 80)
    batch = largest_batch(found, found.chosen)
    again = lambda rows: make_plan(found.shape, Work(batch=rows, seq_len=2048, mixed_precision="bf16"), found.hardware)
    fits = lambda rows: {c.setup: c.fits for c in again(rows).choices}[found.chosen.setup]
    assert fits(batch) and not fits(batch + 1)


def test_bars_are_as_long_as_what_they_show():
    found = planned(LLAMA_7B, 8, 80)
    lines = bars(found.choices, found.hardware.usable, width=60)
    by_name = {line.split()[0]: line for line in lines[1:-1]}
    longest = max(c.memory.total for c in found.choices)
    for choice in found.choices:
        drawn = sum(by_name[choice.setup.name].count(shade) for shade in "█▓▒░·")
        assert drawn == pytest.approx(60 * choice.memory.total / longest, abs=1)
    plain = bars(found.choices, found.hardware.usable, encoding="ascii")
    assert "".join(plain).isascii() and "W weights" in plain[-1]


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    return str(tmp_path)


def test_the_command_writes_a_config_that_is_right(model, tmp_path, capsys):
    out = str(tmp_path / "made" / "c.yaml")
    arguments = ["plan", "--model", model, "--gpus", "2", "--gpu-memory", "24GB", "--seq-len", "128", "-o", out]
    assert main([*arguments, "main_process_port=29999"]) == 0
    said = capsys.readouterr().out
    assert "Take ddp" in said and out in said
    assert read(out).get("main_process_port") == 29999 and not check(read(out))
    assert main(arguments) == 2 and "--yes" in capsys.readouterr().err


def test_json_has_all_and_nothing_else_is_printed(model, capsys):
    assert main(["plan", "--model", model, "--gpus", "2", "--gpu-memory", "24GB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] == "ddp" and found["parameters"] == 109_483_778
    assert found["choices"][0]["total"] == sum(found["choices"][0]["bytes"].values())


def test_nothing_fits_is_1_with_what_would_help(model, capsys):
    code = main(["plan", "--model", model, "--gpu-memory", "2GB", "--cpu-memory", "1GB", "--batch", "256"])
    said = capsys.readouterr().out
    assert code == 1 and "Nothing fits" in said and "--batch" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gpu-memory", "80XB"], "80GB"),
        (["--gpu-memory", "0"], "80GB"),
        (["--gpu-memory", "1GB"], "reserve leaves nothing"),
        (["--gpu-memory", "8GB", "--gpus", "0"], "above 0"),
        (["--gpu-memory", "8GB", "--batch", "-1"], "above 0"),
        (["--gpu-memory", "8GB", "--seq-len", "0"], "above 0"),
        (["--gpu-memory", "8GB", "--seq-len", "513"], "at most 512"),
        (["--gpu-memory", "8GB", "--optimizer", "adam"], "did you mean adamw"),
        (["--gpu-memory", "8GB", "--dtype", "bfloat16", "--mixed-precision", "bf16"], "give no"),
        (["--gpu-memory", "8GB", "-o", "-", "colour=red"], "no such key"),
        (["--gpu-memory", "8GB", "colour"], "num_processes=4"),
    ],
)
def test_wrong_flags_are_named(model, more, said, capsys):
    assert main(["plan", "--model", model, *more]) == 2
    assert said in capsys.readouterr().err


def test_sizes_in_every_spelling():
    from mudarrib.launch.cli_plan import size_of

    texts = ("80GB", "80gib", "80 G", "80", "81920MB", "0.078125TB")
    assert {size_of("--gpu-memory", text) for text in texts} == {80 * GIB}


def test_planning_needs_neither_torch_nor_accelerate(model):
    code = f"""
import sys
from mudarrib.launch.cli import main
main(["plan", "--model", {model!r}, "--gpu-memory", "24GB"])
assert not {{"torch", "accelerate", "transformers", "numpy", "matplotlib"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_where_torch_is_missing_simulation_says_what_to_install(model):
    code = f"""
import sys
sys.modules["torch"] = sys.modules["matplotlib"] = None
from mudarrib.launch.cli import main
assert main(["plan", "--model", {model!r}, "--gpu-memory", "24GB", "--simulate"]) == 2
assert main(["plan", "--model", {model!r}, "--gpu-memory", "24GB", "--picture", "x.png"]) == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mudarrib-launch[plan]" in done.stderr and "mudarrib-launch[picture]" in done.stderr


def test_what_is_asked_of_a_plan_is_checked_from_python_too():
    with pytest.raises(ConfigError, match="--batch"):
        planned(BERT, 2, 24, Work(batch=0, seq_len=128))
