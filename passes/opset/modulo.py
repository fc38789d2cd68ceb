"""The remainder with the sign of the divisor, made from the one with the sign of the dividend."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.passes.opset.edit import Edit

_WIDE = frozenset({ir.DataType.INT32, ir.DataType.INT64})


def floor_mod(edit: Edit) -> None:
    """Write ``Mod<fmod=0>(a, b)`` with the truncating remainder, exactly.

    With ``r = Mod<fmod=1>(a, b)``, ``|r| < |b|``: the result is ``r + b`` where r is not 0 and has
    another sign than b, else r. Narrow integers are computed in int32.
    """
    x, y = edit.data(), edit.input(1)
    dtype = x.dtype
    nodes: list[ir.Node] = []
    work = dtype
    assert dtype is not None
    if dtype.is_integer() and dtype not in _WIDE:
        work = ir.DataType.INT32
        nodes += [edit.make("Cast", value, attributes={"to": int(work)}) for value in (x, y)]
        x, y = nodes[0].outputs[0], nodes[1].outputs[0]
    assert work is not None
    zero = edit.constant(0, work.numpy())
    rest = edit.make("Mod", x, y, attributes={"fmod": 1})
    r = rest.outputs[0]
    is_zero = edit.make("Equal", r, zero)
    some = edit.make("Not", is_zero.outputs[0])
    signs = [edit.make("Less", value, zero) for value in (r, y)]
    differ = edit.make("Xor", signs[0].outputs[0], signs[1].outputs[0])
    wrong = edit.make("And", some.outputs[0], differ.outputs[0])
    moved = edit.make("Add", r, y)
    nodes += [rest, is_zero, some, *signs, differ, wrong, moved]
    nodes.append(edit.make("Where", wrong.outputs[0], moved.outputs[0], r))
    if work != dtype:
        nodes.append(edit.make("Cast", nodes[-1].outputs[0], attributes={"to": int(dtype)}))
    edit.put(nodes)


def floor_mod_obstacle(edit: Edit) -> str | None:
    """Constants of the dtype are needed; bfloat16 has no remainder at opset 18 here."""
    dtype = edit.data().dtype
    if dtype is None:
        return "the dtype of its input is unknown"
    if dtype.is_integer() and dtype.is_signed() and dtype.bitwidth <= np.iinfo(np.int64).bits:
        return None
    return None if dtype.is_floating_point() else f"{dtype.name} is unsigned"
