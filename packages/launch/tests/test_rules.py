"""Wrong configs, each caught by its rule; right ones by none."""

import copy
import json
import socket

import pytest

from mudarrib.launch import Config, check, new, parse, read, write
from mudarrib.launch.context import Context, Here, ModelFacts
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


BERT = ModelFacts("bert", ("BertSelfOutput", "BertLayer", "BertModel"), ("BertLayer",))


def known(config, **facts):
    config.context = Context(**facts)
    return config


WRONG = [
    ("K001", changed("ddp", num_proceses=2)),
    ("K001", changed("ddp", fsdp={"x": 1})),
    ("K001", changed("ddp", mixed_precison="bf16")),
    ("K003", changed("ddp", distributed_type=...)),
    ("K012", Config({**LOCAL, "distributed_type": "FSDP", "fsdp_config": {"auto_wrap_policy": "NO_WRAP"}})),
    ("K013", parse("distributed_type: MULTI_GPU\nnum_processes: 2\nnum_processes: 8\n")),
    ("K012", Config({**LOCAL, "dynamo_config": {"backend": "INDUCTOR"}})),
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
    ("K011", Config({"compute_environment": "AMAZON_SAGEMAKER", "distributed_type": "NO", "ec2_instance_type": "x"})),
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
    ("M006", changed("ddp", main_process_ip=None, mpirun_config={"mpirun_hostfile": "hosts"})),
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
    ("M011", Config({**LOCAL, "distributed_type": "NO", "num_processes": 1, "gpu_ids": 0})),
    ("P001", parse("distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: no\n")),
    ("P001", parse("distributed_type: NO\ndynamo_backend: NO\n")),
    ("P001", parse("distributed_type: MULTI_GPU\nnum_processes: 2\nrdzv_backend: off\n")),
    ("P001", changed("fsdp", fsdp_sharding_strategy=False)),
    ("P001", changed("deepspeed-plugin", offload_param_device=False)),
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
    ("F011", Config({**LOCAL, "distributed_type": "FSDP", "fsdp_config": {"fsdp_sync_module_states": False}})),
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
    ("K002", Config({**LOCAL, "dynamo_config": {"dynamo_backed": "INDUCTOR"}})),
    ("K002", Config({**LOCAL, "mixed_precision": "fp8", "fp8_config": {"backends": "TE"}})),
    ("F006", changed("fsdp2", fsdp_sharding_strategy="FULL_SHARD")),
    ("F014", new("fsdp")),
    ("R001", changed("fsdp2", parallelism_config={"parallelism_config_tp_size": 0})),
    ("R002", changed("fsdp2", parallelism_config={"parallelism_config_tp_size": 4})),
    ("R003", changed("fsdp", parallelism_config={"parallelism_config_tp_size": 2})),
    ("R003", changed("ddp", parallelism_config={"parallelism_config_tp_size": 8})),
    ("R004", changed("ddp", mixed_precision="fp8", fp8_config={"backend": "TEE"})),
    ("R005", changed("ddp", fp8_config={"backend": "TE"})),
    ("V001", known(changed("fsdp2"), accelerate="1.3.0")),
    ("V001", known(changed("fsdp2", parallelism_config={"parallelism_config_tp_size": 2}), accelerate="1.9.0")),
    ("V002", known(changed("ddp", tp_config={"tp_size": 2}), accelerate="1.15.0")),
    ("V002", known(changed("ddp", ipex_config={"ipex": True}), accelerate="1.13.0")),
    ("V002", known(new("fsdp"), accelerate="1.0.1")),
    ("L001", known(changed("fsdp", fsdp_transformer_layer_cls_to_wrap="BretLayer"), model=BERT)),
    ("L001", known(changed("fsdp2", fsdp_transformer_layer_cls_to_wrap="BertLayer,Nothing"), model=BERT)),
    ("L002", known(changed("fsdp2", fsdp_transformer_layer_cls_to_wrap="BertSelfOutput"), model=BERT)),
    (
        "L003",
        known(
            Config(
                {
                    **LOCAL,
                    "distributed_type": "DEEPSPEED",
                    "deepspeed_config": {"zero_stage": 3, "deepspeed_moe_layer_cls_names": "Experts"},
                }
            ),
            model=BERT,
        ),
    ),
    ("T001", known(new("deepspeed-plugin"), training={"gradient_accumulation_steps": 4})),
    ("T002", known(new("deepspeed-plugin"), training={"max_grad_norm": 1.0})),
    ("T003", known(new("fsdp2"), training={"fp16": True})),
    ("T007", known(new("deepspeed-plugin"), training={"optim": "lomo"})),
    ("T007", known(new("fsdp"), training={"optim": "galore_adamw_layerwise"})),
    ("T008", known(new("fsdp"), training={"optim": "galore_adamw"})),
    ("T008", known(changed("fsdp", fsdp_use_orig_params=False), training={"optim": "muon"})),
    ("T008", known(new("fsdp2"), training={"optim": "adafactor"})),
    ("T008", known(new("deepspeed-plugin"), training={"optim": "muon"})),
    ("T009", known(changed("fsdp", fsdp_use_orig_params=False), training={"weight_decay": 0.1})),
    ("T010", known(changed("fsdp2", fsdp_activation_checkpointing=True), training={"gradient_checkpointing": True})),
    ("T011", known(new("fsdp2"), training={"deepspeed": "ds.json"})),
    ("T012", known(new("fsdp2"), training={"use_cpu": True})),
    ("T013", known(changed("fsdp", fsdp_state_dict_type="LOCAL_STATE_DICT"), training={"save_strategy": "steps"})),
    ("T014", known(new("fsdp2"), training={"save_only_model": True})),
    ("T015", known(new("cpu"), training={"fp16": True})),
    ("T015", known(changed("ddp", num_machines=1), training={"fp16": True, "use_cpu": True})),
    ("F015", changed("fsdp", use_cpu=True)),
    ("H001", known(new("deepspeed-plugin"), here=Here(True))),
    ("H002", known(new("fsdp2"), here=Here(False))),
    ("H003", known(new("fsdp2"), here=Here(True, flags=("--cpu",)))),
    ("H003", known(new("deepspeed"), here=Here(True, flags=("--num_processes", "4", "--cpu")))),
]


@pytest.mark.parametrize(("code", "config"), WRONG, ids=[f"{i}-{code}" for i, (code, _) in enumerate(WRONG)])
def test_every_wrong_config_is_caught_by_its_rule(code, config):
    found = {finding.code: finding for finding in check(config)}
    assert code in found
    finding = found[code]
    assert finding.message and finding.consequence and finding.fix


def test_there_are_enough_rules_and_wrong_configs():
    check(new("ddp"))
    assert len(RULES) >= 80 and len(WRONG) >= 100
    needs_files = {"D006", "D007", "M012", "T004", "T005", "T006"}
    assert {code for code, _ in WRONG} | needs_files == set(RULES)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "fsdp2", "deepspeed", "deepspeed-plugin", "cpu"])
def test_no_false_alarm(kind):
    assert [finding.code for finding in check(new(kind)) if finding.stops] == []
    notes = {"fsdp": {"F014", "V002"}}
    assert {finding.code for finding in check(new(kind))} == notes.get(kind, set())


@pytest.mark.parametrize(
    ("config", "optim"),
    [
        (new("ddp"), "adafactor"),
        (new("fsdp2"), "galore_adamw"),
        (new("fsdp"), "adamw_torch_fused"),
        (new("deepspeed-plugin", zero_stage=0), "muon"),
    ],
)
def test_an_optimizer_that_sees_its_matrices_is_right(config, optim):
    assert "T008" not in [finding.code for finding in check(known(config, training={"optim": optim}))]


def test_keys_without_prefixes_are_checked_as_what_they_are():
    config = parse(
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {version: 2, state_dict_type: FOO, offload_params: 'no'}\n"
    )
    found = {(finding.code, finding.place) for finding in check(config) if finding.code != "K012"}
    assert found == {("F003", (3, 27)), ("F013", (3, 49))}


def test_what_can_be_launched_here_is():
    quiet = Here(True, ("deepspeed",), ("--num_processes=1", "--cpu"))
    for here in (quiet, Here(None, ("deepspeed",))):
        assert not [found for found in check(known(new("deepspeed-plugin"), here=here)) if found.code[0] == "H"]
    assert check(known(new("cpu"), here=Here(False))) == []


def test_a_mended_config_is_right():
    for code, config in WRONG:
        config = copy.deepcopy(config)
        for finding in check(config):
            if finding.code == code and finding.value is not ... and "." not in finding.key:
                config.values[finding.key] = finding.value
                assert code not in {again.code for again in check(config)}, code


def test_the_place_is_told():
    config = parse("distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_state_dict_type: FOO\n")
    (finding,) = (finding for finding in check(config) if finding.stops)
    assert (finding.code, finding.place) == ("F003", (4, 3))


def test_the_json_file_of_deepspeed(tmp_path):
    write(new("deepspeed"), tmp_path / "c.yaml")
    assert [finding.code for finding in check(read(tmp_path / "c.yaml"))] == ["D006"]
    (tmp_path / "ds_config.json").write_text("{")
    assert [finding.code for finding in check(read(tmp_path / "c.yaml"))] == ["D007"]
    (tmp_path / "ds_config.json").write_text("{}")
    assert check(read(tmp_path / "c.yaml")) == []


def test_the_json_file_against_the_arguments(tmp_path):
    write(new("deepspeed"), tmp_path / "c.yaml")
    settings = {
        "train_batch_size": 100, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "zero_optimization": {},
        "optimizer": {"type": "Lamb", "params": {"lr": 0.1, "eps": "auto"}},
    }  # fmt: skip
    (tmp_path / "ds_config.json").write_text(json.dumps(settings))
    training = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "bf16": False, "optim": "sgd",
                "learning_rate": 0.01, "adam_epsilon": 1e-8}  # fmt: skip
    found = check(known(read(tmp_path / "c.yaml"), training=training))
    assert sorted(finding.code for finding in found) == ["T004", "T004", "T004", "T005", "T006"]
    said = " ".join(finding.message for finding in found)
    assert "gradient_accumulation_steps is 2" in said and "optimizer.params.lr is 0.1" in said and "128" in said
    right = {**settings, "train_batch_size": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}}
    right.pop("optimizer")
    (tmp_path / "ds_config.json").write_text(json.dumps(right))
    assert check(known(read(tmp_path / "c.yaml"), training=training)) == []


def test_a_port_in_use_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        write(new("cpu", main_process_port=taken.getsockname()[1]), tmp_path / "c.yaml")
        assert [finding.code for finding in check(read(tmp_path / "c.yaml"))] == ["M012"]
    assert check(read(tmp_path / "c.yaml")) == []
