"""Both ways with transformers' Trainer: its checkpoints into our store, and ours into its resume."""

import json

import pytest
import torch
from transformers import Trainer, TrainingArguments

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState, from_peers, to_peers


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 16))
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x=None, labels=None):
        out = self.head(self.body(x))[:, 0]
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


def make_trainer(folder, **kwargs):
    torch.manual_seed(0)
    data = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(64)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=8,
        per_device_train_batch_size=4,
        learning_rate=0.01,
        report_to=[],
        save_strategy="steps",
        save_steps=4,
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
        lr_scheduler_type="cosine",
        **kwargs,
    )
    return Trainer(model=Net(), args=arguments, train_dataset=data)


def weights(model):
    return torch.cat([value.detach().flatten() for value in model.parameters()])


class Progress:
    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@pytest.fixture(scope="module")
def peer_run(tmp_path_factory):
    trainer = make_trainer(tmp_path_factory.mktemp("peer"))
    trainer.train()
    return trainer


def loaded(folder, checkpoint):
    """A fresh trainer's objects after our store has put the checkpoint into them."""
    trainer = make_trainer(folder)
    trainer.create_optimizer_and_scheduler(8)
    parts = {
        "model": trainer.model,
        "optimizer": trainer.optimizer,
        "scheduler": trainer.lr_scheduler,
        "progress": Progress(),
        "rng": RngState(),
    }
    saved = CheckpointStore(folder).load(parts, checkpoint)
    return trainer, parts, saved


def bare_steps(trainer, parts, saved):
    """Steps 5 to 8 by hand, in the order of the Trainer's batches."""
    batches = list(trainer.get_train_dataloader())
    trainer.model.train()
    RngState().load_state_dict(parts["rng_state"])
    for batch in batches[saved.step :][:4]:
        trainer.model(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        trainer.optimizer.zero_grad()


def test_a_bare_loop_goes_on_from_a_peers_checkpoint(peer_run, tmp_path):
    checkpoint = peer_run.args.output_dir + "/checkpoint-4"
    trainer, parts, saved = loaded(tmp_path, checkpoint)
    parts["rng_state"] = RngState().state_dict()
    assert saved.step == 4 and parts["progress"].state["global_step"] == 4
    torch.manual_seed(trainer.args.seed)  # the order of examples is the Trainer's, drawn from its seed
    bare_steps(trainer, parts, saved)
    assert torch.equal(weights(peer_run.model), weights(trainer.model))


def test_round_trip_through_ours_resumes_in_the_peer(peer_run, tmp_path):
    ours = from_peers(peer_run.args.output_dir + "/checkpoint-4", tmp_path / "ours" / "checkpoint-4")
    CheckpointStore(tmp_path / "ours").verify(ours.path)
    assert not [p for p in ours.path.iterdir() if p.suffix in (".pt", ".pth", ".bin")]
    back = to_peers(ours.path, tmp_path / "back" / "checkpoint-4")
    trainer = make_trainer(tmp_path / "back")
    trainer.train(resume_from_checkpoint=str(back))
    assert torch.equal(weights(peer_run.model), weights(trainer.model))
    assert trainer.state.log_history[:4] == peer_run.state.log_history[:4]


def test_a_checkpoint_of_a_bare_loop_resumes_in_the_peer(peer_run, tmp_path):
    trainer, parts, _ = loaded(tmp_path, peer_run.args.output_dir + "/checkpoint-4")
    ours = CheckpointStore(tmp_path / "ours").save(4, parts)
    back = to_peers(ours.path, tmp_path / "back" / "checkpoint-4")
    resumed = make_trainer(tmp_path / "back")
    resumed.train(resume_from_checkpoint=True)
    assert json.loads((back / "trainer_state.json").read_text())["global_step"] == 4
    assert torch.equal(weights(peer_run.model), weights(resumed.model))


def test_newest_takes_a_peers_checkpoint_that_is_whole(peer_run, tmp_path):
    store = CheckpointStore(peer_run.args.output_dir)
    assert [saved.step for saved in store.checkpoints()] == [4, 8]
    half = tmp_path / "run"
    from_peers(peer_run.args.output_dir + "/checkpoint-4", half / "checkpoint-4")
    (half / "checkpoint-9").mkdir()
    (half / "checkpoint-9" / "optimizer.pt").write_bytes(b"half")
    assert CheckpointStore(half).newest().step == 4


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_hostile_pickle_is_refused_unrun(peer_run, tmp_path, name):
    import shutil

    folder = tmp_path / "checkpoint-4"
    shutil.copytree(peer_run.args.output_dir + "/checkpoint-4", folder)
    torch.save({"x": Bomb(str(tmp_path / "ran"))}, folder / name)
    with pytest.raises(CheckpointError, match=name):
        loaded(tmp_path, folder)
    assert not (tmp_path / "ran").exists()
