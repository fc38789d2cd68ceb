"""Models distilled from users' reports (kind ``quant``)."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.support.quant import constants, quantized, report_of
from tests.support.runner import run_plain

from cannc.compiler.core.errors import ModelError

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="users' cases are not on this machine")


def case(name):
    listed = json.loads((CASES / "cases.json").read_text())["cases"]
    return next(entry for entry in listed if entry["id"] == name)


def arrays(path):
    with np.load(CASES / path) as archive:
        return dict(archive)


@pytest.mark.parametrize("name", ["q-02", "q-04", "q-06", "q-08", "q-12"])
def test_close_to_the_original(name):
    entry = case(name)
    unit = quantized(CASES / entry["model"])
    expected = arrays(entry["outputs"])
    actual = run_plain(unit.model, arrays(entry["inputs"]))
    for key, golden in expected.items():
        error = np.linalg.norm(actual[key] - golden) / np.linalg.norm(golden)
        assert error <= entry["rel_l2"]


def test_zero_columns_stay_zero():
    entry = case("q-08")
    actual = run_plain(quantized(CASES / entry["model"]).model, arrays(entry["inputs"]))
    (product,) = actual.values()
    assert np.isfinite(product).all()
    assert (product[..., entry["checks"]["zero_columns"]] == 0).all()


def test_an_outlier_is_reported_and_not_hidden_by_the_mean():
    unit = quantized(CASES / case("q-10")["model"])
    (row,) = report_of(unit).rows
    assert row.worst_column == 3
    assert row.worst_error > 0.5
    assert any("column 3" in note for note in unit.log[-1].notes)


def test_only_weights_change():
    entry = case("q-12")
    before = {
        t.name: onnx.numpy_helper.to_array(t)
        for t in onnx.load(CASES / entry["model"]).graph.initializer
    }
    unit = quantized(CASES / entry["model"])
    after = constants(unit)
    for name in [*entry["checks"]["unchanged"], "table", "sh"]:
        assert after[name].dtype == before[name].dtype
        assert after[name].tobytes() == before[name].tobytes()
    assert "w" not in after
    assert [row.weight for row in report_of(unit).quantized] == ["w"]
    (table,) = [row for row in report_of(unit).skipped if row.weight == "table"]
    assert "embedding" in table.reason


def test_nan_weights_are_an_error():
    with pytest.raises(ModelError) as caught:
        quantized(CASES / case("q-14")["model"])
    assert caught.value.code == "QUANT010"
    assert "'w' holds 2 NaN or infinite values of 64" in caught.value.what


def test_calibration_batches_of_any_size_run():
    entry = case("q-16")
    unit = quantized(CASES / entry["model"])
    for path in [entry["inputs"], *entry["calib"]]:
        feeds = arrays(path)
        exact = run_plain(onnx.load(CASES / entry["model"]), feeds)
        for key, golden in exact.items():
            difference = run_plain(unit.model, feeds)[key] - golden
            assert np.linalg.norm(difference) <= 0.02 * np.linalg.norm(golden)
