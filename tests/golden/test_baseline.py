import json

import numpy as np
import pytest
from tests.support.models import mlp

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.golden.baseline import against_baseline
from cannc.golden.compare import compare
from cannc.golden.render_html import to_html
from cannc.golden.render_json import to_json

X = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}


def report_of(shift, name="b1"):
    model = mlp()
    bias = next(t for t in model.graph.initializer if t.name == name)
    bias.raw_data = (np.frombuffer(bias.raw_data, np.float32) + np.float32(shift)).tobytes()
    return compare(mlp(), model, inputs=X)


@pytest.fixture
def baseline(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(to_json(report_of(1)))
    return path


def test_what_failed_before_does_not_fail_again(baseline):
    report = against_baseline(report_of(1), baseline)
    assert report_of(1).verdict == "fail"
    assert report.verdict == "pass"
    assert report.regressions == ()


def test_a_larger_error_and_another_layer_fail(baseline):
    larger = against_baseline(report_of(2), baseline)
    assert larger.verdict == "fail"
    assert any(text.startswith("hb: isolated error") for text in larger.regressions)
    other = against_baseline(report_of(1, "b2"), baseline)
    assert other.verdict == "fail"
    assert [text.split(":")[0] for text in other.regressions if "isolated" in text] == ["y"]
    assert json.loads(to_json(other))["regressions"] == [*other.regressions]
    assert "worse than the baseline" in to_html(other)


def test_a_smaller_error_passes(baseline):
    assert against_baseline(report_of(0.5), baseline).verdict == "pass"


def test_a_row_that_is_not_compared_any_more_fails(baseline):
    data = json.loads(baseline.read_text())
    report = report_of(0)
    assert against_baseline(report, baseline).verdict == "pass"
    lost = compare(mlp(), mlp(), inputs=X)
    object.__setattr__(lost.layers[1], "kind", "undumped")
    object.__setattr__(lost.layers[1], "arriving", None)
    object.__setattr__(lost.layers[1], "added", None)
    assert against_baseline(lost, baseline).regressions == ("hb: was compared, now undumped",)
    data["layers"] = [row for row in data["layers"] if row["name"] != "hb"]
    baseline.write_text(json.dumps(data))
    found = against_baseline(report_of(1), baseline).regressions
    assert found == ("hb: fails and was not there",)


def test_what_is_no_report_is_refused(tmp_path):
    path = tmp_path / "old.json"
    with pytest.raises(UsageError, match="IO010"):
        against_baseline(report_of(0), path)
    for text in ("no json", "[]", "{}", '{"schema_version": 0, "layers": []}', '{"layers": [1]}'):
        path.write_text(text)
        with pytest.raises(ModelError, match="CMP020"):
            against_baseline(report_of(0), path)
