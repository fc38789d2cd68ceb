import csv
import io
import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.support.models import mlp

from cannc.golden.compare import compare
from cannc.golden.render_csv import COLUMNS, to_csv
from cannc.golden.render_html import to_html
from cannc.golden.render_json import SCHEMA_VERSION, to_json
from cannc.golden.render_junit import to_junit

X = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}


@pytest.fixture(scope="module")
def report():
    model = mlp()
    bias = next(t for t in model.graph.initializer if t.name == "b1")
    bias.raw_data = np.full(16, np.inf, np.float32).tobytes()
    return compare(mlp(), model, inputs=X)


def no_constants(name):
    message = f"{name} is not JSON"
    raise AssertionError(message)


def test_json_is_strict_sorted_and_complete(report):
    text = to_json(report)
    data = json.loads(text, parse_constant=no_constants)
    assert text == json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert data["schema_version"] == SCHEMA_VERSION
    assert data["verdict"] == "fail"
    assert data["outputs"] == ["y"]
    assert data["first_divergence"] == "hb"
    assert data["culprits"][0] == {
        "name": "hb",
        "node": "Add_1",
        "candidate_node": "Add_1",
        "severity": "inf",
    }
    row = data["layers"][1]
    assert row["isolated"]["candidate"] == {"nan": 0, "inf": 48, "first": [0, 0]}
    assert row["isolated"]["grade"] == "float32"
    assert data["layers"][0]["isolated"]["snr_db"] == "inf"
    assert data["counts"] == {"rows": 5, "compared": 5, "failed": 4}


def test_json_is_the_same_for_the_same_comparison(report):
    model = mlp()
    bias = next(t for t in model.graph.initializer if t.name == "b1")
    bias.raw_data = np.full(16, np.inf, np.float32).tobytes()
    assert to_json(compare(mlp(), model, inputs=X)) == to_json(report)


def test_csv_has_one_row_per_value(report):
    rows = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert tuple(rows[0]) == COLUMNS
    assert [row["name"] for row in rows] == ["h", "hb", "a", "o", "y"]
    assert [row["passed"] for row in rows] == ["pass", "fail", "fail", "fail", "fail"]
    assert rows[1]["isolated_inf_candidate"] == "48"
    assert float(rows[0]["cosine"]) == 1.0
    assert float(rows[0]["snr_db"]) == math.inf


def test_junit_counts_failures(report):
    root = ElementTree.fromstring(to_junit(report))  # our own output
    suites = {suite.get("name"): suite for suite in root}
    assert suites["outputs"].get("failures") == "1"
    assert suites["layers"].get("tests") == "5"
    failure = suites["layers"].find("testcase[@name='hb']/failure")
    assert failure is not None
    assert "NaN or Inf" in failure.get("message", "")


def test_html_stands_alone(report):
    page = to_html(report)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "src=" not in page
    assert "<link" not in page
    assert "default-src 'none'" in page
    assert page.count("<script") == page.count("</script>") == 2
    data = page.split('type="application/json">')[1].split("</script>")[0]
    payload = json.loads(data, parse_constant=no_constants)
    assert [row[0] for row in payload["rows"]] == ["h", "hb", "a", "o", "y"]
    columns = payload["error_columns"]
    assert len(payload["rows"][0][-1]) == len(columns)
    assert payload["rows"][1][-1][columns.index("candidate_inf")] == 48
