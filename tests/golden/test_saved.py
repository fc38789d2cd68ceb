import json
from pathlib import Path

import numpy as np
import pytest

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.golden.compare import compare

CASES = Path(__file__).parents[2].parent / "shared" / "cases"


def cases():
    index = CASES / "cases.json"
    if not index.is_file():
        return []
    listed = json.loads(index.read_text())["cases"]
    return [case for case in listed if case["expect"] in ("compare-pass", "compare-fail")]


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases from users' reports are not here")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_cases_from_reports(case):
    report = compare(CASES / case["golden"], CASES / case["actual"])
    assert report.verdict == case["expect"].removeprefix("compare-")
    failed = [layer.name for layer in report.layers if layer.passed is False]
    assert sorted(failed) == sorted(case["fail"])


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_npz_against_folder_matches_exact_names(tmp_path):
    data = {"a/b": np.float32([1, 2]), "a_b": np.float32([3, 4])}
    left = save(tmp_path / "golden.npz", **data)
    folder = tmp_path / "actual"
    (folder / "a").mkdir(parents=True)
    np.save(folder / "a" / "b.npy", data["a/b"])
    np.save(folder / "a_b.npy", data["a_b"])
    report = compare(left, folder)
    assert report.verdict == "pass"
    assert [layer.name for layer in report.outputs] == ["a/b", "a_b"]
    assert all(layer.isolated is None and layer.accumulated for layer in report.layers)


def test_missing_extra_and_misshapen(tmp_path):
    golden = save(tmp_path / "g.npz", a=np.zeros(2), b=np.zeros((2, 1)), c=np.zeros(1))
    actual = save(tmp_path / "a.npz", b=np.zeros((1, 2)), c=np.zeros(1), d=np.zeros(1))
    report = compare(golden, actual)
    rows = {layer.name: layer for layer in report.layers}
    assert report.verdict == "fail"
    assert (rows["a"].passed, rows["b"].passed, rows["c"].passed) == (False, False, True)
    assert rows["a"].note == "missing in the candidate"
    assert rows["b"].note == "shape (2, 1) became (1, 2)"
    assert "d" in report.warnings[0]


def test_half_precision_on_either_side_sets_the_tolerance(tmp_path):
    values = np.float32([1.0, 2.0, 3.0])
    golden = save(tmp_path / "g.npz", a=values)
    assert (
        compare(golden, save(tmp_path / "h.npz", a=(values * 1.005).astype("f2"))).verdict == "pass"
    )
    assert compare(golden, save(tmp_path / "f.npz", a=values * 1.005)).verdict == "fail"


def test_what_is_not_arrays_is_refused(tmp_path):
    good = save(tmp_path / "g.npz", a=np.zeros(1))
    with pytest.raises(UsageError, match="IO010"):
        compare(good, tmp_path / "nothing.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ModelError, match="CMP002"):
        compare(good, tmp_path / "text.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="CMP002"):
        compare(good, tmp_path / "empty")
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(ModelError, match="CMP002"):
        compare(good, pickled)


def test_arrays_and_a_model_do_not_mix(tmp_path):
    from tests.support.models import mlp

    with pytest.raises(UsageError, match="CMP004"):
        compare(save(tmp_path / "g.npz", a=np.zeros(1)), mlp())
