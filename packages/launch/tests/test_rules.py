"""Wrong configs, each caught by its rule; right ones by none."""

import copy

import pytest

from mudarrib.launch import Config, check, new, parse
from mudarrib.launch.rules import RULES

LOCAL = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "num_machines": 1, "num_processes": 2}


def changed(kind, **changes):
    config = new(kind)
    for key, value in changes.items():
        section = key.startswith(("fsdp_", "zero", "offload", "gradient", "deepspeed_config_"))
        target = config.values
        if section:
            target = config.values["fsdp_config" if kind.startswith("fsdp") else "deepspeed_config"]
        if value is ...:
            target.pop(key)
        else:
            target[key] = value
    return config


WRONG = [
    ("K001", changed("ddp", num_proceses=2)),
    ("K001", changed("ddp", fsdp={"x": 1})),
    ("K001", changed("ddp", mixed_precison="bf16")),
    ("K003", changed("ddp", distributed_type=...)),
    ("K004", changed("ddp", distributed_type="DDP")),
    ("K004", changed("ddp", distributed_type="fsdp")),
    ("K004", changed("ddp", distributed_type="FSDP2")),
    ("K004", changed("ddp", distributed_type="MULTIGPU")),
    ("K005", Config({**LOCAL, "distributed_type": "FSDP", "fsdp_config": ["a"]})),
    ("K005", Config({**LOCAL, "dynamo_config": "inductor"})),
    ("K006", Config({**LOCAL, "distributed_type": "FSDP", "deepspeed_config": {"zero_stage": 3}})),
    ("K006", Config({**LOCAL, "fsdp_config": {"fsdp_version": 2}})),
    ("K007", changed("ddp", compute_environment="LOCAL")),
    ("K008", changed("ddp", rdzv_backend="foo")),
    ("K009", changed("ddp", fp16=True)),
    ("K004", changed("ddp", distributed_type="TP")),
    ("K010", changed("ddp", dynamo_backend="XX")),
    ("K010", changed("ddp", dynamo_config={"dynamo_backend": "INDUKTOR"})),
    ("M001", changed("ddp", num_processes="8")),
    ("M001", changed("ddp", num_processes=0)),
    ("M001", changed("ddp", num_processes=-3)),
    ("M001", changed("ddp", num_processes="eight")),
    ("M002", changed("ddp", num_machines=0)),
    ("M002", changed("ddp", num_machines="two")),
    ("M003", changed("fsdp", num_processes=...)),
    ("M004", changed("ddp", num_processes=3)),
    ("M005", changed("ddp", machine_rank=5)),
    ("M005", changed("ddp", machine_rank=-1)),
    ("M005", changed("fsdp", machine_rank=1)),
    ("M006", changed("ddp", main_process_ip="127.0.0.1")),
    ("M006", changed("ddp", main_process_ip="localhost")),
    ("M006", changed("ddp", main_process_ip=None)),
    ("M007", changed("ddp", main_process_port="abc")),
    ("M007", changed("ddp", main_process_port=None)),
    ("M007", changed("ddp", main_process_port=80)),
    ("M007", changed("ddp", main_process_port=70000)),
    ("M008", Config({**LOCAL, "num_processes": 1})),
    ("M009", Config({**LOCAL, "distributed_type": "MULTI_CPU"})),
    ("M010", Config({**LOCAL, "distributed_type": "NO"})),
    ("M011", Config({**LOCAL, "gpu_ids": "0"})),
    ("M011", Config({**LOCAL, "gpu_ids": "0,0"})),
    ("M011", Config({**LOCAL, "gpu_ids": "first"})),
    ("P001", parse("distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: no\n")),
    ("P002", changed("ddp", mixed_precision="fp17")),
    ("P002", changed("ddp", mixed_precision="bfloat16")),
    ("P003", changed("cpu", mixed_precision="fp16")),
    ("P003", changed("cpu", mixed_precision="fp8")),
    ("P004", changed("ddp", use_cpu="false")),
    ("P004", changed("ddp", same_network="yes")),
    ("F001", changed("fsdp", fsdp_sharding_strategy=9)),
    ("F001", changed("fsdp", fsdp_sharding_strategy="FULL_SHARDED")),
    ("F002", changed("fsdp", fsdp_auto_wrap_policy="FOO")),
    ("F003", changed("fsdp", fsdp_state_dict_type="FOO")),
    ("F004", changed("fsdp", fsdp_backward_prefetch_policy="BACKWARD")),
    ("F005", changed("fsdp2", fsdp_version=3)),
    ("F006", changed("fsdp2", fsdp_sharding_strategy="FULL_SHARD")),
    ("F006", changed("fsdp2", fsdp_use_orig_params=True)),
    ("F007", changed("fsdp", fsdp_reshard_after_forward=True)),
    ("F008", changed("fsdp", fsdp_transformer_layer_cls_to_wrap="")),
    ("F009", changed("fsdp", fsdp_auto_wrap_policy="SIZE_BASED_WRAP")),
    ("F010", changed("fsdp2", use_cpu=True)),
    ("F011", changed("fsdp", fsdp_sync_module_states=False)),
    ("F012", Config({**LOCAL, "distributed_type": "FSDP"})),
    ("F013", changed("fsdp", fsdp_offload_params="false")),
    ("K002", changed("fsdp", fsdp_transfomer_layer_cls_to_wrap="BertLayer")),
    ("K002", changed("deepspeed-plugin", offload_param_devise="cpu")),
    ("D001", changed("deepspeed-plugin", zero_stage=7)),
    ("D001", changed("deepspeed-plugin", zero_stage=5)),
    ("D002", changed("deepspeed-plugin", offload_optimizer_device="gpu")),
    ("D003", changed("deepspeed-plugin", offload_optimizer_device="nvme")),
    ("D004", changed("deepspeed", gradient_clipping=1.0)),
    ("D005", changed("deepspeed", mixed_precision="bf16")),
    ("D008", changed("deepspeed-plugin", zero_stage=1)),
    ("D009", Config({**LOCAL, "distributed_type": "DEEPSPEED"})),
    ("D010", changed("deepspeed-plugin", gradient_accumulation_steps=0)),
    ("D010", changed("deepspeed-plugin", gradient_clipping="much")),
]


@pytest.mark.parametrize(("code", "config"), WRONG, ids=[f"{i}-{code}" for i, (code, _) in enumerate(WRONG)])
def test_every_wrong_config_is_caught_by_its_rule(code, config):
    found = {finding.code: finding for finding in check(config)}
    assert code in found
    finding = found[code]
    assert finding.message and finding.consequence and finding.fix


def test_there_are_enough_rules_and_wrong_configs():
    check(new("ddp"))
    assert len(RULES) >= 40 and len(WRONG) >= 60
    needs_files = {"D006", "D007"}
    assert {code for code, _ in WRONG} | needs_files == set(RULES)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "fsdp2", "deepspeed", "deepspeed-plugin", "cpu"])
def test_no_false_alarm(kind):
    assert check(new(kind)) == []


def test_a_mended_config_is_right():
    for code, config in WRONG:
        config = copy.deepcopy(config)
        for finding in check(config):
            if finding.code == code and finding.value is not ... and "." not in finding.key:
                config.values[finding.key] = finding.value
                assert code not in {again.code for again in check(config)}, code


def test_the_place_is_told():
    config = parse("distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_state_dict_type: FOO\n")
    (finding,) = check(config)
    assert (finding.code, finding.place) == ("F003", (4, 3))


def test_the_json_file_of_deepspeed(tmp_path):
    from mudarrib.launch import read, write

    write(new("deepspeed"), tmp_path / "c.yaml")
    assert [finding.code for finding in check(read(tmp_path / "c.yaml"))] == ["D006"]
    (tmp_path / "ds_config.json").write_text("{")
    assert [finding.code for finding in check(read(tmp_path / "c.yaml"))] == ["D007"]
    (tmp_path / "ds_config.json").write_text("{}")
    assert check(read(tmp_path / "c.yaml")) == []
