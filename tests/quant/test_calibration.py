"""Calibration data of every kind: what is read, in which order, and what is refused."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.support.models import parse

from cannc.compiler.core.errors import CanncError
from cannc.compiler.core.unit import load
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.ports import input_ports
from cannc.quant.calibration.load import load_calibration

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
RNG = np.random.default_rng(5)

ONE = "m (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"
FIXED = "m (float[4, 3] x) => (float[4, 3] y) { y = Relu(x) }"
TWO = (
    "m (float[N, 3] x, float[N, 2] t) => (float[N, 3] y, float[N, 2] z) { y = Relu(x) z = Relu(t) }"
)
IDS = """m (int64[{shape}] input_ids{more}) => (float[{shape}, 4] y) {{
    y = Gather(table, input_ids)
}}"""


def calibration(data, text=ONE, weights=None, **options):
    model = load(parse(text, **(weights or {}))).model
    prepare = partial(prepare_feeds, input_ports(model))
    return load_calibration(data, model, prepare, **options)


def refused(code, data, text=ONE, **options):
    with pytest.raises(CanncError) as caught:
        calibration(data, text, **options)
    assert caught.value.code == code
    return str(caught.value)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def test_rows_of_an_archive_in_batches_the_last_one_smaller(tmp_path):
    x = normal(19, 3)
    np.savez(tmp_path / "c.npz", x=x)
    found = [feeds["x"] for feeds in calibration(tmp_path / "c.npz")]
    assert [len(batch) for batch in found] == [8, 8, 3]
    np.testing.assert_array_equal(np.concatenate(found), x)
    assert sum(len(f["x"]) for f in calibration(tmp_path / "c.npz", num_samples=10)) == 10


def test_a_fixed_batch_is_filled_up_with_its_own_rows(tmp_path):
    x = normal(6, 3)
    np.savez(tmp_path / "c.npz", x=x)
    first, last = (feeds["x"] for feeds in calibration(tmp_path / "c.npz", FIXED))
    np.testing.assert_array_equal(first, x[:4])
    np.testing.assert_array_equal(last, x[[4, 5, 4, 5]])


@pytest.mark.skipif(not CASES.is_dir(), reason="users' cases are not on this machine")
def test_files_with_batches_of_different_sizes_are_all_used():
    model = load(CASES / "q-16" / "model.onnx").model
    prepare = partial(prepare_feeds, input_ports(model))
    found = load_calibration(CASES / "q-16" / "calib", model, prepare)
    assert [len(feeds["x"]) for feeds in found] == [2, 2, 1]
    assert found.notes == ("calibration: only 3 samples; statistics are better with 32 or more",)


def test_natural_order_of_files(tmp_path):
    for index in (10, 9, 2, 1):
        np.save(tmp_path / f"x{index}.npy", np.full((1, 3), index, np.float32))
    order = [feeds["x"][0, 0] for feeds in calibration(tmp_path)]
    assert order == [1, 2, 9, 10]


def test_plain_binary_files_take_dtype_and_shape_from_the_model(tmp_path):
    x = normal(5, 3)
    x.tofile(tmp_path / "a.bin")
    (feeds,) = calibration(tmp_path)
    np.testing.assert_array_equal(feeds["x"], x)
    (tmp_path / "b.bin").write_bytes(b"1234567")
    assert "b.bin" in refused("CAL009", tmp_path)


def test_one_folder_per_input(tmp_path):
    for name, width in (("x", 3), ("t", 2)):
        (tmp_path / name).mkdir()
        for index in range(3):
            np.save(tmp_path / name / f"{index}.npy", np.full((1, width), index, np.float32))
    found = list(calibration(tmp_path, TWO))
    assert [(f["x"][0, 0], f["t"][0, 0]) for f in found] == [(0, 0), (1, 1), (2, 2)]
    (tmp_path / "t" / "2.npy").unlink()
    assert "x: 3, t: 2" in refused("CAL003", tmp_path, TWO)


@pytest.mark.parametrize("wrap", [lambda a: {"x": a}, lambda a: a, lambda a: (a,)])
def test_iterables_are_read_up_to_the_limit(wrap):
    endless = (wrap(normal(2, 3)) for _ in iter(int, 1))
    assert len(calibration(endless, num_samples=40)) == 40


def test_samples_can_be_iterated_twice():
    found = calibration([normal(2, 3) for _ in range(3)])
    first, second = list(found), list(found)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one["x"], other["x"])


def test_equal_and_constant_samples_are_noted():
    notes = calibration([np.ones((2, 3), np.float32)] * 3 + [normal(2, 3)]).notes
    assert any("2 of 4 samples repeat" in note for note in notes)
    assert any("input x holds one and the same number" in note for note in notes)
    assert calibration([normal(2, 3) for _ in range(32)]).notes == ()


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        ([{"x": np.zeros((2, 4), np.float32)}], "INP004", "sample 0"),
        ([{"x": np.zeros((1, 3), np.float32)}, {"z": np.zeros(3)}], "INP002", "sample 1"),
        ([{}], "INP001", "'x' is missing"),
        ([np.array([[1, np.nan, 2]], np.float32)], "INP006", "NaN at index [0, 1]"),
        ([], "CAL002", "no calibration samples"),
        ([(1, 2)], "CAL003", "tuple"),
        ("nowhere", "CAL001", "no such"),
    ],
)
def test_bad_data(data, code, text):
    assert text in refused(code, data)


def test_empty_folders_and_unknown_formats(tmp_path):
    assert "no .npz" in refused("CAL002", tmp_path)
    (tmp_path / "x.csv").write_text("1,2")
    refused("CAL001", tmp_path / "x.csv")


@pytest.fixture
def tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3, "far": 4}
    model = tokenizers.models.WordLevel(words, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


TABLE = {"table": np.zeros((5, 4), np.float32)}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", "the cat\n\nthe far cat sat\n"),
        ("p.jsonl", '{"text": "the cat"}\n"the far cat sat"\n'),
        ("p.json", json.dumps([{"prompt": "the cat"}, "the far cat sat"])),
    ],
)
def test_prompts(tokenizer, name, content):
    (tokenizer / name).write_text(content)
    text = IDS.format(shape="B, S", more="")
    found = calibration(tokenizer / name, text, TABLE, tokenizer=tokenizer)
    assert [feeds["input_ids"].tolist() for feeds in found] == [[[1, 2]], [[1, 4, 2, 3]]]


def test_prompts_of_a_fixed_length_are_filled_or_joined(tokenizer):
    (tokenizer / "p.txt").write_text("the cat\nthe far cat sat\nsat sat")
    masked = IDS.format(shape="1, 3", more=", int64[1, 3] attention_mask")
    found = list(calibration(tokenizer / "p.txt", masked, TABLE, tokenizer=tokenizer))
    assert found[0]["input_ids"].tolist() == [[1, 2, 0]]
    assert found[0]["attention_mask"].tolist() == [[1, 1, 0]]
    assert found[1]["input_ids"].tolist() == [[1, 4, 2]]
    plain = IDS.format(shape="1, 3", more="")
    found = list(calibration(tokenizer / "p.txt", plain, TABLE, tokenizer=tokenizer))
    assert [f["input_ids"].tolist() for f in found] == [[[1, 2, 1]], [[4, 2, 3]]]


def test_a_tokenizer_of_another_model_is_refused(tokenizer):
    (tokenizer / "p.txt").write_text("the cat\nfar")
    small = {"table": np.zeros((4, 4), np.float32)}
    text = IDS.format(shape="B, S", more="")
    message = refused("CAL007", tokenizer / "p.txt", text, weights=small, tokenizer=tokenizer)
    assert "holds 4, the model's table has 4 rows" in message
    assert "entry 2" in message


def test_prompts_that_cannot_be_used(tokenizer):
    text = IDS.format(shape="B, S", more="")
    (tokenizer / "p.jsonl").write_text('{"body": "x"}\n')
    refused("CAL004", tokenizer / "p.jsonl", text, weights=TABLE)
    refused("CAL005", tokenizer / "p.jsonl", text, weights=TABLE, tokenizer=tokenizer)
    refused("CAL006", tokenizer / "p.jsonl", tokenizer=tokenizer)


IMAGE = "m (float[{shape}] x) => (float[Q] y) {{ y = Relu(x) }}"


def test_pictures_are_scaled_cut_and_normalized(tmp_path):
    image = pytest.importorskip("PIL.Image")
    left = np.zeros((8, 16, 3), np.uint8)
    left[:, 4:12] = (255, 0, 51)
    image.fromarray(left).save(tmp_path / "a.png")
    spec = {"shorter": 8, "mean": [0, 0, 0], "std": [1, 1, 0.5]}
    (feeds,) = calibration(tmp_path, IMAGE.format(shape="1, 3, 8, 8"), preprocessing=spec)
    np.testing.assert_allclose(feeds["x"][0, :, 4, 4], [1, 0, 0.4], atol=1e-6)
    np.testing.assert_allclose(feeds["x"][0, 0], 1)
    spec |= {"channels": "BGR", "layout": "NHWC", "resize": "exact"}
    (feeds,) = calibration(tmp_path, IMAGE.format(shape="1, 8, 8, 3"), preprocessing=spec)
    assert feeds["x"].shape == (1, 8, 8, 3)
    assert feeds["x"][0, 4, 4, 0] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("spec", "text"),
    [({"sise": [8, 8]}, "size"), ({"layout": "NCWH"}, "NCHW"), ({"mean": [0, 0]}, "1 or 3")],
)
def test_wrong_preprocessing(tmp_path, spec, text):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    shape = IMAGE.format(shape="1, 3, 8, 8")
    assert text in refused("CAL008", tmp_path, shape, preprocessing=spec)


def test_damaged_pictures(tmp_path):
    pytest.importorskip("PIL.Image")
    (tmp_path / "a.png").write_bytes(b"no picture")
    refused("CAL005", tmp_path, IMAGE.format(shape="1, 3, 8, 8"))
