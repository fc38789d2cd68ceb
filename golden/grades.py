"""How precise each value of a candidate can be at best, from what computes it."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from cannc.golden.regions import reads
from cannc.golden.verdict import Grade

_INTEGER_WEIGHTS = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4}
)
_WEIGHT_QUANT_OPS = frozenset({"WeightQuantBatchMatmulV2", "NPUAntiQuant", "AscendAntiQuant"})


def grades(model: ir.Model, cuts: Collection[str] = ()) -> dict[str, Grade]:
    """Return the grade of every value of the main graph: the coarsest of all that feeds it.

    A float32 output that a Cast made from float16 is as coarse as float16, and everything behind
    an int8 weight is as coarse as that.

    Args:
        model: The candidate, not lowered.
        cuts: Values whose users are fed with golden's numbers (see `explode`), so that nothing
            upstream matters to them but the dtype that they are fed in.
    """
    found: dict[str, Grade] = {}
    cut = frozenset(cuts)

    def read(value: ir.Value) -> Grade:
        name = value.name or ""
        if name in cut or name not in found:
            return _stored(value)
        return found[name]

    for node in model.graph:
        own = max((_stored(v) for v in node.outputs), default=Grade.FLOAT32)
        if node.op_type in _WEIGHT_QUANT_OPS:
            own = Grade.INT8
        grade = max([own, *map(read, reads(node))])
        found.update({value.name or "": grade for value in node.outputs})
    return found


def _stored(value: ir.Value) -> Grade:
    is_weight = value.is_initializer() or ir.convenience.get_const_tensor(value) is not None
    if is_weight and value.dtype in _INTEGER_WEIGHTS:
        return Grade.INT8
    return Grade.of(value.dtype)
