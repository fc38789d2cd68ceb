"""The one thing that passes need from a runtime: run this graph on these numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[np.generic]


class Runner(Protocol):
    """Runs a model with the numerics of the simulated device (D1)."""

    def run(
        self, model: ir.Model, feeds: Mapping[str, Array], fetches: Sequence[str]
    ) -> dict[str, Array]:
        """Run `model` once.

        Args:
            model: Any model; functions and nested graphs included.
            feeds: Graph input name -> array.
            fetches: Names of values to return; they need not be graph outputs.

        Returns:
            Value name -> array, in the order of `fetches`.
        """
        ...
