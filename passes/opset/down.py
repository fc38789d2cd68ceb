"""From newer opsets down to 18: what the operators of opset 18 can say."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.opset.bodies import schema_of
from cannc.passes.opset.edit import TARGET_OPSET, Adapter, Edit
from cannc.passes.pattern import scalar_of


def _grid_sample(edit: Edit) -> None:
    """Opset 20 renamed the modes."""
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = edit.node.attributes.get_string("mode", "linear")
    attributes = {**edit.node.attributes, "mode": names.get(mode, mode)}
    edit.swap("GridSample", edit.node.inputs, attributes)


def _grid_sample_obstacle(edit: Edit) -> str | None:
    return None if rank(edit.data()) in (4, None) else "GridSample in three dimensions is opset 20"


def _dft(edit: Edit) -> None:
    """Opset 20 moved the axis to an input."""
    axis = -2.0 if edit.input(2) is None else scalar_of(edit.input(2))
    dims = rank(edit.data())
    assert axis is not None
    assert dims is not None
    attributes = {**edit.node.attributes, "axis": int(axis) % dims}
    edit.swap("DFT", [edit.data(), edit.input(1)], attributes)


def _dft_obstacle(edit: Edit) -> str | None:
    if edit.input(2) is not None and scalar_of(edit.input(2)) is None:
        return "its axis is computed, opset 18 wants a number"
    return None if rank(edit.data()) is not None else "the rank of its input is unknown"


def _mod_obstacle(edit: Edit) -> str | None:
    if edit.node.attributes.get_int("fmod", 0) == 0 and edit.data().dtype in _FLOATS:
        return "Mod of floats with the sign of the divisor is opset 28"
    return None


def _drop_defaults(edit: Edit) -> None:
    """Drop attributes that opset 18 does not know; the obstacle saw that they say nothing."""
    known = _attributes(edit, TARGET_OPSET)
    for name in [name for name in edit.node.attributes if name not in known]:
        del edit.node.attributes[name]


def _unsayable(edit: Edit) -> str | None:
    """Return what a node says that its operator cannot say at opset 18."""
    node = edit.node
    schema = schema_of(node.op_type, TARGET_OPSET)
    if schema is None:
        return f"{node.op_type} is unknown at opset {TARGET_OPSET}"
    newer = _attributes(edit, edit.ctx.model.opset_imports[""])
    for name, attribute in node.attributes.items():
        if name not in schema.attributes and not _says_nothing(attribute, newer.get(name)):
            return f"attribute {name} is newer than opset {TARGET_OPSET}"
        if (node.op_type, name, attribute.value) in _NEW_CHOICES:
            return f"{name}={attribute.value} is newer than opset {TARGET_OPSET}"
    if len(node.inputs) > schema.max_input:
        return f"more inputs than at opset {TARGET_OPSET}"
    for index, value in enumerate(node.inputs):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if value is not None and isinstance(value.type, ir.TensorType):
            kind = f"tensor({_type_name(value.type.dtype)})"
            if kind not in formal.types:
                return f"{kind} as input '{formal.name}' is newer than opset {TARGET_OPSET}"
    return None


def _says_nothing(attribute: ir.Attr, formal: onnx.defs.OpSchema.Attribute | None) -> bool:
    if attribute.name == "dilations":
        return set(attribute.as_ints()) == {1}
    default = formal.default_value if formal is not None else None
    if default is None or default.type == onnx.AttributeProto.UNDEFINED:
        return False
    return bool(onnx.helper.get_attribute_value(default) == attribute.value)


def _attributes(edit: Edit, opset: int) -> dict[str, onnx.defs.OpSchema.Attribute]:
    schema = schema_of(edit.node.op_type, opset)
    return dict(schema.attributes) if schema is not None else {}


def _type_name(dtype: ir.DataType) -> str:
    return {"DOUBLE": "double", "FLOAT": "float"}.get(dtype.name, dtype.name.lower())


_NEW_CHOICES = {
    ("Pad", "mode", "wrap"),
    ("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"),
}

_FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16}
)

_GENERAL = Adapter(19, _drop_defaults, _unsayable)

DOWN: dict[str, Adapter] = {
    "DFT": Adapter(20, _dft, _dft_obstacle),
    "GridSample": Adapter(20, _grid_sample, _grid_sample_obstacle),
    "Mod": Adapter(28, _drop_defaults, _mod_obstacle),
}


def down_adapter(node: ir.Node, opset: int) -> Adapter | None:
    """Return how to bring a node of `opset` down, or None when its form did not change."""
    schema = schema_of(node.op_type, opset)
    if schema is None or schema.since_version <= TARGET_OPSET:
        return None
    special = DOWN.get(node.op_type)
    return special if special is not None and opset >= special.since else _GENERAL
