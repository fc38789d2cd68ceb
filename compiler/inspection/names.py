"""Names of data types and layouts in the numberings of the container (om-format.md section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from cannc.compiler.om.dtypes import FROM_ACL
from cannc.compiler.om.proto import DataType

_COMMON = {"FLOAT": "float32", "DOUBLE": "float64", "BF16": "bfloat16"}
# Types of the second numbering that ONNX lacks.
_ACL_ONLY = {30: "uint1", 33: "complex32", 34: "hifloat8"}
_FORMATS = {
    0: "NCHW",
    1: "NHWC",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    12: "NC1HWC0_C04",
    13: "FRACTAL_Z_C04",
    14: "CHWN",
    16: "HWCN",
    27: "NDHWC",
    29: "FRACTAL_NZ",
    30: "NCDHW",
    31: "DHWCN",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
    34: "CN",
    35: "NC",
    47: "NCL",
}


def common_dtype(name: str) -> str:
    """Return the usual name for a type as ONNX or GE spell it, e.g. ``float32`` for ``FLOAT``."""
    return _COMMON.get(name, name.lower())


def onnx_dtype(dtype: ir.DataType | None) -> str:
    """Return the name of an ONNX type."""
    return common_dtype(dtype.name) if dtype else "undefined"


def graph_dtype(number: int) -> str:
    """Return the name of a type in the graph's numbering."""
    known = DataType.values_by_number.get(number)
    return common_dtype(known.name.removeprefix("DT_")) if known else f"unknown {number}"


def acl_dtype(number: int) -> str:
    """Return the name of a type in ACL's numbering."""
    if number in FROM_ACL:
        return onnx_dtype(FROM_ACL[number])
    return _ACL_ONLY.get(number, f"unknown {number}")


def format_name(number: int) -> str:
    """Return the name of a layout."""
    return _FORMATS.get(number, f"unknown {number}")


def tensor_text(dtype: str, dims: Sequence[int | str] | None, layout: str = "") -> str:
    """Return type and shape as one word, e.g. ``float16[N,8]``, with an unusual layout behind."""
    shape = "[?]" if dims is None else f"[{','.join(map(str, dims))}]"
    plain = layout in ("", "ND", "FORMAT_RESERVED")
    return f"{dtype}{shape}" if plain else f"{dtype}{shape}:{layout}"
