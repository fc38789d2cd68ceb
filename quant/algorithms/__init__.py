"""How scales are chosen. An algorithm is found by its name; files are loaded only when used."""

from __future__ import annotations

import importlib
from typing import Protocol

import numpy.typing as npt

from cannc.compiler.core.errors import UsageError, nearest
from cannc.quant.scales import Floats, Params
from cannc.quant.scheme import Scheme

ALGORITHMS = {
    "minmax": "cannc.quant.algorithms.minmax:MinMax",
    "mse": "cannc.quant.algorithms.mse:ClipSearch",
}


class Algorithm(Protocol):
    """Chooses the scales of one weight."""

    def solve(self, matrix: Floats, scheme: Scheme, dtype: npt.DTypeLike) -> Params:
        """Return the scales.

        Args:
            matrix: The weight (k, n), float32, finite.
            scheme: Width, symmetry and group size that hold for this weight.
            dtype: Dtype in which the kernel holds the scales.
        """
        ...


def load_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name.

    Raises:
        UsageError: ``QUANT003`` no such algorithm.
    """
    if name not in ALGORITHMS:
        raise UsageError(
            "QUANT003",
            f"no quantization algorithm '{name}'{nearest(name, ALGORITHMS)}",
            where="--algo",
            fix=f"use one of {', '.join(ALGORITHMS)}",
        )
    module, _, attribute = ALGORITHMS[name].partition(":")
    algorithm: Algorithm = getattr(importlib.import_module(module), attribute)()
    return algorithm
