"""An iterable data set of `datasets` is a part like any other, and resumes without a walk."""

import datasets
import pytest

from mudarrib.ckpt_hub import CheckpointStore

walked = []


def tokenise(example):
    walked.append(example["x"])
    return {"x": example["x"] * 10}


def make():
    data = datasets.Dataset.from_dict({"x": list(range(2000))}).to_iterable_dataset(num_shards=4)
    return data.map(tokenise)


@pytest.mark.parametrize("stop", [0, 1, 777, 1999])
def test_iterable_continues_where_it_was(tmp_path, stop):
    whole = [row["x"] for row in make()]
    data = make()
    rows = iter(data)
    for _ in range(stop):
        next(rows)
    CheckpointStore(tmp_path).save(stop, {"data": data})
    again = make()
    assert CheckpointStore(tmp_path).load({"data": again}).step == stop
    walked.clear()
    assert [row["x"] for row in again] == whole[stop:]
    assert len(walked) <= 2000 - stop + 1
