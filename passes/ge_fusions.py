"""Which of ATC's own fusions the regions of a graph should meet (ge-fusions.md).

Nothing of it was run here: the sheet was read from GE's open sources, vendor pages and users'
reports, and each row says how sure that is. After a real compile ``fusion_result.json`` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.shapes import rank, static_shape
from cannc.compiler.core.target import Target
from cannc.passes.pattern import constant_of

Mark = Literal["sure", "likely", "unproven"]

_A1, _A2, _A3 = "ascend910", "ascend910b", "ascend910_93"
_P, _B, _950 = "ascend310p", "ascend310b", "ascend950"
_ALL = frozenset({_A1, _A2, _A3, _P, _B, _950})
_CUBE_A = frozenset({_A2, _A3, _950})
_VECTOR = frozenset(
    {
        *(
            "Abs",
            "Add",
            "Cast",
            "Clip",
            "Div",
            "Erf",
            "Exp",
            "HardSigmoid",
            "HardSwish",
            "LeakyRelu",
        ),
        *("Log", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Sigmoid", "Softplus"),
        *("Sqrt", "Sub", "Tanh"),
    }
)
_CONV_TAILS = frozenset({"Relu", "LeakyRelu", "Clip", "Add", "Sigmoid", "HardSwish"})
_MATMUL_TAILS = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Softplus", "Mul"})


@dataclass(frozen=True)
class GeFusion:
    """One fusion of GE.

    Attributes:
        name: Its name, as switch files and ``fusion_result.json`` spell it; "none" where GE has
            none for a region that people expect one for.
        what: The region and what becomes of it.
        families: Chips that it is for.
        mark: How sure that is.
        static: It needs fixed shapes.
        ends: Whether such a region ends in a node.
    """

    name: str
    what: str
    families: frozenset[str]
    mark: Mark
    static: bool
    ends: Callable[[ir.Node], bool]


@dataclass(frozen=True)
class Region:
    """A place of a graph, and the fusion of GE that it should meet.

    Attributes:
        node: Where it ends.
        fusion: The fusion.
        obstacle: Why it will not be met; empty when it should.
    """

    node: str
    fusion: GeFusion
    obstacle: str = ""


def regions(model: ir.Model, target: Target) -> Iterator[Region]:
    """Yield the regions of a model, in graph order; elsewhere GE changes nothing that we know."""
    for scoped in walk(model.graph):
        for fusion in FUSIONS:
            if fusion.ends(scoped.node):
                yield Region(scoped.node.name or "", fusion, _obstacle(fusion, scoped.node, target))


def _obstacle(fusion: GeFusion, node: ir.Node, target: Target) -> str:
    if fusion.name == "none":
        return "GE has no such fusion"
    if target.family not in fusion.families:
        return f"not on {target.soc}"
    if fusion.static and any(static_shape(value) is None for value in node.outputs):
        return "only for fixed shapes"
    return ""


# -- regions ---------------------------------------------------------------------------------------


def _source(node: ir.Node, index: int) -> ir.Node | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    producer = value.producer() if value is not None else None
    single = value is not None and len(value.uses()) == 1 and not value.is_graph_output()
    return producer if single else None


def _behind(node: ir.Node, types: frozenset[str]) -> ir.Node | None:
    """Return a producer of these types that only `node` reads."""
    sources = (_source(node, index) for index in range(len(node.inputs)))
    return next((s for s in sources if s is not None and s.op_type in types), None)


def _bias_behind_matmul(node: ir.Node) -> bool:
    if node.op_type != "Add" or _behind(node, frozenset({"MatMul"})) is None:
        return False
    return any(constant_of(v) is not None and rank(v) == 1 for v in node.inputs if v is not None)


def _bias_behind_conv(node: ir.Node) -> bool:
    constant = any(constant_of(v) is not None for v in node.inputs)
    return node.op_type == "Add" and constant and _behind(node, frozenset({"Conv"})) is not None


def _transposed_matmul(node: ir.Node) -> bool:
    if node.op_type != "MatMul":
        return False
    sources = [_source(node, index) for index in (0, 1)]
    return any(s is not None and s.op_type == "Transpose" and swaps_last_two(s) for s in sources)


def swaps_last_two(node: ir.Node) -> bool:
    """Say whether a Transpose swaps the last two axes and nothing else."""
    perm = node.attributes.get_ints("perm") or ()
    count = len(perm)
    return count > 1 and list(perm) == [*range(count - 2), count - 1, count - 2]


def _tail(types: frozenset[str], of: str) -> Callable[[ir.Node], bool]:
    def ends(node: ir.Node) -> bool:
        return node.op_type in types and _behind(node, frozenset({of})) is not None

    return ends


def _is(op_type: str, *, behind: str = "") -> Callable[[ir.Node], bool]:
    def ends(node: ir.Node) -> bool:
        if node.op_type != op_type:
            return False
        return not behind or _behind(node, frozenset({behind})) is not None

    return ends


def _geglu(node: ir.Node) -> bool:
    gate = _behind(node, frozenset({"Gelu", "NPUGeluV2"})) if node.op_type == "Mul" else None
    if gate is None or gate.inputs[0] is None:
        return False
    split = gate.inputs[0].producer()
    return split is not None and split.op_type == "Split" and split in node.predecessors()


def _attention(node: ir.Node) -> bool:
    softmax = _source(node, 0) if node.op_type == "MatMul" else None
    if softmax is None or softmax.op_type != "Softmax":
        return False
    scores = _source(softmax, 0)
    while scores is not None and scores.op_type in ("Add", "Mul", "Div"):
        scores = _behind(scores, frozenset({"MatMul", "Add", "Mul", "Div"}))
    return scores is not None and scores.op_type == "MatMul"


def _swiglu(node: ir.Node) -> bool:
    gate = _behind(node, frozenset({"Mul", "NPUSwish"})) if node.op_type == "Mul" else None
    if gate is None:
        return False
    return gate.op_type == "NPUSwish" or _behind(gate, frozenset({"Sigmoid"})) is not None


def _chain(node: ir.Node) -> bool:
    """The last node of a chain of two or more; longer ones are told once."""
    if node.op_type not in _VECTOR or _behind(node, _VECTOR) is None:
        return False
    users = node.outputs[0].consumers()
    return not (len(users) == 1 and users[0].op_type in _VECTOR)


def _free_concat(node: ir.Node) -> bool:
    if node.op_type not in ("Concat", "Split"):
        return False
    shape = static_shape(node.outputs[0])
    axis = node.attributes.get_int("axis", 0)
    return shape is not None and all(size == 1 for size in shape[: axis % max(len(shape), 1)])


def _reshaped_transpose(node: ir.Node) -> bool:
    if node.op_type == "Transpose":
        return _behind(node, frozenset({"Reshape"})) is not None
    return node.op_type == "Reshape" and _behind(node, frozenset({"Transpose"})) is not None


def _clip(node: ir.Node) -> bool:
    other = {"Min": "Max", "Max": "Min"}.get(node.op_type, "")
    return bool(other) and _behind(node, frozenset({other})) is not None


FUSIONS: tuple[GeFusion, ...] = (
    GeFusion("MatMulBiasAddFusionPass", "MatMul + 1-D bias -> MatMul with bias",
             _CUBE_A, "sure", False, _bias_behind_matmul),
    GeFusion("AABiasaddConvFusion", "Conv + constant Add -> Conv with bias",
             _ALL, "sure", True, _bias_behind_conv),
    GeFusion("BatchMatMulFusionPass", "Transpose of the last two axes + MatMul -> transposed read",
             _ALL, "sure", False, _transposed_matmul),
    GeFusion("TbeConv* (UB)", "Conv + activation in one kernel",
             frozenset({_A1, _P}), "sure", True, _tail(_CONV_TAILS, "Conv")),
    GeFusion("fixpipe", "Conv + activation in the store step of the cube",
             frozenset({_A2, _A3, _B}), "sure", True,
             _tail(frozenset({"Relu", "LeakyRelu"}), "Conv")),
    GeFusion("ATbeMatmulElemwise (UB)", "MatMul + activation in one kernel",
             frozenset({_A1, _P, _B}), "sure", True, _tail(_MATMUL_TAILS, "MatMul")),
    GeFusion("PadConv2dFusionPass", "constant Pad + Conv -> Conv with pads",
             _ALL, "sure", True, _is("Conv", behind="Pad")),
    GeFusion("ConvBatchnormFusionPass", "Conv + BatchNormalization -> Conv",
             frozenset({_A1, _P, _B}), "sure", False, _is("BatchNormalization", behind="Conv")),
    GeFusion("AddLayerNormFusionPass", "Add + LayerNormalization -> AddLayerNorm",
             frozenset({_A2, _950}), "unproven", True, _is("LayerNormalization", behind="Add")),
    GeFusion("AddRmsNormFusionPass", "Add + RmsNorm -> AddRmsNorm",
             _CUBE_A, "sure", False, _is("NPURmsNorm", behind="Add")),
    GeFusion("GeGluV2FusionPass", "Split + Gelu + Mul -> GeGluV2 (split axis above 512)",
             frozenset({_P, _A2, _A3}), "sure", True, _geglu),
    GeFusion("ClipFusionRule0", "Min + Max -> ClipByValue", _ALL, "sure", False, _clip),
    GeFusion("ReshapeTransposeFusionPass", "Reshape + Transpose -> ConfusionTransposeD (% 16)",
             frozenset({_A1, _A2, _P}), "likely", True, _reshaped_transpose),
    GeFusion("ConcatNotask", "Concat or Split of whole blocks (32-byte pieces): no kernel",
             _ALL, "sure", True, _free_concat),
    GeFusion("AutomaticUbFusion", "element-wise chain -> one vector kernel",
             _ALL - {_950}, "sure", True, _chain),
    GeFusion("none", "attention: MatMul, Softmax, MatMul are three kernels",
             frozenset(), "likely", False, _attention),
    GeFusion("none", "SwiGLU: only the element-wise chain is fused",
             frozenset(), "likely", False, _swiglu),
)  # fmt: skip
"""In the order in which a node's regions are told."""
