"""The cells of recurrent layers, step by step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from cannc.passes.legalize.activations import Activation, read
from cannc.passes.opset.edit import Edit

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}


class Sizes(NamedTuple):
    """Sizes of a layer."""

    steps: int
    batch: int
    hidden: int
    directions: int


class _Weights(NamedTuple):
    """What one direction multiplies by and adds."""

    recurrent: ir.Value
    hidden_bias: ir.Value | None
    peepholes: list[ir.Value] | None


class Layer:
    """Collects the nodes of a layer.

    Attributes:
        nodes: In an order in which they can run.
    """

    def __init__(self, edit: Edit, sizes: Sizes, lengths: ir.Value | None) -> None:
        """Args: the node, its sizes, and the length of each sequence if they differ."""
        self.nodes: list[ir.Node] = []
        self._edit, self._sizes, self._lengths = edit, sizes, lengths
        self._kind = edit.node.op_type
        self._functions = read(edit.node, _DEFAULTS[self._kind], sizes.directions)
        self._clip = edit.node.attributes.get_float("clip", 0.0)
        self._all: list[list[ir.Value]] = []
        self._last: list[tuple[ir.Value, ...]] = []
        self._masks: dict[int, ir.Value] = {}

    def run(self, direction: int, *, reverse: bool) -> None:
        """Write out one direction."""
        weights, inputs = self._prepare(direction)
        state = tuple(
            self._initial(index, direction) for index in ((5, 6) if self._kind == "LSTM" else (5,))
        )
        steps = range(self._sizes.steps)
        seen: dict[int, ir.Value] = {}
        for step in reversed(steps) if reverse else steps:
            gates = self._make("Gather", inputs, self._constant(step), axis=0)
            new = self._step(gates, state, weights, self._functions[direction])
            if self._lengths is not None:
                mask = self._mask(step)
                zero = self._edit.scalar(0)
                seen[step] = self._make("Where", mask, new[0], zero)
                pairs = zip(new, state, strict=True)
                state = tuple(self._make("Where", mask, now, old) for now, old in pairs)
            else:
                state = new
                seen[step] = new[0]
        self._all.append([seen[step] for step in steps])
        self._last.append(state)

    def outputs(self) -> list[ir.Value]:
        """Return Y, Y_h and, for LSTM, Y_c; only those that something reads are made."""
        made: list[ir.Value] = []
        for index, old in enumerate(self._edit.node.outputs):
            if not (old.uses() or old.is_graph_output()):
                made.append(old)
            elif index == 0:
                sides = [
                    self._join([self._unsqueeze(h, [0, 1]) for h in values], 0)
                    for values in self._all
                ]
                made.append(self._join(sides, 1))
            else:
                last = [self._unsqueeze(state[index - 1], [0]) for state in self._last]
                made.append(self._join(last, 0))
        return made

    def _prepare(self, direction: int) -> tuple[_Weights, ir.Value]:
        edit, gates, hidden = self._edit, GATES[self._kind], self._sizes.hidden
        pick = self._constant(direction)
        w, r = (
            self._make("Transpose", self._make("Gather", edit.input(i), pick, axis=0), perm=[1, 0])
            for i in (1, 2)
        )
        inputs = self._make("MatMul", edit.data(), w)
        hidden_bias = None
        if edit.input(3) is not None:
            both = self._make("Gather", edit.input(3), pick, axis=0)
            size = gates * hidden
            inputs = self._make("Add", inputs, self._slice(both, 0, size))
            hidden_bias = self._slice(both, size, 2 * size)
            if self._kind != "GRU":
                inputs, hidden_bias = self._make("Add", inputs, hidden_bias), None
        peepholes = None
        if self._kind == "LSTM" and edit.input(7) is not None:
            row = self._make("Gather", edit.input(7), pick, axis=0)
            peepholes = [self._slice(row, k * hidden, (k + 1) * hidden) for k in range(3)]
        return _Weights(r, hidden_bias, peepholes), inputs

    def _initial(self, index: int, direction: int) -> ir.Value:
        given = self._edit.input(index)
        if given is not None:
            return self._make("Gather", given, self._constant(direction), axis=0)
        dtype = self._edit.data().dtype
        assert dtype is not None
        shape = (self._sizes.batch, self._sizes.hidden)
        return self._edit.constant(np.zeros(shape), dtype.numpy())

    def _step(
        self,
        gates: ir.Value,
        state: tuple[ir.Value, ...],
        weights: _Weights,
        functions: list[Activation],
    ) -> tuple[ir.Value, ...]:
        if self._kind == "GRU":
            return (self._gru(gates, state[0], weights, functions),)
        total = self._make("Add", gates, self._make("MatMul", state[0], weights.recurrent))
        if self._kind == "RNN":
            return (self._apply(functions[0], total),)
        return self._lstm(total, state[1], weights, functions)

    def _lstm(
        self, total: ir.Value, cell: ir.Value, weights: _Weights, functions: list[Activation]
    ) -> tuple[ir.Value, ...]:
        f, g, h = functions
        i, o, forget, c = self._split(total, 4)
        peep = weights.peepholes
        if peep is not None:
            i = self._make("Add", i, self._make("Mul", peep[0], cell))
            forget = self._make("Add", forget, self._make("Mul", peep[2], cell))
        i = self._apply(f, i)
        if self._edit.node.attributes.get_int("input_forget", 0):
            forget = self._make("Sub", self._edit.scalar(1), i)
        else:
            forget = self._apply(f, forget)
        old, new = self._make("Mul", forget, cell), self._make("Mul", i, self._apply(g, c))
        cell = self._make("Add", old, new)
        if peep is not None:
            o = self._make("Add", o, self._make("Mul", peep[1], cell))
        # The cell state itself is not clipped, only what enters a gate.
        shown = self._apply(h, cell, clip=False)
        return self._make("Mul", self._apply(f, o), shown), cell

    def _gru(
        self, gates: ir.Value, h: ir.Value, weights: _Weights, functions: list[Activation]
    ) -> ir.Value:
        f, g = functions
        hidden = self._sizes.hidden
        from_x = self._split(gates, 3)
        recurrent, bias = weights.recurrent, weights.hidden_bias
        two = self._make("MatMul", h, self._slice(recurrent, 0, 2 * hidden, axis=1))
        if bias is not None:
            two = self._make("Add", two, self._slice(bias, 0, 2 * hidden))
        z, r = (
            self._apply(f, self._make("Add", x, part))
            for x, part in zip(from_x, self._split(two, 2), strict=False)
        )
        last = self._slice(recurrent, 2 * hidden, 3 * hidden, axis=1)
        after = self._edit.node.attributes.get_int("linear_before_reset", 0) == 1
        part = self._make("MatMul", h if after else self._make("Mul", r, h), last)
        if bias is not None:
            part = self._make("Add", part, self._slice(bias, 2 * hidden, 3 * hidden))
        if after:
            part = self._make("Mul", r, part)
        new = self._apply(g, self._make("Add", from_x[2], part))
        rest = self._make("Sub", self._edit.scalar(1), z)
        return self._make("Add", self._make("Mul", rest, new), self._make("Mul", z, h))

    def _apply(self, function: Activation, x: ir.Value, *, clip: bool = True) -> ir.Value:
        if clip and self._clip:
            x = self._make("Clip", x, self._edit.scalar(-self._clip), self._edit.scalar(self._clip))
        self.nodes += function.nodes(self._edit, x)
        return self.nodes[-1].outputs[0]

    def _mask(self, step: int) -> ir.Value:
        if step not in self._masks:
            dtype = np.int32
            runs = self._make("Less", self._edit.constant(step, dtype), self._lengths)
            self._masks[step] = self._unsqueeze(runs, [1])
        return self._masks[step]

    def _split(self, value: ir.Value, parts: int) -> list[ir.Value]:
        sizes = self._constant([self._sizes.hidden] * parts)
        node = self._edit.ctx.rewriter.node("Split", [value, sizes], {"axis": 1}, num_outputs=parts)
        self.nodes.append(node)
        return list(node.outputs)

    def _slice(self, value: ir.Value, start: int, end: int, axis: int = 0) -> ir.Value:
        return self._make("Slice", value, *(self._constant([n]) for n in (start, end, axis)))

    def _unsqueeze(self, value: ir.Value, axes: list[int]) -> ir.Value:
        return self._make("Unsqueeze", value, self._constant(axes))

    def _join(self, values: list[ir.Value], axis: int) -> ir.Value:
        return self._make("Concat", *values, axis=axis)

    def _constant(self, numbers: int | list[int]) -> ir.Value:
        return self._edit.constant(numbers)

    def _make(self, op_type: str, *inputs: ir.Value | None, **attributes: object) -> ir.Value:
        node = self._edit.make(op_type, *inputs, attributes=attributes)
        self.nodes.append(node)
        return node.outputs[0]
