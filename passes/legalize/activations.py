"""Activation functions of recurrent cells, as nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from cannc.passes.opset.edit import Edit

_PLAIN = {name.lower(): name for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")}
_BY_ALPHA = {"elu": ("Elu", 1.0), "leakyrelu": ("LeakyRelu", 0.01)}
_BY_ALPHA["thresholdedrelu"] = ("ThresholdedRelu", 1.0)
_BY_BOTH = {"affine": (1.0, 0.0), "hardsigmoid": (0.2, 0.5), "scaledtanh": (1.0, 1.0)}
KNOWN = frozenset({*_PLAIN, *_BY_ALPHA, *_BY_BOTH})


class Activation:
    """One activation function with its parameters."""

    def __init__(self, name: str, alphas: Iterator[float], betas: Iterator[float]) -> None:
        """Take the parameters that the function uses from what is left of the node's."""
        self._name = name.lower()
        self._alpha = self._beta = 0.0
        if self._name in _BY_ALPHA:
            self._alpha = next(alphas, _BY_ALPHA[self._name][1])
        elif self._name in _BY_BOTH:
            alpha, beta = _BY_BOTH[self._name]
            self._alpha, self._beta = next(alphas, alpha), next(betas, beta)

    def nodes(self, edit: Edit, x: ir.Value) -> list[ir.Node]:
        """Return the nodes that apply it; the last one gives the result."""
        if self._name in _PLAIN:
            return [edit.make(_PLAIN[self._name], x)]
        if self._name in _BY_ALPHA:
            return [edit.make(_BY_ALPHA[self._name][0], x, attributes={"alpha": self._alpha})]
        if self._name == "hardsigmoid":
            attributes = {"alpha": self._alpha, "beta": self._beta}
            return [edit.make("HardSigmoid", x, attributes=attributes)]
        alpha, beta = edit.scalar(self._alpha), edit.scalar(self._beta)
        if self._name == "affine":
            scaled = edit.make("Mul", x, alpha)
            return [scaled, edit.make("Add", scaled.outputs[0], beta)]
        inner = edit.make("Mul", x, beta)
        curve = edit.make("Tanh", inner.outputs[0])
        return [inner, curve, edit.make("Mul", curve.outputs[0], alpha)]


def read(node: ir.Node, default: Sequence[str], directions: int) -> list[list[Activation]]:
    """Return the activations of each direction."""
    attributes = node.attributes
    names = list(attributes.get_strings("activations") or list(default) * directions)
    alphas = iter(attributes.get_floats("activation_alpha") or ())
    betas = iter(attributes.get_floats("activation_beta") or ())
    made = [Activation(name, alphas, betas) for name in names]
    return [made[i * len(default) : (i + 1) * len(default)] for i in range(directions)]


def unknown(node: ir.Node) -> str | None:
    """Return the name of an activation that is not known."""
    names = node.attributes.get_strings("activations") or ()
    return next((name for name in names if name.lower() not in KNOWN), None)
