"""Checks and casts of what a caller feeds (D4).

Cast without asking, and noted once per input: float64 to float32, float32 to float16 or bfloat16
(an error if a finite number becomes infinite), int64 and int32 into each other while in range.
Everything else is refused, naming what is expected and what was given.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.ports import Port

log = logging.getLogger(__name__)

_CASTS = {
    ("float64", "float32"),
    ("float64", "float16"),
    ("float32", "float16"),
    ("float64", "bfloat16"),
    ("float32", "bfloat16"),
    ("int64", "int32"),
    ("int32", "int64"),
}


def prepare_feeds(
    ports: Sequence[Port],
    feeds: Mapping[str, Any],
    *,
    allow_nan: bool = False,
    noted: set[str] | None = None,
) -> dict[str, Any]:
    """Return arrays of exactly the declared dtypes, in the order of `ports`.

    Args:
        ports: The model's inputs.
        feeds: Input name -> array or number; a list of them for sequences, None for an absent
            optional.
        allow_nan: False makes NaN an error, since it is nearly always a broken data file.
        noted: Names of inputs whose cast was logged before; updated.

    Raises:
        UsageError: ``INP001`` missing input, ``INP002`` unknown name, ``INP003`` dtype, ``INP004``
            rank or dimension, ``INP005`` value out of range, ``INP006`` NaN.
    """
    names = [port.name for port in ports]
    expected = f"inputs are {', '.join(f'{p.name} {p}' for p in ports) or 'none'}"
    for name in feeds:
        if name not in names:
            raise UsageError(
                "INP002", f"the model has no input '{name}'{nearest(name, names)}", fix=expected
            )
    sizes: dict[str, tuple[int, str]] = {}
    ready: dict[str, Any] = {}
    for port in ports:
        if port.name not in feeds and not isinstance(port.type, ir.OptionalType):
            raise UsageError("INP001", f"input '{port.name}' is missing", fix=expected)
        feed = _Feed(port, allow_nan, noted if noted is not None else set(), sizes)
        ready[port.name] = feed.prepare(feeds.get(port.name), port.type)
    return ready


class _Feed:
    """One input on its way in."""

    def __init__(
        self, port: Port, allow_nan: bool, noted: set[str], sizes: dict[str, tuple[int, str]]
    ) -> None:
        self.port = port
        self.allow_nan = allow_nan
        self.noted = noted
        self.sizes = sizes
        """Symbolic dimension -> size and the input that fixed it, over all inputs."""

    def prepare(self, value: Any, kind: ir.TypeProtocol | None) -> Any:
        if isinstance(kind, ir.OptionalType):
            return None if value is None else self.prepare(value, kind.elem_type)
        if isinstance(kind, ir.SequenceType):
            if not isinstance(value, (list, tuple)):
                raise self._refused("INP003", "a list is expected", _described(value))
            return [self.prepare(item, kind.elem_type) for item in value]
        array = np.asarray(value)
        if value is None or (array.dtype == object and not self._takes_strings()):
            raise self._refused("INP003", "an array is expected", _described(value))
        array = self._cast(array)
        if self.port.is_tensor:
            self._check_shape(array)
        return np.ascontiguousarray(array).reshape(array.shape)

    def _takes_strings(self) -> bool:
        return self.port.dtype == ir.DataType.STRING

    def _cast(self, array: Array) -> Array:
        if self.port.dtype is None:
            return array
        if self._takes_strings():
            if array.dtype.kind not in "OUS":
                raise self._refused("INP003", "strings are expected", _described(array))
            return array.astype(object)
        wanted = self.port.dtype.numpy()
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype != wanted:
            array = self._converted(array, wanted)
        if not self.allow_nan and _is_float(array) and np.isnan(array).any():
            at = np.argwhere(np.isnan(array))[0].tolist()
            raise self._refused(
                "INP006",
                f"NaN at index {at}",
                "NaN spreads through the whole model and is nearly always a broken data file",
                fix="repair the data, or allow it on purpose (allow_nan=True, --allow-nan)",
            )
        return array

    def _converted(self, array: Array, wanted: np.dtype[Any]) -> Array:
        if (array.dtype.name, wanted.name) not in _CASTS:
            raise self._refused("INP003", "wrong dtype", _described(array))
        with np.errstate(over="ignore"):
            result = array.astype(wanted)
        if _is_float(array):
            lost = np.isfinite(array) & ~np.isfinite(result)
        else:
            lost = result.astype(np.int64) != array
        if lost.any():
            at = np.argwhere(lost)[0].tolist()
            raise self._refused(
                "INP005",
                f"{array[tuple(at)]} at index {at} does not fit {wanted.name}",
                f"{int(lost.sum())} values are out of range",
                fix="scale the data, or compile the model for a wider dtype",
            )
        if self.port.name not in self.noted:
            self.noted.add(self.port.name)
            log.info("input %s: %s cast to %s", self.port.name, array.dtype.name, wanted.name)
        return result

    def _check_shape(self, array: Array) -> None:
        shape = self.port.shape
        if shape is None:
            return
        if len(shape) != array.ndim:
            raise self._refused("INP004", f"rank {len(shape)} is expected", _described(array))
        for axis, (dim, size) in enumerate(zip(shape, array.shape, strict=True)):
            if isinstance(dim, int) and dim != size:
                raise self._refused(
                    "INP004", f"dimension {axis} must be {dim}, is {size}", _described(array)
                )
            if isinstance(dim, str):
                known, owner = self.sizes.setdefault(dim, (size, self.port.name))
                if known != size:
                    why = f"'{dim}' is {known} in input '{owner}' and {size} here"
                    raise self._refused(
                        "INP004", f"dimension {axis} contradicts another input", why
                    )

    def _refused(self, code: str, what: str, why: str, fix: str = "") -> UsageError:
        return UsageError(
            code,
            f"input '{self.port.name}': {what}",
            where=f"expected {self.port}",
            why=why,
            fix=fix or f"feed {self.port}",
        )


def _is_float(array: Array) -> bool:
    # ml_dtypes' floats (bfloat16, float8) have kind 'V'; its integers are never fed with NaN tests.
    return array.dtype.kind == "f" or "float" in array.dtype.name


def _described(value: Any) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return f"given {value.dtype.name}[{','.join(map(str, value.shape))}]"
    return f"given {type(value).__name__}"
