"""Every state comes back as it was, and nothing but data is accepted."""

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mudarrib.ckpt_hub import CheckpointError
from mudarrib.ckpt_hub.decode import decode
from mudarrib.ckpt_hub.encode import encode
from mudarrib.ckpt_hub.tensors import read_tensors, write_tensors

NOT_MADE = {torch.quint4x2, torch.quint2x4, torch.qint8, torch.quint8, torch.qint32}
DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)} - NOT_MADE, key=str)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(max_size=40),
    st.sampled_from(DTYPES),
    st.sampled_from([torch.device("cpu"), torch.device("cuda", 1), torch.Size([2, 3]), torch.Size([])]),
)
keys = st.one_of(
    st.text(max_size=5), st.integers(), st.tuples(st.integers(), st.text(max_size=2)), st.sampled_from(["$", "a.b"])
)
arrays = st.builds(
    lambda dtype, shape: np.arange(max(math.prod(shape), 1)).astype(dtype)[: math.prod(shape)].reshape(shape),
    st.sampled_from(["?", "i1", "<i4", ">i8", "f2", "f4", "c16", "U3", "S2", "M8[ns]"]),
    st.lists(st.integers(0, 3), max_size=3),
)
np_scalars = st.sampled_from(
    [np.float32(1.5), np.int64(-3), np.bool_(True), np.float64("nan"), np.str_("é"), np.str_("")]
)


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    n = math.prod(shape) * dtype.itemsize
    raw = torch.tensor([i % 2 if dtype == torch.bool else i % 251 for i in range(n)], dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)
    return tensor.transpose(0, -1) if tensor.dim() > 1 and draw(st.booleans()) else tensor


states = st.recursive(
    scalars | arrays | np_scalars | tensors(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=5)),
        st.sets(st.integers() | st.text(max_size=3), max_size=4),
        st.frozensets(st.tuples(st.integers(), st.floats(allow_nan=False)), max_size=3),
        st.dictionaries(st.integers(), st.integers(), max_size=3).map(Counter),
    ),
    max_leaves=12,
)


def bits(tensor):
    """Row-major bytes; torch copies few dtypes of few bits, but each can be seen as an integer of its width."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.dtype.itemsize, tensor.dtype)
    return tensor.view(width).contiguous().numpy().tobytes()


def same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert bits(a) == bits(b)
    elif isinstance(a, np.ndarray | np.generic):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert list(a) == list(b) and [type(k) for k in a] == [type(k) for k in b]
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple | deque):
        assert len(a) == len(b) and getattr(a, "maxlen", 0) == getattr(b, "maxlen", 0)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, float):
        assert a.hex() == b.hex()
    elif isinstance(a, complex):
        same([a.real, a.imag], [b.real, b.imag])
    else:
        assert a == b


def through_files(state, folder, inline=False):
    tree, named = encode(state, inline=inline)
    assert not (inline and named)
    path = folder / "t.safetensors"
    path.unlink(missing_ok=True)
    write_tensors(path, named)
    return decode(json.loads(json.dumps(tree, allow_nan=False)), read_tensors(path))


@settings(max_examples=300, deadline=None)
@given(state=states, inline=st.booleans())
def test_any_state_comes_back(tmp_path_factory, state, inline):
    folder = tmp_path_factory.getbasetemp()
    same(state, through_files(state, folder, inline))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_dtype(tmp_path, dtype):
    flat = torch.randint(0, 2, (6 * dtype.itemsize,), dtype=torch.uint8).view(dtype)
    square = flat.reshape(2, 3)
    state = {"flat": flat, "square": square, "turned": square.t(), "one": flat[0], "none": flat[:0]}
    same(state, through_files(state, tmp_path))


def test_conjugate_and_negative_views(tmp_path):
    z = torch.tensor([1 + 2j, 3 - 4j])
    back = through_files([z.conj(), z.conj().imag, z], tmp_path)
    assert torch.equal(back[0], z.conj().resolve_conj()) and torch.equal(back[1], torch.tensor([-2.0, 4.0]))
    assert torch.equal(back[2], z)


def test_shared_memory_is_stored_once_and_shared_again(tmp_path):
    weight = torch.randn(100)
    tree, named = encode({"a": weight, "b": weight, "part": weight[:50]})
    assert sorted(named) == ["a", "part"]
    back = decode(tree, named)
    assert back["a"] is back["b"]


def test_module_versions_come_back(tmp_path):
    state = torch.nn.BatchNorm1d(3).state_dict()
    back = through_files(state, tmp_path)
    assert back._metadata == state._metadata and type(back) is type(state)


def test_names_that_would_meet_are_kept_apart(tmp_path):
    state = {
        "a": {"b": torch.zeros(1)},
        "a.b": torch.ones(1),
        "": {"": torch.full((1,), 2.0)},
        "a.b~1": torch.full((1,), 3.0),
    }
    same(state, through_files(state, tmp_path))


def test_large_bytes_and_arrays_leave_the_json(tmp_path):
    state = {"bytes": bytes(10000), "array": np.ones(5000)}
    assert len(json.dumps(encode(state).tree)) < 300
    same(state, through_files(state, tmp_path))


class Own:
    pass


loop = []
loop.append(loop)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"a": [Own()]}, "a.0.*Own"),
        ({"f": print}, "state at f"),
        ({"d": defaultdict(int)}, "defaultdict"),
        (np.array([object()]), "object"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.empty(2, device="meta"), "meta"),
        (loop, "nested too deeply"),
    ],
    ids=("own", "function", "defaultdict", "object", "sparse", "meta", "loop"),
)
def test_what_is_not_data_is_named(value, names):
    with pytest.raises(CheckpointError, match=names):
        encode(value)


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "os.system", "items": ["true"]},
        {"$": ["tensor"]},
        {"$": "tensor", "name": "missing"},
        {"$": "tensor", "dtype": "load", "shape": [1], "data": "AA=="},
        {"$": "tensor", "dtype": "float32", "shape": [10**12], "data": "AAAAAA=="},
        {"$": "tensor", "dtype": "float32", "shape": [-1, -1], "data": "AAAAAA=="},
        {"$": "array", "dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="},
        {"$": "array", "dtype": "f4", "shape": [10**12], "data": "AAAAAA=="},
        {"$": "array", "dtype": "f4", "shape": [-4], "data": "AAAAAA=="},
        {"$": "int", "value": 3},
        {"$": "float", "value": "1e5"},
        {"$": "complex", "items": [1]},
        {"$": "set", "items": [[]]},
        {"$": "dict", "items": [[{}, 1]]},
        {"$": "deque", "items": [], "maxlen": -1},
        {"$": "bytes", "data": "not base64!"},
        {"$": "device", "name": "nowhere"},
        {"$": "ordered", "items": 3},
        {"$": "tuple"},
    ],
    ids=str,
)
def test_damaged_tree_is_refused(tree):
    with pytest.raises(CheckpointError, match="damaged"):
        decode(tree, {})
