"""The package data: valid, stamped, diff-friendly, and what the facts say."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from pydantic import ValidationError

from cannc.op_support.schema import SCHEMA_VERSION, Operator
from cannc.op_support.table import fused_operators, ge_kernels, operators, parser_facts

FACTS = Path(__file__).parents[2].parent / "shared" / "facts"
DATA = resources.files("cannc.op_support.data")
NAMES = ("operators.json", "fused.json", "kernels.json")


def test_every_row_is_valid_and_the_tables_are_stamped() -> None:
    for table in (operators(), fused_operators(), ge_kernels()):
        assert sum(1 for _ in table.items()) == len(table) > 100
        assert table.meta.schema_version == SCHEMA_VERSION
        assert set(table.meta.facts_sha256) >= {"onnx_ops.json", "npu_ops.json", "ge_ops.json"}
        assert table.meta.snapshots["ge"]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_small_sorted_and_one_row_a_line(name: str) -> None:
    text = (DATA / name).read_text()
    assert len(text) < 1_000_000
    rows = list(json.loads(text)["rows"])
    assert rows == sorted(rows)
    assert sum(line.startswith(f'"{key}": ') for key in rows[:5] for line in text.splitlines()) == 5


def test_a_row_with_an_unknown_field_or_status_is_refused() -> None:
    with pytest.raises(ValidationError):
        Operator.model_validate({"status": "open", "opset": [8]})
    with pytest.raises(ValidationError):
        Operator.model_validate({"status": "perhaps"})


@pytest.mark.parametrize(
    ("key", "opset", "expected"),
    [
        ("ai.onnx::Add", 8, True),
        ("ai.onnx::Add", 18, True),
        ("ai.onnx::Add", 7, False),
        ("ai.onnx::Add", 19, False),
        ("ai.onnx::ReduceL2", 17, True),
        ("ai.onnx::ReduceL2", 18, False),
        ("ai.onnx::LayerNormalization", 16, False),
        ("ai.onnx::MaxUnpool", 10, False),
        ("ai.onnx::Constant", 27, True),
        ("ai.onnx::Loop", 18, False),
        ("npu::NPURmsNorm", 1, True),
        ("npu::NPURmsNorm", 2, False),
    ],
)
def test_registration_is_per_exact_opset(key: str, opset: int, expected: bool) -> None:
    row = operators().get(key)
    assert row is not None
    assert row.registered_at(opset) is expected


def test_value_inputs_are_positions_of_the_onnx_node() -> None:
    positions = {"Slice": (1, 2, 3, 4), "Resize": (2, 3), "ReduceMax": (1,), "Range": (0, 1, 2)}
    for op_type, expected in positions.items():
        row = operators().get(f"ai.onnx::{op_type}")
        assert row is not None
        assert row.value_inputs == expected


def test_float8_is_mapped_but_not_as_a_constant() -> None:
    facts = parser_facts()
    assert 17 in facts.mapped_dtypes
    assert 17 not in facts.constant_dtypes
    assert 21 not in facts.mapped_dtypes


def test_a_missing_key_is_none() -> None:
    assert operators().get("ai.onnx::Nonsense") is None


def test_the_build_script_is_not_part_of_the_running_package() -> None:
    code = (
        "import sys, cannc.op_support.checker, cannc.op_support.kernels, cannc.op_support.sarif\n"
        "print([m for m in sys.modules if 'op_support.build' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not FACTS.is_dir(), reason="the fact sheets are not here")
def test_the_data_is_what_the_script_makes_of_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cannc.op_support.build import build_tables

    monkeypatch.setattr(build_tables, "DATA", tmp_path)
    assert build_tables.main([str(FACTS)]) == 0
    for name in NAMES:
        assert (tmp_path / name).read_text() == (DATA / name).read_text()


def test_the_build_script_explains_itself_without_a_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from cannc.op_support.build import build_tables

    assert build_tables.main([]) == 2
    assert "FACTS" in capsys.readouterr().out
