"""float32 to float16, as the device does it: half storage, float32 accumulation (D1-D3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

import onnx_ir as ir

from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.inference import ensure_types
from cannc.passes.precision.plan import Plan
from cannc.passes.precision.prescale import prescale
from cannc.passes.precision.retype import Retyper
from cannc.passes.precision.slots import SlotTable, fill_types
from cannc.passes.rewrite import scoped_nodes


class Float16(Pass):
    """The whole float32 graph in float16, except where that provably fails (see `islands`).

    Before::

        y = MatMul(x, w)                              # all float32

    After::

        x__float16 = Cast<to=FLOAT16>(x)              # the interface keeps its dtypes
        y__float16 = MatMul(x__float16, w)            # w is float16 now, rounded when read
        y = Cast<to=FLOAT>(y__float16)

    Node and value names stay; only casts are added. Notes tell which nodes stay float32 and why,
    and which constants were clipped or became zero.

    Args:
        io: ``keep`` leaves inputs and outputs float32; ``fp16`` makes them float16, without casts.
        keep: Names of nodes that stay float32 (mixed precision), each with the reason.
    """

    name: ClassVar[str] = "float16"
    summary: ClassVar[str] = "float32 to float16 storage; what half provably breaks stays float32"
    numerics: ClassVar[Numerics] = Numerics.LOSSY

    def __init__(
        self, io: Literal["keep", "fp16"] = "keep", keep: Mapping[str, str] | None = None
    ) -> None:
        self.io = io
        self.keep: Mapping[str, str] = MappingProxyType(dict(keep or {}))

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        table = _typed(ctx.model)
        prescale(ctx)
        half_io = self.io == "fp16"
        plan = Plan.of(ctx.model, table, ctx.may_use_kernel, keep=self.keep, half_io=half_io)
        Retyper(ctx, plan).run()
        for reason, count in plan.counts().items():
            ctx.note(f"{count} {'nodes stay' if count > 1 else 'node stays'} float32: {reason}")
        _drop_noop_casts(ctx)


def _typed(model: ir.Model) -> SlotTable:
    """Make sure that values have dtypes, as far as they can be known."""
    ensure_types(model)
    table = SlotTable(model)
    fill_types(model, table)
    return table


def _drop_noop_casts(ctx: PassContext) -> None:
    """Remove casts of the model to the dtype that their input has by now."""
    for scoped in scoped_nodes(ctx.model):
        node = scoped.node
        if node.op_type == "Cast":
            (value,) = node.inputs
            if value is not None and value.dtype == ir.DataType(node.attributes["to"].as_int()):
                ctx.rewriter.bypass(node, value)
