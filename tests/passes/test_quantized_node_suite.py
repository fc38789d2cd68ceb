"""ONNX's own node tests of quantized operators: legal afterwards, with the expected outputs."""

from __future__ import annotations

import functools
import importlib
import warnings

import numpy as np
import onnx
import pytest
from tests.support.contrib import legal, refusals
from tests.support.runner import run_plain

_MODULES = (
    "quantizelinear dequantizelinear dynamicquantizelinear matmulinteger convinteger"
    " qlinearmatmul qlinearconv"
)
_PREFIXES = tuple(f"test_{module}" for module in _MODULES.split())
_UNREADABLE = ("e4m3fn", "e5m2", "int4", "int2", "float4e2m1")
"""Dtypes that the parser cannot hold, or that nothing computes with (float8, int4)."""


@functools.cache
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow on purpose while they are made
        node = importlib.import_module("onnx.backend.test.case.node")
        for module in _MODULES.split():
            importlib.import_module(f"onnx.backend.test.case.node.{module}")
    found = [case for case in node._NodeTestCases if case.name.startswith(_PREFIXES)]
    return {case.name: case for case in found if "expanded" not in case.name}


def _is_readable(name):
    return not any(dtype in name for dtype in _UNREADABLE)


@pytest.mark.parametrize("name", [name for name in cases() if _is_readable(name)])
def test_expected_outputs(name):
    case = cases()[name]
    inputs, outputs = case.data_sets[0]
    names = [value.name for value in case.model.graph.input]
    feeds = dict(zip(names, map(np.asarray, inputs), strict=True))
    actual = run_plain(legal(case.model).model, feeds)
    for given, expected in zip(actual.values(), outputs, strict=True):
        is_proto = isinstance(expected, onnx.TensorProto)
        array = onnx.numpy_helper.to_array(expected) if is_proto else expected
        assert given.dtype == array.dtype
        np.testing.assert_allclose(given, array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in cases() if not _is_readable(name)])
def test_what_cannot_be_read_is_refused_with_the_reason(name):
    (reason,) = set(refusals(cases()[name].model))
    assert "no dtype of quantized values" in reason or "are stored" in reason


def test_the_suite_is_there():
    assert len(cases()) > 40
    assert sum(map(_is_readable, cases())) > 20
