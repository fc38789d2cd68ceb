"""Seeded random inputs, for measuring when there are no real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.ports import Port


def random_feeds(ports: Sequence[Port], seed: int) -> dict[str, Any]:
    """Return arrays for all inputs, the same ones for the same seed.

    Floats are normal, integers 0 or 1 (valid as ids, masks and lengths), optionals absent.

    Raises:
        UsageError: ``INP007`` an input has a dynamic size or takes strings or a sequence.
    """
    generator = np.random.default_rng(seed)
    return {port.name: _random(port, generator) for port in ports}


def _random(port: Port, generator: np.random.Generator) -> Array | None:
    if isinstance(port.type, ir.OptionalType):
        return None
    dtype, shape = port.dtype, port.shape or ()
    sizes = [dim for dim in shape if isinstance(dim, int)]
    if port.shape is None or len(sizes) < len(shape) or not port.is_tensor:
        raise _no_random(port, "its size is not fixed, and a guess may be no valid input")
    if dtype is None or dtype == ir.DataType.STRING:
        raise _no_random(port, "there is no sensible random value of its dtype")
    if dtype.is_floating_point():
        return generator.standard_normal(sizes).astype(dtype.numpy())
    return generator.integers(0, 2, sizes).astype(dtype.numpy())


def _no_random(port: Port, why: str) -> UsageError:
    return UsageError(
        "INP007",
        f"no random data for input '{port.name}'",
        where=str(port),
        why=why,
        fix=f"feed it: --inputs {port.name}=FILE.npy",
    )
