"""How scales are chosen. An algorithm is found by its name; files are loaded only when used."""

from __future__ import annotations

import importlib
from typing import Protocol

import numpy.typing as npt

from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.runner import Array
from cannc.quant.scales import Bounds, Params
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments, Needs

ALGORITHMS = {
    "minmax": "cannc.quant.algorithms.minmax:MinMax",
    "mse": "cannc.quant.algorithms.mse:ClipSearch",
    "awq": "cannc.quant.algorithms.awq:ActivationAware",
    "gptq": "cannc.quant.algorithms.gptq:Gptq",
}


class Algorithm(Protocol):
    """Chooses the scales of one weight.

    Attributes:
        uses: Which statistics it uses when there is calibration data.
        needs_data: It cannot work without.
        moves_scales: Weights get input scales first, see `cannc.quant.equalize`.
    """

    uses: Needs
    needs_data: bool
    moves_scales: bool

    def solve(
        self,
        matrix: Array,
        scheme: Scheme,
        dtype: npt.DTypeLike,
        moments: Moments | None = None,
        bounds: Bounds | None = None,
    ) -> Params:
        """Return the scales.

        Args:
            matrix: The weight (k, n), finite, of any float dtype.
            scheme: Width, symmetry and group size that hold for this weight.
            dtype: Dtype in which the kernel holds the scales.
            moments: Activations in front of it; None where there are none.
            bounds: See `ranges`; None: not known yet.
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
