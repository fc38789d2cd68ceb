"""kernel_gap: may a fused operator be emitted for a chip and a dtype (D10)?"""

from __future__ import annotations

import onnx_ir as ir
import pytest

from cannc.compiler.core.target import Target
from cannc.op_support.kernels import hand_over_name, kernel_gap

F16, F32, BF16, I8 = (
    ir.DataType.FLOAT16,
    ir.DataType.FLOAT,
    ir.DataType.BFLOAT16,
    ir.DataType.INT8,
)
CHIPS = {
    "910b": "Ascend910B4",
    "910_93": "Ascend910_9392",
    "310p": "Ascend310P3",
    "910": "Ascend910A",
    "310b": "Ascend310B1",
}

# The SoC columns of npu-ops.md section 3: which marks admit the operator.
MARKS = {
    "NPURmsNorm": {"910b": True, "910_93": True, "310p": True, "910": True, "310b": False},
    "NPUAddRmsNorm": {"910b": True, "910_93": True, "310p": True, "910": False, "310b": False},
    "NPUFusedAddRmsNorm": {"910b": False, "910_93": False, "310p": False, "910": False},
    "NPURotaryMul": {"910b": True, "910_93": True, "310p": False, "910": False, "310b": False},
    "NPUFastGelu": {"910b": True, "910_93": True, "310p": False, "910": False, "310b": False},
    "NPUGeluV2": {"910b": True, "910_93": True, "310p": False, "910": False, "310b": False},
    "NPUGroupNormSilu": {"910b": True, "910_93": True, "310p": True, "910": False, "310b": False},
    "WeightQuantBatchMatmulV2": {"910b": True, "910_93": True, "310p": False, "910": False},
    "NPUAntiQuant": {"910b": True, "910_93": True, "310p": False, "910": False, "310b": False},
}


@pytest.mark.parametrize(
    ("op_type", "chip", "admitted"),
    [(op, chip, ok) for op, row in MARKS.items() for chip, ok in row.items()],
)
def test_marks_of_the_table(op_type: str, chip: str, admitted: bool) -> None:
    gap = kernel_gap(op_type, F16, Target(CHIPS[chip]))
    assert (gap is None) is admitted, gap


@pytest.mark.parametrize(
    ("op_type", "dtype", "chip", "admitted"),
    [
        ("NPURmsNorm", BF16, "910b", True),
        ("NPURmsNorm", BF16, "310p", False),
        ("NPURmsNorm", I8, "910b", False),
        ("NPURmsNorm", ir.DataType.DOUBLE, "910b", False),
        ("NPURmsNorm", None, "310p", True),
        ("WeightQuantBatchMatmulV2", F16, "910b", True),
        ("WeightQuantBatchMatmulV2", BF16, "910_93", True),
        ("WeightQuantBatchMatmulV2", F32, "910b", False),
        ("NPUAntiQuant", I8, "910b", True),
        ("NPUAntiQuant", F16, "910b", True),
        ("NPUAntiQuant", F32, "910b", False),
        ("AscendQuant", F16, "910b", True),
    ],
)
def test_dtypes(op_type: str, dtype: ir.DataType | None, chip: str, admitted: bool) -> None:
    gap = kernel_gap(op_type, dtype, Target(CHIPS[chip]))
    assert (gap is None) is admitted, gap


def test_an_unknown_kernel_is_said_to_be_unknown_not_absent() -> None:
    gap = kernel_gap("NPURotaryMul", F16, Target("Ascend310P3"))
    assert gap is not None
    assert "nothing is known" in gap


def test_allow_admits_what_is_not_proven_but_not_what_is_ruled_out() -> None:
    p3, b1 = Target("Ascend310P3"), Target("Ascend310B1")
    assert kernel_gap("NPURotaryMul", F16, p3, allow=("unproven",)) is None
    assert kernel_gap("NPURmsNorm", F16, b1, allow=("unproven", "experimental")) is not None
    b4 = Target()
    assert "experimental" in str(kernel_gap("NPUFusedAddRmsNorm", F16, b4))
    assert kernel_gap("NPUFusedAddRmsNorm", F16, b4, allow=("unproven",)) is not None
    assert kernel_gap("NPUFusedAddRmsNorm", F16, b4, allow=("experimental",)) is None


def test_names_without_a_plugin_are_refused() -> None:
    assert "no plugin" in str(kernel_gap("NPUGeGlu", F16, Target()))


def test_old_releases_take_only_operators_with_a_default_domain_name() -> None:
    old = Target("Ascend910B4", "8.0.0")
    assert hand_over_name("NPURmsNorm") == "NPURmsNorm"
    assert hand_over_name("WeightQuantBatchMatmulV2") == "NPUWeightQuantBatchMatmulV2"
    assert hand_over_name("NPUGeluV2") is None
    assert kernel_gap("NPURmsNorm", F16, old) is None
    assert "one operator domain" in str(kernel_gap("NPUGeluV2", F16, old))
    assert kernel_gap("NPUGeluV2", F16, Target("Ascend910B4", "9.0.0")) is None
