"""Models of single operators of onnxruntime's domain, and what must hold once they are expanded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper
from tests.support.fusion import has_kernel
from tests.support.runner import PlainRunner, run_plain

from cannc.compiler.core.runner import Array
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, load
from cannc.op_support.checker import check
from cannc.passes.optimize import optimize
from cannc.passes.registry import Level


def one_node(
    op_type: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[bool],
    *,
    weights: Sequence[int] = (),
    domain: str = "com.microsoft",
    dims: Mapping[int, Sequence[str | int]] | None = None,
    model_opset: int = 18,
    dtypes: Sequence[int] = (),
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one node and its feeds.

    Args:
        op_type: Operator.
        inputs: Arrays, by position; None for an absent one.
        outputs: Which outputs there are.
        weights: Positions of inputs that are initializers.
        domain: Its domain.
        dims: Position -> declared dims of an input, where they are symbolic.
        model_opset: Of the default domain.
        dtypes: Of the outputs; those of the first input where it is empty.
        attributes: Of the node.
    """
    names = ["" if array is None else f"i{index}" for index, array in enumerate(inputs)]
    results = [f"o{index}" if there else "" for index, there in enumerate(outputs)]
    node = helper.make_node(op_type, names, results, name="it", domain=domain, **attributes)
    feeds = {f"i{i}": a for i, a in enumerate(inputs) if a is not None and i not in weights}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                (dims or {}).get(int(name[1:]), array.shape),
            )
            for name, array in feeds.items()
        ],
        [
            helper.make_tensor_value_info(
                name,
                dtypes[index] if dtypes else helper.np_dtype_to_tensor_dtype(inputs[0].dtype),
                None,
            )
            for index, name in enumerate(results)
            if name
        ],
        [onnx.numpy_helper.from_array(inputs[i], f"i{i}") for i in weights],
    )
    imports = [helper.make_opsetid("", model_opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds


def legal(model: onnx.ModelProto, level: Level = "O1") -> CompileUnit:
    """Return what `optimize` makes of a model; the target must take it."""
    unit = optimize(
        load(model),
        level=level,
        precision="keep",
        target=Target.parse(None),
        runner=PlainRunner(),
        may_use_kernel=has_kernel,
    )
    refusals = [text for stage in unit.log for text in stage.refusals]
    assert not [fate for fate in unit.fates() if fate.kind == "unknown"]
    report = check(unit, Target.parse(None))
    assert [f"{f.node} {f.op_type}: {f.why}" for f in report.refused] == [], refusals
    assert "com.microsoft" not in unit.model.opset_imports
    onnx.checker.check_model(ir.to_proto(unit.model), full_check=True)
    return unit


def assert_same(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    *,
    levels: Sequence[Level] = ("O0", "O2"),
    rtol: float = 1e-5,
    atol: float = 2e-6,
) -> CompileUnit:
    """Every level makes a legal model that computes the same; return the last one's."""
    expected = run_plain(model, feeds)
    for level in levels:
        unit = legal(model, level)
        actual = run_plain(unit.model, feeds)
        assert list(actual) == list(expected)
        for name, array in expected.items():
            assert actual[name].dtype == array.dtype, name
            np.testing.assert_allclose(
                actual[name], array, rtol=rtol, atol=atol, err_msg=f"{name} at {level}"
            )
    return unit


def refusals(model: onnx.ModelProto) -> list[str]:
    """Return what `optimize` at O0 says about places that it leaves alone."""
    unit = optimize(
        load(model),
        level="O0",
        precision="keep",
        target=Target.parse(None),
        runner=PlainRunner(),
        may_use_kernel=has_kernel,
    )
    return [text for stage in unit.log for text in stage.refusals]


def op_types(unit: CompileUnit) -> list[str]:
    """Return the operators of the main graph, Constant nodes left out."""
    return [node.op_type for node in unit.model.graph if node.op_type != "Constant"]
