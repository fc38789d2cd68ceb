"""Candidates of the comparison, and faults to plant in them."""

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.op_support.kernels import kernel_gap
from cannc.passes.optimize import optimize
from cannc.quant.quantize import quantize

TARGET = Target.parse("Ascend910B4")


def may_use_kernel(op_type, dtype):
    return kernel_gap(op_type, dtype, TARGET)


def candidate_of(model, precision="keep", w8a16=False):
    unit = optimize(
        load(model),
        level="O2",
        precision=precision,
        target=TARGET,
        runner=HostRunner(),
        may_use_kernel=may_use_kernel,
    )
    return quantize(unit, target=TARGET, may_use_kernel=may_use_kernel) if w8a16 else unit


def node_of(unit, op_type, index=0):
    return [node for node in unit.model.graph if node.op_type == op_type][index]


def set_weight(node, index, change):
    """Give an input of a node changed numbers, without touching other users of the weight."""
    old = node.inputs[index]
    tensor = ir.Tensor(np.ascontiguousarray(change(old.const_value.numpy().copy())))
    new = ir.Value(name=f"{old.name}__fault", shape=tensor.shape, type=old.type, const_value=tensor)
    node.graph.initializers.add(new)
    node.replace_input_with(index, new)
    if not old.uses():
        del node.graph.initializers[old.name]
