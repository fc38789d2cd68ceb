"""ONNX's own node cases through the host session.

A case gives what plain onnxruntime gives, bit for bit; the same case in float16 gives those numbers
within float16's precision, whether onnxruntime has a float16 kernel or not.
"""

import functools
import importlib
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, numpy_helper
from tests.support.runner import run_plain

from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.lowering import lower

# module/case; whole modules are run to make their cases, so slow ones are not here
_CASES = """
    abs/abs add/add and_/and2d argmax/argmax_default_axis_example
    batch_normalization/batchnorm_example clip/clip compress/compress_0 concat/concat_2d_axis_0
    constantofshape/constantofshape_float_ones conv/basic_conv_with_padding
    convtranspose/convtranspose cumsum/cumsum_1d depthtospace/depthtospace_example div/div
    dropout/dropout_default einsum/einsum_batch_matmul erf/erf expand/expand_dim_changed
    eyelike/eyelike_with_dtype gather/gather_0 gatherelements/gather_elements_0
    gathernd/gathernd_example_float32 gelu/gelu_tanh_1 gemm/gemm_all_attributes
    globalaveragepool/globalaveragepool gridsample/gridsample
    groupnormalization/group_normalization_epsilon gru/gru_defaults hardswish/hardswish
    identity/identity_sequence if_/if instance_normalization/instancenorm_epsilon
    layernormalization/layer_normalization_2d_axis1 leakyrelu/leakyrelu less/less
    logsoftmax/logsoftmax_axis_1 loop/loop11 lrn/lrn lstm/lstm_with_peepholes matmul/matmul_3d
    max/max_example maxunpool/maxunpool_export_with_output_shape mean/mean_example mish/mish
    mod/mod_mixed_sign_float16 nonzero/nonzero_example onehot/onehot_with_axis pow/pow_example
    prelu/prelu_broadcast rangeop/range_float_type_positive_delta
    reducel2/reduce_l2_keep_dims_example reducemax/reduce_max_keepdims_example
    reshape/reshape_allowzero_reordered resize/resize_upsample_scales_linear
    reversesequence/reversesequence_time rnn/rnn_seq_length scan/scan_sum
    scatterelements/scatter_elements_with_axis scatternd/scatternd_add
    sequence_map/sequence_map_add_2_sequences sequenceinsert/sequence_insert_at_back slice/slice
    softmax/softmax_axis_0 softplus/softplus splittosequence/split_to_sequence_1 squeeze/squeeze
    stringnormalizer/strnormalizer_nostopwords_nochangecase tan/tan
    tfidfvectorizer/tfidfvectorizer_tf_batch_onlybigrams_skip0 tile/tile topk/top_k
    transpose/transpose_all_permutations_2 trilu/tril unique/unique_not_sorted_without_axis
    unsqueeze/unsqueeze_two_axes where/where_example xor/xor2d
"""
CASES = _CASES.split()


@functools.cache
def case_of(path: str):
    module, name = path.split("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow on purpose while they are made
        node = importlib.import_module("onnx.backend.test.case.node")
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    return next(case for case in node._NodeTestCases if case.name == f"test_{name}")


def feeds_of(case) -> dict:
    names = [value.name for value in case.model.graph.input]
    arrays = [a if isinstance(a, list) else np.asarray(a) for a in case.data_sets[0][0]]
    return dict(zip(names, arrays, strict=True))


def assert_same(actual, expected, tolerance=None):
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other, tolerance)
    elif tolerance is None or expected.dtype.kind not in "f":
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    else:
        np.testing.assert_allclose(
            actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("path", CASES)
def test_as_plain_onnxruntime(path):
    case = case_of(path)
    feeds = feeds_of(case)
    expected = run_plain(case.model, feeds)
    actual = HostSession(ir.from_proto(case.model), fuse=False).run(feeds)
    assert list(actual) == list(expected)
    for name, value in expected.items():
        # onnxruntime has its own float16 kernels, which may round in other places.
        assert_same(actual[name], value, 2e-3 if "float16" in path else None)


@pytest.mark.parametrize("path", CASES)
def test_in_float16(path):
    case = case_of(path)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if not halve_graph(model.graph):
        pytest.skip("nothing in it is float32")
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.shape_inference.InferenceError:
        pytest.skip("the operator takes no float16 there")
    halved = ir.from_proto(model)
    onnx.checker.check_model(ir.to_proto(lower(halved, half="round")), full_check=True)
    feeds = {name: halve(value) for name, value in feeds_of(case).items()}
    actual = HostSession(halved).run(feeds)
    expected = run_plain(case.model, {name: widen(value) for name, value in feeds.items()})
    for name, value in expected.items():
        assert_same(actual[name], halve(value), 5e-3)


def widen(value):
    if isinstance(value, list):
        return [widen(item) for item in value]
    return value.astype(np.float32) if value.dtype == np.float16 else value


def halve(value):
    if isinstance(value, list):
        return [halve(item) for item in value]
    return value.astype(np.float16) if value.dtype == np.float32 else value


def halve_graph(graph: onnx.GraphProto) -> bool:
    """Turn float32 into float16 everywhere; False if the interface has none."""
    values = [*graph.input, *graph.output, *graph.value_info]
    found = [halve_type(value.type) for value in values]
    for tensor in graph.initializer:
        halve_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            halve_tensor(attribute.t)
            halve_graph(attribute.g)
            halve_type(attribute.tp)
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return any(found)


def halve_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def halve_type(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return halve_type(getattr(kind, which).elem_type)
    if which != "tensor_type" or kind.tensor_type.elem_type != TensorProto.FLOAT:
        return False
    kind.tensor_type.elem_type = TensorProto.FLOAT16
    return True
