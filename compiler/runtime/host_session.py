"""Runs a model on this machine with the numerics of the device (D1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.runtime.border import carry, from_session, to_session
from cannc.compiler.runtime.dtypes import HALF, with_dtype
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.kernels import use_kernels
from cannc.compiler.runtime.lowering import FLOAT, Half, lower
from cannc.compiler.runtime.ort import OrtSession
from cannc.compiler.runtime.ports import Port, input_ports, output_ports


class HostSession:
    """A model loaded once and run many times.

    Attributes:
        inputs: What to feed, in graph order.
        outputs: Graph outputs, then the taps that are not outputs anyway.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        half: Half = "round",
        taps: Sequence[str] = (),
        fuse: bool = True,
        low_memory: bool = False,
    ) -> None:
        """Load a model.

        Args:
            model: The model; not changed. External weights stay mapped.
            half: See `lower`.
            taps: Names of values of the main graph to return besides the outputs.
            fuse: False switches onnxruntime's own optimizations and fused kernels off.
            low_memory: Keep weights as stored, at the price of speed.

        Raises:
            UsageError: ``RUN004`` a tap is no value of the main graph.
            ModelError: ``RUN001`` onnxruntime refuses the model.
        """
        tapped = with_outputs(model, [*(v.name or "" for v in model.graph.outputs), *taps])
        self.inputs = input_ports(tapped)
        self.outputs = [_delivered(port, half) for port in output_ports(tapped)]
        use_kernels(tapped, contrib=fuse)
        lowered = lower(tapped, half=half)
        carry(lowered)
        constants = [v for v in lowered.graph.inputs if v.is_initializer()]
        for value in constants:  # else onnxruntime would not fold them (D25)
            lowered.graph.inputs.remove(value)
        self._noted: set[str] = set()
        self._session = OrtSession(lowered, fuse=fuse, low_memory=low_memory)

    def run(self, feeds: Mapping[str, Any], *, allow_nan: bool = True) -> dict[str, Any]:
        """Run once.

        Args:
            feeds: Input name -> array, list of arrays (sequences) or None (absent optionals);
                cast by the rules of `prepare_feeds`.
            allow_nan: False makes NaN in an input an error.

        Returns:
            Outputs and taps by name, in their declared dtypes, in the order of `outputs`.
        """
        ready = prepare_feeds(self.inputs, feeds, allow_nan=allow_nan, noted=self._noted)
        passed = {port.name: to_session(port, ready[port.name]) for port in self.inputs}
        names = [port.name for port in self.outputs]
        results = self._session.run(names, passed)
        return {p.name: from_session(p, r) for p, r in zip(self.outputs, results, strict=True)}


def with_outputs(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """Return a copy of `model` whose outputs are exactly the named values of its main graph.

    Raises:
        UsageError: ``RUN004`` no such value.
    """
    copy = model.clone()
    values = ir.convenience.create_value_mapping(copy.graph, include_subgraphs=False)
    copy.graph.outputs.clear()
    for name in dict.fromkeys(names):
        if name not in values:
            raise UsageError(
                "RUN004",
                f"no value is called '{name}'{nearest(name, values)}",
                why="only values of the main graph can be tapped",
            )
        copy.graph.outputs.append(values[name])
    return copy


def _delivered(port: Port, half: Half) -> Port:
    if half == "widen" and port.type is not None and port.dtype in HALF:
        return Port(port.name, with_dtype(port.type, FLOAT), port.shape)
    return port
