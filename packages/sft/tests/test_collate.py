import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from mudarrib.sft.collate import CausalCollator, positions

ROWS = [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9], "labels": [-100, 9]}]
PACKED = [
    {"input_ids": [5, 6, 7, 8, 9], "seq_lengths": [3, 2]},
    {"input_ids": [5, 6], "labels": [5, -100], "seq_lengths": [2]},
]


def lists(batch):
    return {name: value.tolist() if torch.is_tensor(value) else value for name, value in batch.items()}


def test_padded_batches_have_a_mask_from_their_lengths():
    assert lists(CausalCollator(pad_token_id=7)(ROWS)) == {
        "input_ids": [[5, 6, 7], [8, 9, 7]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "labels": [[5, 6, 7], [-100, 9, -100]],
    }


def test_padding_free_batches_are_one_row():
    assert lists(CausalCollator(pad_token_id=1, padding_free=True)(ROWS)) == {
        "input_ids": [[5, 6, 7, 8, 9]],
        "position_ids": [[0, 1, 2, 0, 1]],
        "labels": [[-100, 6, 7, -100, 9]],
    }


def test_packed_rows_stay_rows_and_first_tokens_are_not_learned():
    assert lists(CausalCollator(pad_token_id=1)(PACKED)) == {
        "input_ids": [[5, 6, 7, 8, 9], [5, 6, 1, 1, 1]],
        "position_ids": [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]],
        "labels": [[-100, 6, 7, -100, 9], [-100, -100, -100, -100, -100]],
    }


def test_flash_gets_one_row_and_its_borders():
    batch = lists(CausalCollator(pad_token_id=1, flatten=True, boundaries=True, pad_to_multiple_of=4)(PACKED))
    assert batch["input_ids"] == [[5, 6, 7, 8, 9, 5, 6, 1]]
    assert batch["position_ids"] == [[0, 1, 2, 0, 1, 0, 1, 0]]
    assert batch["cu_seq_lens_q"] == batch["cu_seq_lens_k"] == [0, 3, 5, 7, 8]
    assert batch["max_length_q"] == batch["max_length_k"] == 3


def test_lengths_are_rounded_up():
    assert CausalCollator(pad_token_id=1, pad_to_multiple_of=8)(ROWS)["input_ids"].shape == (2, 8)


def test_examples_are_not_changed():
    row = {"input_ids": np.array([5, 6]), "labels": np.array([5, 6]), "seq_lengths": np.array([2])}
    CausalCollator(pad_token_id=1)([row])
    assert row["labels"].tolist() == [5, 6]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_positions_restart(lengths):
    assert positions(np.array(lengths)).tolist() == [i for n in lengths for i in range(n)]
