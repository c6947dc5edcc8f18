"""Models that write themselves, from the snapshot: the same files as `save_pretrained`, whatever the loop does meanwhile."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mudarrib.ckpt_hub import CheckpointStore, ModelFiles


def make():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=16))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".safetensors", ".json")}


@pytest.mark.parametrize("defer_copy", [False, True])
def test_tied_model_from_the_snapshot(tmp_path, defer_copy):
    model = make()
    model.save_pretrained(tmp_path / "plain")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    store = CheckpointStore(tmp_path / "run", background=True, defer_copy=defer_copy)
    saved = store.save(1, {"optimizer": optimizer}, extra_files={"model": ModelFiles(model)})
    ids = torch.arange(8)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    store.wait()
    expected = files(tmp_path / "plain")
    assert {name: data for name, data in files(saved.path).items() if name in expected} == expected


def test_weights_a_model_wrote_load_into_a_module(tmp_path):
    model = make()
    for writer, folder in (
        (model.save_pretrained, tmp_path / "one"),
        (lambda path: model.save_pretrained(path, max_shard_size="50KB"), tmp_path / "many"),
    ):
        CheckpointStore(folder).save(1, {}, extra_files={"model": writer})
        again = make()
        torch.nn.init.zeros_(again.transformer.wte.weight)
        assert CheckpointStore(folder).load({"model": again}).step == 1
        assert again.lm_head.weight is again.transformer.wte.weight
        assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters()))
    assert (tmp_path / "many" / "checkpoint-1" / "model.safetensors.index.json").exists()
