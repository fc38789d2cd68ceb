"""A slice of a shape, written as one.

Before:  Shape(x, start=1, end=3)      After:  Slice(Shape(x), [1], [3])

ATC's plugin reads neither attribute and would give the whole shape, silently.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.base import Numerics, PassContext
from cannc.passes.legalize.base import Cure

_INT64_MAX = np.iinfo(np.int64).max


class ExpandShapeRange(Cure):
    """See the module."""

    name = "expand-shape-range"
    summary = "Shape with start or end -> Shape, Slice"
    numerics = Numerics.EXACT
    op_types = frozenset({"Shape"})

    def cure(self, ctx: PassContext, node: ir.Node) -> None:
        """Take the range out of the node unless it covers the whole shape."""
        start = node.attributes.get_int("start", 0)
        end = node.attributes.get_int("end", _INT64_MAX)
        dims = rank(node.inputs[0])
        if start == 0 and (end == _INT64_MAX or (dims is not None and end >= dims)):
            return
        result = node.outputs[0]
        whole = ctx.rewriter.node("Shape", [node.inputs[0]])
        whole.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        whole.outputs[0].shape = ir.Shape([dims])
        bounds = [ctx.rewriter.constant(result, np.array([i], np.int64)) for i in (start, end, 0)]
        cut = ctx.rewriter.node("Slice", [whole.outputs[0], *bounds], like=result)
        ctx.rewriter.replace([node], [whole, cut], {result: cut.outputs[0]})
