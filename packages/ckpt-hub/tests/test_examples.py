"""Augmentation drawn by workers is the same after a resume in the middle of an epoch."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from mudarrib.ckpt_hub import CheckpointStore, ResumableBatches, RngState, SeededExamples


class Augmented:
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return [index, random.random(), float(np.random.rand()), torch.rand(()).item()]


def make(workers, persistent=False):
    batches = ResumableBatches(24, 4, seed=1)
    examples = SeededExamples(Augmented(), seed=2)
    loader = DataLoader(
        examples, batch_sampler=batches, num_workers=workers, collate_fn=torch.tensor, persistent_workers=persistent
    )
    return batches, examples, loader


def run(batches, examples, loader, steps):
    seen = []
    while len(seen) < steps:
        examples.set_epoch(batches.epoch)
        for batch in loader:
            seen.append(batch)
            batches.advance()
            if len(seen) == steps:
                break
    return seen


@pytest.mark.parametrize(("first", "second"), [(0, 2), (2, 0), (1, 2)])
def test_resumed_in_the_middle_of_an_epoch(tmp_path, first, second):
    whole = run(*make(0), 14)
    batches, examples, loader = make(first)
    assert all(torch.equal(a, b) for a, b in zip(run(batches, examples, loader, 8), whole))
    CheckpointStore(tmp_path).save(8, {"data": batches})
    batches, examples, loader = make(second)
    CheckpointStore(tmp_path).load({"data": batches})
    assert all(torch.equal(a, b) for a, b in zip(run(batches, examples, loader, 6), whole[8:], strict=True))


def test_a_whole_run_with_workers_and_dropout_resumes_bit_for_bit(tmp_path):
    """The loader has a generator of its own: making its iterator must not draw from the one of the dropout."""

    def train(root, steps):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        batches, examples, _ = make(0)
        loader = DataLoader(
            examples, batch_sampler=batches, num_workers=1, collate_fn=torch.tensor, generator=torch.Generator()
        )
        store = CheckpointStore(root)
        parts = {"model": model, "optimizer": optimizer, "rng": RngState(), "data": batches}
        saved = store.load(parts)
        done = saved.step if saved else 0
        while done < steps:
            examples.set_epoch(batches.epoch)
            for batch in loader:
                model(batch[:, 1:]).pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                batches.advance()
                done += 1
                if done % 4 == 0:
                    store.save(done, parts)
                if done == steps:
                    break
        return torch.cat([value.flatten() for value in model.parameters()])

    train(tmp_path / "a", 9)  # stops in the middle of an epoch, after the checkpoint of step 8
    assert torch.equal(train(tmp_path / "a", 14), train(tmp_path / "b", 14))


def test_epochs_differ_with_workers_that_live_on():
    batches = run(*make(2, persistent=True), 12)
    first, second = (sorted(map(tuple, torch.cat(epoch).tolist())) for epoch in (batches[:6], batches[6:]))
    assert [row[0] for row in first] == [row[0] for row in second]
    assert all(a[1:] != b[1:] for a, b in zip(first, second))


def test_the_main_process_keeps_its_own_randomness():
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    expected = random.random(), np.random.rand(), torch.rand(()).item()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    SeededExamples(Augmented())[3]
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == expected
