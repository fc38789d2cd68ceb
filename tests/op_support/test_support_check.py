"""The check as a whole: every graph, all findings, nothing changed, the report's contract."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from tests.support.models import mlp, parse
from tests.support.ops import B4, check_node, codes, node_model

from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.op_support.checker import check
from cannc.op_support.report import KINDS, Severity
from cannc.op_support.text import known_operators, rows, summary

OLD = Target("Ascend910B4", "8.0.0")


def _branch(name: str, op_type: str, **attributes: object) -> onnx.GraphProto:
    return h.make_graph(
        [h.make_node(op_type, ["x"], [name], name=f"in_{name}", **attributes)],
        name,
        [],
        [h.make_tensor_value_info(name, T.FLOAT, None)],
    )


def _if_model(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    node = h.make_node("If", ["c"], ["y"], name="choose", then_branch=then, else_branch=other)
    graph = h.make_graph(
        [node],
        "g",
        [
            h.make_tensor_value_info("c", T.BOOL, []),
            h.make_tensor_value_info("x", T.FLOAT, [2, 3]),
        ],
        [h.make_tensor_value_info("y", T.FLOAT, None)],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)


def test_a_supported_model_has_no_findings() -> None:
    report = check(load(mlp()), B4)
    assert report.findings == ()
    assert (report.verdict, report.exit_code, report.nodes, report.opset) == ("supported", 0, 5, 18)


def test_all_findings_are_reported_not_the_first() -> None:
    model = parse(
        """g (float[2, 3] x) => (float[2, 3] y) {
            a = Swish(x)
            b = Gelu(a)
            c = Transpose(b)
            y = Hardmax(c)
        }"""
    )
    report = check(load(model), B4)
    assert [f.op_type for f in report.refused] == ["Swish", "Gelu", "Transpose"]
    assert codes(report.refused) == {"OP001", "OP020"}
    assert all(f.code in KINDS and f.why and f.source for f in report.findings)


def test_branches_are_checked_and_named_by_their_scope() -> None:
    report = check(load(_if_model(_branch("t", "Swish"), _branch("e", "Relu"))), B4)
    assert [(f.node, f.atc_code) for f in report.refused] == [("choose.then_branch/in_t", "E13010")]
    assert report.nodes == 3


def test_an_empty_input_inside_a_branch_is_refused() -> None:
    clip = h.make_graph(
        [h.make_node("Clip", ["x", "", "hi"], ["t"], name="clip")],
        "t",
        [],
        [h.make_tensor_value_info("t", T.FLOAT, None)],
        [h.make_tensor("hi", T.FLOAT, [], [1.0])],
    )
    report = check(load(_if_model(clip, _branch("e", "Relu"))), B4)
    assert [(f.node, f.code) for f in report.refused] == [("choose", "OP020")]


def test_a_branch_output_from_outside_needs_a_reader_inside() -> None:
    outside = h.make_graph([], "t", [], [h.make_tensor_value_info("x", T.FLOAT, None)])
    unread = h.make_graph(
        [h.make_node("Constant", [], ["e"], value=h.make_tensor("v", T.FLOAT, [1], [0.0]))],
        "e",
        [],
        [h.make_tensor_value_info("e", T.FLOAT, None)],
    )
    assert codes(check(load(_if_model(outside, unread)), B4).refused) == {"OP020"}
    assert check(load(_if_model(outside, _branch("e", "Relu"))), B4).refused == []


def test_what_only_a_nested_if_reads_is_a_risk() -> None:
    inner = h.make_node(
        "If", ["c"], ["t"], name="inner", then_branch=_branch("a", "Relu"),
        else_branch=_branch("b", "Abs"),
    )  # fmt: skip
    outer = h.make_graph([inner], "t", [], [h.make_tensor_value_info("t", T.FLOAT, None)])
    other = h.make_graph(
        [h.make_node("Constant", [], ["e"], value=h.make_tensor("v", T.FLOAT, [1], [0.0]))],
        "e", [], [h.make_tensor_value_info("e", T.FLOAT, None)],
    )  # fmt: skip
    report = check(load(_if_model(outer, other)), B4)
    assert any("nested 'inner' reads 'x'" in f.why for f in report.risks)
    handed_down = check(load(_if_model(outer, _branch("e", "Relu"))), B4)
    assert codes(handed_down.risks) == set()


FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 18, "this" : 1, "npu" : 1]>
g (float16[2, 8] x, float16[8] w) => (float16[2, 8] y) {
    n = npu.NPURmsNorm(x, w)
    y = this.Act(n)
}
<domain: "npu", opset_import: ["" : 18]>
NPURmsNorm (x, w) => (y) { s = Swish(x) y = Mul(s, w) }
<domain: "this", opset_import: ["" : 18]>
Act (x) => (y) { s = Swish(x) y = Relu(s) }
"""


def test_function_bodies_are_checked_unless_a_plugin_takes_their_place() -> None:
    report = check(load(parse(FUNCTIONS)), B4)
    assert [f.node.split("/")[0] for f in report.refused] == ["this::Act"]
    assert [f.code for f in report.risks] == ["OP062"]


def test_functions_that_nothing_calls_are_not_judged() -> None:
    model = parse(FUNCTIONS)
    model.graph.node[1].CopyFrom(h.make_node("Relu", ["n"], ["y"]))
    assert check(load(model), B4).refused == []


def test_module_path_of_the_original_node_is_reported() -> None:
    model = node_model("Swish")
    scopes = str(["", "encoder", "encoder.act", "swish"])
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    assert check(load(model), B4).refused[0].module == "encoder.act"


def test_the_unit_is_not_changed() -> None:
    unit = load(_if_model(_branch("t", "Softmax", axis=0), _branch("e", "Relu")))
    before = ir.to_proto(unit.model).SerializeToString(deterministic=True)
    check(unit, B4)
    assert ir.to_proto(unit.model).SerializeToString(deterministic=True) == before


def test_a_users_plugin_lifts_the_refusal() -> None:
    unit = load(node_model("MatMulInteger", [(T.INT8, (2, 3)), (T.INT8, (3, 2))], opset=13))
    assert codes(check(unit, B4).refused) == {"OP001"}
    assert check(unit, B4, registered=["ai.onnx::13::MatMulInteger"]).refused == []
    assert check(unit, B4, registered=["ai.onnx::14::MatMulInteger"]).refused != []


@pytest.mark.parametrize(
    ("arguments", "code", "cure"),
    [
        ({"op_type": "Gelu", "opset": 20}, "OP001", "NPUGeluV2"),
        ({"op_type": "Relu", "opset": 20}, "OP002", "lower the model's opset to 18"),
        ({"op_type": "Relu", "opset": 7}, "OP002", "raise the model's opset to 8"),
        ({"op_type": "ReduceL2", "opset": 18}, "OP002", "lower the model's opset to 17"),
        ({"op_type": "NPUGeGlu", "domain": "npu"}, "OP003", "npu::NPUGeglu"),
        ({"op_type": "NPUWeightQuantBatchMatmulV2", "domain": "npu"}, "OP003", "npu::WeightQuant"),
        ({"op_type": "FusedMatMul", "domain": "com.microsoft"}, "OP001", "onnxruntime"),
    ],
)
def test_unregistered_nodes_come_with_a_cure(
    arguments: dict[str, object], code: str, cure: str
) -> None:
    (finding,) = check_node(**arguments).refused  # type: ignore[arg-type]
    assert (finding.code, finding.atc_code) == (code, "E13010")
    assert cure in finding.cure


def test_error_code_of_old_releases() -> None:
    assert check(load(node_model("Swish")), OLD).refused[0].atc_code == "E19010"


def test_what_only_documents_list_is_unknown_unless_it_was_run() -> None:
    documented = check_node("NPUScaledMaskedSoftmax", [(T.FLOAT16, (2, 8))], domain="npu")
    assert [f.severity for f in documented.findings if f.code == "OP004"] == [Severity.UNKNOWN]
    ran = check_node("TfIdfVectorizer", [(T.INT32, (6,))], opset=9)
    assert [f.code for f in ran.refused] == ["OP004"]


def test_a_loop_says_whether_it_could_be_unrolled() -> None:
    body = h.make_graph(
        [h.make_node("Identity", ["c"], ["d"]), h.make_node("Relu", ["s"], ["t"])],
        "body",
        [
            h.make_tensor_value_info("i", T.INT64, []),
            h.make_tensor_value_info("c", T.BOOL, []),
            h.make_tensor_value_info("s", T.FLOAT, [1]),
        ],
        [h.make_tensor_value_info("d", T.BOOL, []), h.make_tensor_value_info("t", T.FLOAT, [1])],
    )
    state = (T.FLOAT, (1,))
    free = check_node("Loop", [(T.INT64, ()), (T.BOOL, ()), state], body=body)
    assert "depends on data" in free.refused[0].why
    fixed = check_node("Loop", [np.array(3), (T.BOOL, ()), state], body=body)
    assert "trip count is 3" in fixed.refused[0].why


@pytest.mark.parametrize(
    ("op_type", "inputs", "arguments", "code"),
    [
        ("Dropout", [(T.FLOAT, (2,)), (T.FLOAT, ())], {}, "OP010"),
        ("Pad", [(T.FLOAT, (2,)), np.array([0, 1]), None, np.array([0])], {}, "OP010"),
        ("ReduceSumSquare", [(T.FLOAT, (2,)), np.array([0])], {}, "OP010"),
        ("NPURmsNorm", [(T.FLOAT16, (8,))] * 3, {"domain": "npu"}, "OP010"),
        ("NPURmsNorm", [(T.FLOAT16, (8,))], {"domain": "npu"}, "OP012"),
        ("Concat", [None], {"axis": 0}, ""),
        ("MatMul", [(T.FLOAT, (2, 2)), None], {}, "OP012"),
    ],
)
def test_arity(op_type: str, inputs: list[object], arguments: dict[str, object], code: str) -> None:
    report = check_node(op_type, inputs, **arguments)  # type: ignore[arg-type]
    assert codes(report.refused) == ({code} if code else set())


def test_outputs_that_the_device_lacks() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y, float[2] z) {
            y, mask = Dropout(x)
            z = Where(mask, x, y)
        }"""
    )
    assert codes(check(load(model), B4).refused) == {"OP011"}
    leaves = parse("g (float[2] x) => (float[2] y, bool[2] m) { y, m = Dropout(x) }")
    report = check(load(leaves), B4)
    assert (codes(report.refused), codes(report.risks)) == (set(), {"OP022"})


def test_values_that_are_known_only_at_run_time() -> None:
    free = check_node("Reshape", [(T.FLOAT, (2, 3)), (T.INT64, (2,))])
    assert codes(free.risks) == {"OP040"}
    assert check_node("Reshape", [(T.FLOAT, (2, 3)), np.array([3, 2])]).findings == ()
    assert codes(check_node("NonZero", [(T.FLOAT, (2, 3))]).risks) == {"OP041"}


def test_dtypes_without_a_kernel() -> None:
    mod = check_node("Mod", [(T.INT64, (2,)), (T.INT64, (2,))], fmod=1)
    assert codes(mod.risks) == {"OP050"}
    on_aicpu = check_node("Reciprocal", [(T.DOUBLE, (2,))])
    assert on_aicpu.exit_code == 0
    assert all(f.severity in (Severity.SLOW, Severity.RISK) for f in on_aicpu.findings)
    mixed = check_node("NPURmsNorm", [(T.DOUBLE, (2, 8)), (T.DOUBLE, (8,))], domain="npu")
    assert codes(mixed.risks) == {"OP050"}


def test_operators_with_an_ai_cpu_kernel_only_are_slow() -> None:
    (finding,) = check_node("ReverseSequence", [(T.FLOAT, (4, 4)), (T.INT64, (4,))]).findings
    assert (finding.code, finding.severity) == ("OP051", Severity.SLOW)


def test_dtypes_are_followed_through_nodes_without_declared_types() -> None:
    model = parse(
        """g (float[2, 3] x) => (int64[2, 3] y) {
            a = Cast <to: int = 7> (x)
            b = Identity(a)
            y = Mod <fmod: int = 1> (b, b)
        }"""
    )
    assert [f.op_type for f in check(load(model), B4).findings] == ["Mod"]


def test_thin_tables_say_unknown_never_unsupported() -> None:
    report = check(load(node_model("Mod", [(T.INT64, (2,))] * 2, fmod=1)), Target("Ascend310P3"))
    assert report.exit_code == 0
    assert [f.severity for f in report.findings] == [Severity.UNKNOWN]
    rotary = [(T.FLOAT16, (1, 2, 2, 8))] * 3
    fused = check_node("NPURotaryMul", rotary, domain="npu", target=Target("Ascend310P3"))
    assert Severity.UNKNOWN in {f.severity for f in fused.findings if f.code == "OP052"}
    assert fused.refused == []


def test_float32_on_an_inference_chip_is_one_finding() -> None:
    report = check(load(mlp()), Target("Ascend310P3"))
    (finding,) = report.risks
    assert finding.code == "OP053"
    assert finding.why.startswith("2 matrix operators")
    assert check(load(mlp()), B4).risks == []


def test_domains_by_release() -> None:
    unit = load(node_model("NPUFastGelu", [(T.FLOAT16, (2, 8))], domain="npu"))
    assert check(unit, B4).findings == ()
    assert [f.atc_code for f in check(unit, OLD).refused] == ["E16005"]
    between = check(unit, Target("Ascend910B4", "8.3.0"))
    assert codes(between.risks) == {"OP060"}
    assert check(unit, Target("Ascend910B4", "9.0.0")).findings == ()


def test_interface_of_the_graph() -> None:
    constant = h.make_node("Constant", [], ["y"], value=h.make_tensor("v", T.FLOAT, [1], [0.0]))
    graph = h.make_graph([constant], "g", [], [h.make_tensor_value_info("y", T.FLOAT, [1])])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    assert [f.atc_code for f in check(load(model), B4).refused] == ["E16001"]
    sequence = h.make_tensor_sequence_value_info("s", T.FLOAT, None)
    node = h.make_node("SequenceLength", ["s"], ["n"])
    graph = h.make_graph([node], "g", [sequence], [h.make_tensor_value_info("n", T.INT64, [])])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    assert codes(check(load(model), B4).refused) == {"OP066"}


@pytest.mark.parametrize("dtype", [T.UINT4, T.FLOAT8E4M3FNUZ])
def test_dtypes_that_the_parser_cannot_hold(dtype: int) -> None:
    report = check_node("Identity", [(dtype, (2,))], opset=18)
    assert "OP067" in codes(report.refused)


def test_float8_constants_are_refused_but_float8_inputs_are_mapped() -> None:
    weight = h.make_tensor("w", T.FLOAT8E4M3FN, [2], [1.0, 2.0])
    assert codes(check_node("Constant", [], value=weight).refused) == {"OP067"}
    assert check_node("Identity", [(T.FLOAT8E4M3FN, (2,))]).refused == []


def test_ranks_and_zero_dims_are_risks() -> None:
    deep = parse("g (float[1,1,1,1,1,1,1,1,1] x) => (float[1,1,1,1,1,1,1,1,1] y) { y = Relu(x) }")
    assert codes(check(load(deep), B4).risks) == {"OP072"}
    empty = parse("g (float[0, 2] x) => (float[0, 2] y) { y = Relu(x) }")
    assert codes(check(load(empty), B4).risks) == {"OP073"}


def test_a_node_named_like_an_input_is_refused() -> None:
    unit = load(mlp())
    next(iter(unit.model.graph)).name = "x"
    assert [f.atc_code for f in check(unit, B4).refused] == ["E13009"]


def test_report_is_sorted_complete_and_stable(tmp_path: Path) -> None:
    model = parse(
        """g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z, int64[2] s) {
            y = LRN <size: int = 2> (x)
            s = Shape <start: int = 1> (x)
            z = Swish(x)
        }"""
    )
    report = check(load(model), B4)
    assert [f.severity.value for f in report.findings] == ["refused", "silently_wrong", "risk"]
    first = json.dumps(report.to_json())
    assert json.dumps(check(load(model), B4).to_json()) == first
    data = json.loads(first)
    assert data["schema_version"] == 1
    assert data["counts"] == {
        "refused": 1, "silently_wrong": 1, "risk": 1, "slow": 0, "unknown": 0
    }  # fmt: skip
    assert {"node", "op_type", "code", "severity", "why", "source", "atc_code", "cure", "module",
            "stage"} == set(data["findings"][0])  # fmt: skip


def test_table_rows_take_equal_findings_together() -> None:
    nodes = "\n".join(f"v{i + 1} = Swish(v{i})" for i in range(5))
    report = check(load(parse(f"g (float[2] v0) => (float[2] v5) {{ {nodes} }}")), B4)
    (row,) = rows(report)
    assert row.nodes.endswith("and 2 more")
    assert row.severity == "refused"
    assert summary(report) == "5 nodes, opset 18, Ascend910B4: 5 refused"
    assert summary(check(load(mlp()), B4)).endswith("supported")


def test_listing_says_how_sure_each_operator_is() -> None:
    known = {row.operator: row for row in known_operators()}
    assert len(known) == 359
    assert known["ai.onnx::ScatterND"].sure == "open source"
    assert known["ai.onnx::MaxUnpool"].opsets == "9, 11-18"
    assert known["ai.onnx::Constant"].opsets == "any"
    assert known["ai.onnx::Loop"].sure == "unregistered"
    assert known["ai.onnx::Softmax"].device_operators == "SoftmaxV2"
    assert known["npu::NPUScaledMaskedSoftmax"].sure == "documented only"
