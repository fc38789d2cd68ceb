"""Calibration data for tests, made of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from cannc.compiler.core.unit import load
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.ports import input_ports
from cannc.quant.calibration.load import load_calibration
from cannc.quant.calibration.samples import Calibration


def calibration_of(model: Any, samples: Iterable[Mapping[str, Any]]) -> Calibration:
    """Return samples that were checked against a model."""
    loaded = load(model).model
    return load_calibration(samples, loaded, partial(prepare_feeds, input_ports(loaded)))
