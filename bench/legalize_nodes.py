"""How many refused ONNX backend node tests the cures bring to the target.

Usage: legalize_nodes.py [--out results/legalize.md] [--ids FILE.json] [--only NAME]...

A test is refused when `check` refuses a node of it, at the test's own opset or brought to 18, for
another reason than the opset alone.
Shape, axes and other inputs that decide shapes are taken as constants, as a deployed model has
them. Cured means: after optimize at O1 the check finds nothing refused or silently wrong, and the
result equals the test's expected outputs.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.reference
import onnx_ir as ir
import onnxruntime as ort

from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, load
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.op_support.checker import check
from cannc.op_support.kernels import kernel_gap
from cannc.op_support.report import SupportReport
from cannc.op_support.table import operators
from cannc.passes.manager import run_passes
from cannc.passes.optimize import optimize

TARGET = Target("Ascend910B4")
SHAPE_INPUTS = frozenset({
    "shape", "axes", "axis", "split", "repeats", "pads", "starts", "ends", "steps", "k",
    "sizes", "scales", "roi", "depth", "target_shape", "output_shape", "image_shape", "size",
    "block_shape", "min", "max", "num_outputs", "M", "cond", "condition", "limit", "delta",
    "start", "trip_count", "dft_length", "signal_ndim", "frame_step", "frame_length",
    "position", "max_output_boxes_per_class", "iou_threshold", "score_threshold",
    "num_mel_bins", "sample_rate", "lower_edge_hertz", "upper_edge_hertz",
})  # fmt: skip
"""Names of formal inputs whose numbers a deployed model knows."""

LISTED = frozenset({
    "Gelu", "GroupNormalization", "LayerNormalization", "RMSNormalization", "RotaryEmbedding",
    "Attention", "Swish", "HardSwish", "CastLike", "ReduceSum", "ReduceMean", "Split",
    "Reshape", "Pad", "Resize", "QuantizeLinear", "DequantizeLinear", "QLinearConv",
    "QLinearMatMul", "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear", "Loop", "Scan",
    "RNN", "Optional", "OptionalGetElement", "OptionalHasElement", "Trilu", "Einsum", "NonZero",
    "Where", "Unique", "Range", "ConstantOfShape", "If", "Shape", "GRU", "LSTM", "GridSample",
    "Transpose", "Slice", "Concat", "ScatterND", "Expand", "Tile", "Mod", "Clip", "Dropout",
    "BatchNormalization", "Softmax", "AveragePool",
})  # fmt: skip
"""Operators that the project promises to rewrite."""


PROMISED = "refused; all refused nodes have an ONNX body or are listed"
OTHER = "refused; some refused node is neither"
WRONG = "silently wrong, nothing refused"
GROUPS = (PROMISED, OTHER, WRONG)


@dataclass(frozen=True)
class Verdict:
    """What became of one test.

    Attributes:
        name: The test.
        refused: Operators refused before, those that only had the wrong opset left out.
        group: One of `GROUPS`.
        outcome: "cured", or why not.
    """

    name: str
    refused: tuple[str, ...]
    group: str
    outcome: str


def main() -> int:
    """Judge all tests, write the table; return 1 when less than 60 % are cured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ids", type=Path, help="write what became of every test, as JSON")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    verdicts = [v for case in cases(asked.only) if (v := judge(case)) is not None]
    text = "\n".join(_table(verdicts)) + "\n"
    if asked.out is None:
        sys.stdout.write(text)
    else:
        asked.out.write_text(text, encoding="utf-8")
    if asked.ids is not None:
        asked.ids.write_text(_as_json(verdicts), encoding="utf-8")
    promised = [v for v in verdicts if v.group == PROMISED]
    return int(sum(v.outcome == "cured" for v in promised) < 0.6 * len(promised))


def cases(only: Iterable[str] = ()) -> Iterator[Any]:
    """Yield the node tests of the installed onnx; `only` names some of them."""
    from onnx.backend.test.case.node import collect_testcases

    wanted = set(only)
    for case in collect_testcases(None):
        if not wanted or case.name in wanted:
            yield case


def judge(case: Any) -> Verdict | None:
    """Return what became of a test; None when it was supported to begin with."""
    model, feeds = _freeze(case)
    unit = load(model)
    later = check(_at_18(unit), TARGET)
    found, group = _refused(check(unit, TARGET)) or _refused(later), OTHER
    if found and all(op in LISTED or has_body(op) for op in found):
        group = PROMISED
    elif not found:
        found, group = tuple(sorted({finding.op_type for finding in later.wrong})), WRONG
    return Verdict(case.name, found, group, _outcome(case, unit, feeds)) if found else None


def _at_18(unit: CompileUnit) -> CompileUnit:
    """Return the model at opset 18: another opset may hide what else is refused."""
    result = unit.copy()
    infer_shapes(result.model)
    run_passes(result, ["opset-to-18"], runner=HostRunner(), may_use_kernel=_kernels)
    return result


def _kernels(op_type: str, dtype: ir.DataType | None) -> str | None:
    return kernel_gap(op_type, dtype, TARGET)


def _refused(report: SupportReport) -> tuple[str, ...]:
    found = set()
    for finding in report.refused:
        entry = operators().get(f"ai.onnx::{finding.op_type}")
        only_opset = finding.code == "OP002" and entry is not None and 18 in entry.opsets
        if not only_opset:
            found.add(finding.op_type or "(interface)")
    return tuple(sorted(found))


def has_body(op_type: str) -> bool:
    """Does ONNX define the operator by others, in any version?"""
    schemas: list[Any] = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == op_type]
    return any(s.has_function or s.has_context_dependent_function for s in schemas)


def _freeze(case: Any) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return the model with its shape inputs as constants, and the inputs that are left."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    arrays = dict(zip([v.name for v in model.graph.input], case.data_sets[0][0], strict=False))
    fixed = set()
    for node in model.graph.node:
        try:
            schema = onnx.defs.get_schema(node.op_type, _opset(model, node.domain), node.domain)
        except onnx.defs.SchemaError:
            continue
        for position, name in enumerate(node.input):
            formal = schema.inputs[min(position, len(schema.inputs) - 1)].name
            if formal in SHAPE_INPUTS and isinstance(arrays.get(name), np.ndarray):
                fixed.add(name)
    fixed |= {name for name in arrays if name in SHAPE_INPUTS}  # of the expanded tests
    kept = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    if fixed and not kept:  # a model needs an input, read or not
        model.graph.input.append(onnx.helper.make_tensor_value_info("unread", 1, [1]))
        arrays["unread"] = np.zeros(1, np.float32)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(arrays.pop(name), name) for name in sorted(fixed)
    )
    return model, arrays


def _opset(model: onnx.ModelProto, domain: str) -> int:
    return next(entry.version for entry in model.opset_import if entry.domain == domain)


def _outcome(case: Any, unit: CompileUnit, feeds: Mapping[str, Any]) -> str:
    try:
        result = optimize(
            unit,
            level="O1",
            precision="keep",
            target=TARGET,
            runner=HostRunner(),
            may_use_kernel=_kernels,
        )
    except Exception as error:
        return f"optimize fails: {type(error).__name__}: {str(error).splitlines()[0][:80]}"
    report = check(result, TARGET)
    left = [*report.refused, *report.wrong]
    if left:
        return f"{left[0].op_type or 'interface'} {left[0].code}: {left[0].why[:70]}"
    try:
        actual = _run(ir.to_proto(result.model), feeds)
    except Exception as error:
        return f"cannot run: {str(error).splitlines()[0][:80]}"
    return "cured" if is_equal(case, actual) else "numbers differ"


def _run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    named = {value.name: feeds[value.name] for value in model.graph.input}
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
        return list(session.run(None, named))
    except Exception:  # dtypes that onnxruntime lacks
        return list(onnx.reference.ReferenceEvaluator(model).run(None, named))


def is_equal(case: Any, actual: list[Any]) -> bool:
    """Are these the expected outputs, within the test's tolerance?"""
    return all(
        _close(have, want, case.rtol, max(case.atol, 1e-6))
        for have, want in zip(actual, case.data_sets[0][1], strict=True)
    )


def _close(have: Any, want: Any, rtol: float, atol: float) -> bool:
    if isinstance(want, onnx.TensorProto):  # the suite's form of some expected outputs
        want = onnx.numpy_helper.to_array(want)
    if isinstance(want, list):
        return len(have) == len(want) and all(
            _close(h, w, rtol, atol) for h, w in zip(have, want, strict=True)
        )
    if have is None or want is None:
        return have is want
    left: Array = np.asarray(have)
    right: Array = np.asarray(want)
    if left.shape != right.shape:
        return False
    if left.dtype.kind in "OSU":
        return left.tolist() == right.tolist()
    wide = [np.asarray(a, np.float64) for a in (left, right)]
    return bool(np.allclose(*wide, rtol=rtol, atol=atol, equal_nan=True))


def _table(verdicts: list[Verdict]) -> Iterator[str]:
    groups = {title: [v for v in verdicts if v.group == title] for title in GROUPS}
    yield f"# Cures of refused node tests (onnx {onnx.__version__}, {TARGET.soc}, O1)\n"
    yield "| tests | count | cured | share |"
    yield "|---|---|---|---|"
    for title, group in groups.items():
        cured = sum(v.outcome == "cured" for v in group)
        yield f"| {title} | {len(group)} | {cured} | {100 * cured / max(len(group), 1):.1f} % |"
    for title, group in groups.items():
        yield f"\n## Not cured: {title}\n\n| reason | tests |\n|---|---|"
        counts = Counter(v.outcome for v in group if v.outcome != "cured")
        yield from (f"| {reason} | {count} |" for reason, count in sorted(counts.items()))


def _as_json(verdicts: list[Verdict]) -> str:
    """Return the verdicts by name, one test per line."""
    head = json.dumps({"onnx": onnx.__version__, "soc": TARGET.soc, "level": "O1"})[:-1]
    rows = (
        f"{json.dumps(v.name)}: {json.dumps([v.group, list(v.refused), v.outcome])}"
        for v in verdicts
    )
    return f'{head},\n"tests": {{\n' + ",\n".join(rows) + "\n}}\n"


if __name__ == "__main__":
    sys.exit(main())
