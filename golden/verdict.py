"""When a difference is too large (D5).

A float tensor passes if its direction, its magnitude and its largest error are all within bounds:
``cosine >= 0.999``, ``rel_l2 <= tol`` and ``max_abs <= 1e-6 + 10 tol max|golden|``, and if NaN and
Inf stand at the same places. Cosine alone misses a wrong scale, and a bound per element alone
fails on elements near zero. Integers and bools have to be equal.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase

import onnx_ir as ir

from cannc.compiler.core.errors import UsageError, nearest
from cannc.golden.metrics import Metrics

_MIN_COSINE = 0.999
_MAX_ABS_FLOOR = 1e-6
_MAX_ABS_FACTOR = 10.0
_JUST_TOO_LARGE = 1.001


class Grade(enum.IntEnum):
    """What limits the precision of a value, the coarsest last."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT8 = 2

    @property
    def tolerance(self) -> float:
        """Tolerance on the relative L2 error."""
        return (1e-3, 1e-2, 5e-2)[self]

    @property
    def label(self) -> str:
        """How reports spell it."""
        return ("float32", "float16", "int8 weights")[self]

    @classmethod
    def of(cls, dtype: ir.DataType | None) -> Grade:
        """Return the grade of values stored in `dtype`.

        bfloat16 and smaller floats keep at most 8 bits of mantissa, so they count as int8 does.
        """
        if dtype is None or not dtype.is_floating_point() or dtype.bitwidth >= 32:
            return cls.FLOAT32
        return cls.FLOAT16 if dtype == ir.DataType.FLOAT16 else cls.INT8


@dataclass(frozen=True)
class Thresholds:
    """Bounds that the user set; None leaves the default rule of the module docstring.

    Attributes:
        cosine: Smallest cosine similarity.
        rel_l2: Largest relative L2 error; also the ``tol`` of the default bound on `max_abs`.
        max_abs: Largest absolute difference.
        max_rel: Largest relative difference of an element.
        rmse: Largest root mean square error.
        snr_db: Smallest signal-to-noise ratio, decibel.
        layers: Bounds of layers whose name, node or module path matches a pattern; where several
            match, later ones go over earlier ones.
    """

    cosine: float | None = None
    rel_l2: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    rmse: float | None = None
    snr_db: float | None = None
    layers: tuple[tuple[str, Thresholds], ...] = ()

    @classmethod
    def of(cls, bounds: Thresholds | Mapping[str, float] | Iterable[str] | None) -> Thresholds:
        """Read bounds: a mapping, or texts such as ``cosine=0.999``.

        A pattern before the metric limits a bound to some layers: ``encoder.*:rel_l2=0.05``.

        Raises:
            UsageError: ``CMP001`` unknown metric or not a number.
        """
        if bounds is None or isinstance(bounds, Thresholds):
            return bounds or cls()
        pairs = bounds.items() if isinstance(bounds, Mapping) else map(_split, bounds)
        known = [f.name for f in fields(cls) if f.name != "layers"]
        found: dict[str, dict[str, float]] = {"": {}}
        for key, value in pairs:
            pattern, _, name = key.rpartition(":")
            if name not in known:
                what = f"no metric '{name}'{nearest(name, known)}"
                raise UsageError("CMP001", what, fix=f"use one of {', '.join(known)}")
            found.setdefault(pattern, {})[name] = _number(key, value)
        everywhere = found.pop("")
        layers = tuple((pattern, cls(**own)) for pattern, own in found.items())  # type: ignore[arg-type]
        return cls(**everywhere, layers=layers)

    def of_layer(self, *names: str) -> Thresholds:
        """Return the bounds of a layer that goes by any of `names`."""
        own = self
        for pattern, bounds in self.layers:
            if any(fnmatchcase(name, pattern) for name in names if name):
                own = replace(own, **bounds.set_bounds())  # type: ignore[arg-type]
        return replace(own, layers=())

    def set_bounds(self) -> dict[str, float]:
        """Return only the bounds that were set, in the spelling that `of` reads."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "layers"}
        found = {name: value for name, value in values.items() if value is not None}
        for pattern, bounds in self.layers:
            found |= {f"{pattern}:{name}": v for name, v in bounds.set_bounds().items()}
        return found

    def tolerance(self, grade: Grade) -> float:
        """Return the tolerance on the relative L2 error."""
        return grade.tolerance if self.rel_l2 is None else self.rel_l2


@dataclass(frozen=True)
class Judgement:
    """Whether a pair passes, and how far it is from the bound.

    Attributes:
        severity: Largest ratio of a figure to its bound: above 1 fails, 0 means equal. It ranks
            layers of different precision on one scale.
        reasons: Why it fails; empty when it passes.
    """

    severity: float
    reasons: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every bound holds."""
        return not self.reasons


def judge(metrics: Metrics, grade: Grade, thresholds: Thresholds | None = None) -> Judgement:
    """Apply the rule to one pair of tensors."""
    if metrics.exact:
        return _judge_exact(metrics, grade)
    bounds = thresholds or Thresholds()
    tol = bounds.tolerance(grade)
    max_abs = bounds.max_abs
    if max_abs is None:
        max_abs = _MAX_ABS_FLOOR + _MAX_ABS_FACTOR * tol * metrics.golden_max
    min_cosine = _MIN_COSINE if bounds.cosine is None else bounds.cosine
    checks = [
        _Check("1 - cosine", 1.0 - metrics.cosine, 1.0 - min_cosine),
        _Check("relative L2", metrics.rel_l2, tol),
        _Check("max abs", metrics.max_abs, max_abs),
    ]
    if bounds.max_rel is not None:
        checks.append(_Check("max rel", metrics.max_rel, bounds.max_rel))
    if bounds.rmse is not None:
        checks.append(_Check("RMSE", metrics.rmse, bounds.rmse))
    if bounds.snr_db is not None:
        # As noise over signal, so that smaller is better here too.
        noise, allowed = _noise(metrics.snr_db), _noise(bounds.snr_db)
        checks.append(_Check("noise/signal", noise, allowed))
    reasons = [check.reason for check in checks if check.value > check.bound]
    severity = max(check.ratio for check in checks)
    if metrics.disagreements:
        reasons.insert(0, f"{metrics.disagreements} NaN or Inf that the other side does not have")
        severity = math.inf
    return Judgement(severity, tuple(reasons))


@dataclass(frozen=True)
class _Check:
    label: str
    value: float
    bound: float

    @property
    def ratio(self) -> float:
        if self.value <= 0.0:
            return 0.0
        return self.value / self.bound if self.bound > 0.0 else math.inf

    @property
    def reason(self) -> str:
        return f"{self.label} {self.value:.3g} > {self.bound:.3g}"


def _judge_exact(metrics: Metrics, grade: Grade) -> Judgement:
    if not metrics.mismatches:
        return Judgement(0.0)
    reason = f"{metrics.mismatches} of {metrics.elements} elements differ"
    # Any difference fails, but one flipped bit of a mask must not outrank every float layer.
    return Judgement(max(_JUST_TOO_LARGE, metrics.rel_l2 / grade.tolerance), (reason,))


def _noise(snr_db: float) -> float:
    return 10.0 ** (-snr_db / 10.0) if math.isfinite(snr_db) else (0.0 if snr_db > 0 else math.inf)


def _split(text: str) -> tuple[str, str]:
    name, _, value = text.rpartition("=") if "=" in text else (text, "", "")
    return name.strip(), value


def _number(name: str, value: float | str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise UsageError(
            "CMP001", f"threshold of {name} is not a number: '{value}'", fix=f"e.g. {name}=0.01"
        )
    return number
