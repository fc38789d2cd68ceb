"""cannc: PyTorch and ONNX models into offline ``.om`` artifacts for Ascend NPUs.

    import cannc

    unit = cannc.convert("model.onnx")
    unit = cannc.optimize(unit, level="O2", soc="Ascend910B4", precision="fp16")
    unit = cannc.quantize(unit)
    om = cannc.compile(unit, "model.om", backend="host")
    report = cannc.compare("model.onnx", om)

The names below are loaded when they are first used: ``import cannc`` itself is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "CanncError": "cannc.compiler.core.errors",
    "Chain": "cannc.compiler.runtime.chain",
    "CompileUnit": "cannc.compiler.core.unit",
    "Compiler": "cannc.compiler.classes",
    "GraphSplitter": "cannc.compiler.classes",
    "QuantEvaluator": "cannc.compiler.classes",
    "Quantizer": "cannc.compiler.classes",
    "Session": "cannc.compiler.runtime.session",
    "build": "cannc.compiler.build",
    "check": "cannc.compiler.pipeline",
    "compare": "cannc.golden.compare",
    "compile": "cannc.compiler.pipeline",
    "convert": "cannc.compiler.pipeline",
    "load": "cannc.compiler.core.unit",
    "optimize": "cannc.compiler.pipeline",
    "quantize": "cannc.compiler.pipeline",
    "rule": "cannc.passes.rules",
    "split": "cannc.compiler.pipeline",
}

__all__ = [*_PUBLIC, "__version__"]

if TYPE_CHECKING:
    from cannc.compiler.build import build as build
    from cannc.compiler.classes import Compiler as Compiler
    from cannc.compiler.classes import GraphSplitter as GraphSplitter
    from cannc.compiler.classes import QuantEvaluator as QuantEvaluator
    from cannc.compiler.classes import Quantizer as Quantizer
    from cannc.compiler.core.errors import CanncError as CanncError
    from cannc.compiler.core.unit import CompileUnit as CompileUnit
    from cannc.compiler.core.unit import load as load
    from cannc.compiler.pipeline import check as check
    from cannc.compiler.pipeline import compile as compile
    from cannc.compiler.pipeline import convert as convert
    from cannc.compiler.pipeline import optimize as optimize
    from cannc.compiler.pipeline import quantize as quantize
    from cannc.compiler.pipeline import split as split
    from cannc.compiler.runtime.chain import Chain as Chain
    from cannc.compiler.runtime.session import Session as Session
    from cannc.golden.compare import compare as compare
    from cannc.passes.rules import rule as rule


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        msg = f"module 'cannc' has no attribute '{name}'"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
