"""Configs read, written and mended by us mean to accelerate what they say: its own loader and launcher are asked."""

import importlib.util
import warnings
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mudarrib.launch import check, keys, new, parse, read, write
from mudarrib.launch.cli import main
from mudarrib.launch.context import read_model_facts

flag = st.booleans()
count = st.integers(1, 64)
name = st.text("abcdefgh-ABC.é\u0645", min_size=1, max_size=12)


def some_of(required, optional):
    return st.fixed_dictionaries(required, optional=optional)


COMMON = {
    "compute_environment": st.just("LOCAL_MACHINE"),
    "mixed_precision": st.sampled_from(["no", "fp16", "bf16"]),
    "num_processes": count,
    "machine_rank": st.just(0),
    "num_machines": st.just(1),
    "use_cpu": flag,
    "debug": flag,
}
OFTEN = {
    "main_training_function": name,
    "rdzv_backend": st.sampled_from(["static", "c10d"]),
    "same_network": flag,
    "downcast_bf16": st.sampled_from(["no", "yes"]),
    "tpu_use_cluster": flag,
    "tpu_use_sudo": flag,
    "tpu_env": st.lists(name, max_size=2),
    "gpu_ids": st.sampled_from(["all", "0,1", "0"]),
    "main_process_port": st.integers(1024, 65535),
    "enable_cpu_affinity": flag,
    "dynamo_config": some_of({"dynamo_backend": st.sampled_from(["INDUCTOR", "EAGER"])}, {"dynamo_use_dynamic": flag}),
    "fp8_config": some_of({"backend": st.sampled_from(["TE", "AO"])}, {"margin": st.integers(0, 3)}),
}
FSDP = some_of(
    {"fsdp_version": st.sampled_from([1, 2]), "fsdp_auto_wrap_policy": st.just("TRANSFORMER_BASED_WRAP")},
    {
        "fsdp_transformer_layer_cls_to_wrap": name,
        "fsdp_state_dict_type": st.sampled_from(["FULL_STATE_DICT", "SHARDED_STATE_DICT"]),
        "fsdp_offload_params": flag,
        "fsdp_cpu_ram_efficient_loading": flag,
        "fsdp_activation_checkpointing": flag,
    },
)
DEEPSPEED = some_of(
    {"zero_stage": st.integers(0, 3)},
    {
        "gradient_accumulation_steps": count,
        "gradient_clipping": st.floats(0, 8, allow_nan=False).map(lambda value: round(value, 3)),
        "offload_optimizer_device": st.sampled_from(["none", "cpu"]),
        "zero3_init_flag": flag,
        "zero3_save_16bit_model": flag,
    },
)
KINDS = {"NO": {}, "MULTI_GPU": {}, "MULTI_CPU": {}, "MULTI_XPU": {}, "MULTI_NPU": {}, "XLA": {},
         "FSDP": {"fsdp_config": FSDP}, "DEEPSPEED": {"deepspeed_config": DEEPSPEED}}  # fmt: skip
CONFIGS = st.sampled_from(sorted(KINDS)).flatmap(
    lambda kind: some_of({"distributed_type": st.just(kind), **COMMON, **KINDS[kind]}, OFTEN)
)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=CONFIGS)
def test_a_thousand_configs_read_and_written_mean_the_same_to_accelerate(tmp_path_factory, values):
    folder = tmp_path_factory.getbasetemp()
    theirs, ours = folder / "theirs.yaml", folder / "ours.yaml"
    theirs.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    config = read(theirs)
    assert config.values == values
    write(config, ours)
    assert load_config_from_file(str(ours)).to_dict() == load_config_from_file(str(theirs)).to_dict()


def files_of_sections():
    """The files of the package's own test, as accelerate's questions write them."""
    place = Path(__file__).resolve().parent.parent / "packages" / "launch" / "tests" / "test_sections.py"
    spec = importlib.util.spec_from_file_location("sections", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: text for name, (text, _) in module.FILES.items()}


@pytest.mark.parametrize(("name", "text"), files_of_sections().items())
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_other_devices_and_sections_mean_the_same_to_accelerate(tmp_path, name, text, suffix):
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / f"ours.{suffix}"
    theirs.write_text(text)
    write(read(theirs), ours)
    assert load_config_from_file(str(ours)).to_dict() == load_config_from_file(str(theirs)).to_dict()


def test_a_key_without_its_prefix_is_read_as_we_say(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {version: 2, min_num_params: 7}\n")
    before = launched(path)
    assert (before["fsdp_version"], before["fsdp_min_num_params"]) == (2, 7)
    assert main(["check", str(path), "--fix"]) == 0
    assert launched(path) == before | {"fsdp_version": 2}


# What the launcher does not merge into its flags: kinds become use_* flags, the rest is for TPUs or for nothing.
NOT_MERGED = ("distributed_type", "compute_environment", "tpu_env", "debug", "downcast_bf16",
              "fsdp_backward_prefetch_policy", "same_network")  # fmt: skip


def launched(path, *flags):
    """What accelerate launch makes of a config and flags: its arguments, after its own merging."""
    arguments = launch_command_parser().parse_args(["--config_file", str(path), *flags, "script.py"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged, *_ = _validate_launch_command(arguments)
    return vars(merged)


@pytest.mark.parametrize("kind", ["fsdp", "fsdp2", "cpu", "deepspeed-plugin", "ddp"])
def test_the_launcher_takes_each_value(tmp_path, kind):
    write(new(kind), tmp_path / "c.yaml")
    merged = launched(tmp_path / "c.yaml")
    for key, value in new(kind).values.items():
        for inner, said in value.items() if isinstance(value, dict) else [(key, value)]:
            if inner in NOT_MERGED:
                continue
            assert str(merged[inner]).lower() == str(said).lower(), inner
    assert launched(tmp_path / "c.yaml", "--num_processes=4")["num_processes"] == 4, "a flag wins"


def test_a_key_is_what_the_launcher_takes_it_for():
    """Its flags say which keys are switches and which are numbers."""
    flags = {action.dest: action for action in launch_command_parser()._actions}
    for key in {*keys.COMMON, *(name for names in keys.SECTIONS.values() for name in names)} - {"downcast_bf16"}:
        action = flags.get(key) or flags.get(f"fp8_{key}")
        if action is None:
            continue
        switch = action.nargs == 0 or action.type is bool or action.default in ("true", "false")
        if switch or action.type in (int, float):
            assert key in (keys.SWITCHES if switch else keys.NUMBERS)
        elif key in keys.SWITCHES:
            assert action.default is None, "a text that the launcher turns into a switch"


def test_a_moved_fsdp_config_means_the_same(tmp_path):
    path = tmp_path / "c.yaml"
    write(new("fsdp"), path)
    before = launched(path)
    assert main(["check", str(path), "--fix"]) == 0
    after = launched(path)
    assert (before["fsdp_version"], after["fsdp_version"]) == (None, 2) or after["fsdp_version"] == 2
    assert (
        before["fsdp_sharding_strategy"] == "FULL_SHARD" and str(after["fsdp_reshard_after_forward"]).lower() == "true"
    )
    same = ("fsdp_auto_wrap_policy", "fsdp_state_dict_type", "fsdp_transformer_layer_cls_to_wrap", "fsdp_offload_params",
            "mixed_precision", "num_processes", "use_fsdp")  # fmt: skip
    assert {name: before[name] for name in same} == {name: after[name] for name in same}
    assert check(read(path)) == []


def test_the_classes_of_a_model_are_read_from_its_source(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    facts = read_model_facts(tmp_path)
    assert "BertLayer" in facts.classes and "BertLayer" in facts.layers
    config = new("fsdp2", fsdp_transformer_layer_cls_to_wrap="BretLayer")
    path = tmp_path / "c.yaml"
    write(config, path)
    assert main(["check", str(path), "--model", str(tmp_path), "--fix"]) == 0
    assert parse(path.read_text()).get("fsdp_config.fsdp_transformer_layer_cls_to_wrap") == "BertLayer"
