"""Whatever a model says, the check gives a verdict: odd attributes and shapes raise nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto as T
from tests.support.ops import check_node

from cannc.op_support.rules.conditions import CONDITIONS
from cannc.op_support.rules.forms import RISKS
from cannc.op_support.rules.fused import REJECTS
from cannc.op_support.rules.plugin import REFUSALS

OPERATORS = sorted(
    {key.split("::")[1] for key in (*REFUSALS, *RISKS)}
    | {op for op, _ in CONDITIONS}
    | {f"NPU{name}" for name in REJECTS}
    | {"WeightQuantBatchMatmulV2"}
)
INTS = ("axis", "ceil_mode", "storage_order", "num_outputs", "batch_dims", "size", "blocksize",
        "start", "end", "dtype", "fmod", "antialias", "layout", "num_groups", "dim",
        "antiquant_group_size", "exclude_outside", "sample_size", "num_layers")  # fmt: skip
LISTS = ("kernel_shape", "strides", "pads", "dilations", "axes", "perm", "output_size", "split")
TEXTS = ("mode", "auto_pad", "nearest_mode", "coordinate_transformation_mode", "reduction",
         "keep_aspect_ratio_policy")  # fmt: skip

small = st.integers(-3, 9)
attributes = st.dictionaries(st.sampled_from(INTS), small, max_size=5).flatmap(
    lambda ints: st.tuples(
        st.just(ints),
        st.dictionaries(
            st.sampled_from(LISTS), st.lists(small, min_size=1, max_size=4), max_size=4
        ),
        st.dictionaries(
            st.sampled_from(TEXTS),
            st.sampled_from(("", "nearest", "SAME_LOWER", "ceil", "half_pixel", "max", "cubic")),
            max_size=4,
        ),
    )
)
shape = st.none() | st.lists(st.integers(0, 9) | st.just("n"), max_size=5)
tensors = st.tuples(st.sampled_from((T.FLOAT, T.FLOAT16, T.INT64, T.BOOL)), shape)
constants = st.lists(small, max_size=4).map(lambda row: np.array(row, np.float32))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(OPERATORS),
    st.lists(tensors | constants | st.none(), max_size=5),
    attributes,
    st.sampled_from((8, 10, 11, 13, 18, 20)),
    st.integers(1, 3),
)
def test_every_model_gets_a_verdict(
    op_type: str, inputs: list[Any], named: Any, opset: int, outputs: int
) -> None:
    ints, lists, texts = named
    domain = "npu" if op_type.startswith(("NPU", "Weight")) else ""
    report = check_node(
        op_type, inputs, opset=opset, domain=domain, outputs=outputs, **ints, **lists, **texts
    )
    assert report.nodes == 1
    assert report.exit_code == int(report.verdict in ("refused", "silently_wrong"))
