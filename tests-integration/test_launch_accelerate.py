"""What accelerate's own loader makes of our configs is what we meant."""

import warnings

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from mudarrib.launch import new, write


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "fsdp2", "deepspeed", "deepspeed-plugin", "cpu"])
def test_accelerate_loads_the_same_values_without_a_warning(tmp_path, kind):
    config = new(kind)
    write(config, tmp_path / "c.yaml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_config_from_file(str(tmp_path / "c.yaml")).to_dict()
    for key, value in config.values.items():
        if key != "tpu_env":
            assert loaded[key] == value, key
