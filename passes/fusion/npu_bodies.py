"""What each fused `npu` kernel computes, written in plain ONNX (D7).

One function text per operator, read from npu-ops.md sections 3 and 4. Common to all: inputs are
cast to float32, the formula is computed there, the result is cast back to the dtype of ``x``;
outputs that the fact sheet gives as float32 stay float32; constants that the kernel fixes stand in
the text whatever the model says. Only operators that mean the same from opset 15 on are used, so
one text serves every opset (ReduceSum takes its axes as an input since 13, ReduceMean since 18).
Shapes are restored with ``Reshape(.., Shape(x))``, which shape inference can follow.
"""

from __future__ import annotations

# The trailing dims that gamma covers are flattened into one. epsilon is 1e-6, always.
RMS_NORM = """
NPURmsNorm (x, gamma) => (y, rstd) {
    xf = Cast <to = 1> (x)
    gf = Cast <to = 1> (gamma)
    minus_one = Constant <value_ints = [-1]> ()
    count = Size (gamma)
    width = Reshape (count, minus_one)
    flat_shape = Concat <axis = 0> (minus_one, width)
    flat = Reshape (xf, flat_shape)
    flat_gamma = Reshape (gf, minus_one)
    square = Mul (flat, flat)
    total = ReduceSum <keepdims = 1> (square, minus_one)
    countf = Cast <to = 1> (count)
    mean = Div (total, countf)
    epsilon = Constant <value_float = 1e-6> ()
    shifted = Add (mean, epsilon)
    root = Sqrt (shifted)
    flat_rstd = Reciprocal (root)
    unit = Mul (flat, flat_rstd)
    scaled = Mul (unit, flat_gamma)
    shape = Shape (x)
    yf = Reshape (scaled, shape)
    y = CastLike (yf, x)
    zero = Constant <value_ints = [0]> ()
    rank = Shape (shape)
    gamma_shape = Shape (gamma)
    covered = Shape (gamma_shape)
    end = Sub (rank, covered)
    lead = Slice (shape, zero, end)
    ones = ConstantOfShape <value = int64[1] {1}> (covered)
    rstd_shape = Concat <axis = 0> (lead, ones)
    rstd = Reshape (flat_rstd, rstd_shape)
}"""

# The sum is rounded to the dtype of x before the statistics are taken, as the kernel does.
ADD_RMS_NORM = RMS_NORM.replace(
    "NPURmsNorm (x, gamma) => (y, rstd) {\n    xf = Cast <to = 1> (x)",
    """NPUAddRmsNorm (x1, x2, gamma) => (y, rstd, x) {
    x1f = Cast <to = 1> (x1)
    x2f = Cast <to = 1> (x2)
    sum = Add (x1f, x2f)
    x = CastLike (sum, x1)
    xf = Cast <to = 1> (x)""",
)

_GELU_TANH = """
    cubic = Constant <value_float = 0.044715> ()
    root_two_over_pi = Constant <value_float = 0.7978845608028654> ()
    square = Mul (v, v)
    cube = Mul (square, v)
    bent = Mul (cube, cubic)
    inner = Add (v, bent)
    scaled = Mul (inner, root_two_over_pi)
    tanh = Tanh (scaled)
    shifted = Add (tanh, one)
    halved = Mul (v, half)"""

# A string attribute cannot be compared before opset 19; the number of different strings can.
GELU_V2 = f"""
NPUGeluV2 <approximate: string = "none"> (x) => (y) {{
    v = Cast <to = 1> (x)
    one = Constant <value_float = 1.0> ()
    half = Constant <value_float = 0.5> ()
    given = Constant <value_string: string = @approximate> ()
    tanh_name = Constant <value_strings = ["tanh"]> ()
    one_element = Constant <value_ints = [1]> ()
    given_list = Reshape (given, one_element)
    both = Concat <axis = 0> (given_list, tanh_name)
    different = Unique (both)
    count = Size (different)
    one_int = Constant <value_int = 1> ()
    is_tanh = Equal (count, one_int)
    yf = If (is_tanh) <
        then_branch = by_tanh () => (y_tanh) {{{_GELU_TANH}
            y_tanh = Mul (halved, shifted)
        }},
        else_branch = by_erf () => (y_erf) {{
            root_two = Constant <value_float = 1.4142135623730951> ()
            ratio = Div (v, root_two)
            erf = Erf (ratio)
            shifted_erf = Add (erf, one)
            halved_erf = Mul (v, half)
            y_erf = Mul (halved_erf, shifted_erf)
        }}
    >
    y = CastLike (yf, x)
}}"""

FAST_GELU = """
NPUFastGelu (x) => (y) {
    xf = Cast <to = 1> (x)
    slope = Constant <value_float = 1.702> ()
    steep = Mul (xf, slope)
    gate = Sigmoid (steep)
    yf = Mul (xf, gate)
    y = CastLike (yf, x)
}"""

MISH = """
NPUMish (x) => (y) {
    xf = Cast <to = 1> (x)
    soft = Softplus (xf)
    gate = Tanh (soft)
    yf = Mul (xf, gate)
    y = CastLike (yf, x)
}"""

_HALVES = """
    zero = Constant <value_ints = [0]> ()
    last = Constant <value_ints = [-1]> ()
    two = Constant <value_ints = [2]> ()
    far = Constant <value_ints = [9223372036854775807]> ()
    width = Shape <start = -1> (x)
    middle = Div (width, two)
    left = Slice (xf, zero, middle, last)
    right = Slice (xf, middle, far, last)"""

ROTARY_MUL = f"""
NPURotaryMul (x, r1, r2) => (y) {{
    xf = Cast <to = 1> (x)
    cos = Cast <to = 1> (r1)
    sin = Cast <to = 1> (r2){_HALVES}
    negative = Neg (right)
    rotated = Concat <axis = -1> (negative, left)
    straight = Mul (xf, cos)
    turned = Mul (rotated, sin)
    yf = Add (straight, turned)
    y = CastLike (yf, x)
}}"""

# dim = -1, tanh form, the right half is activated: all fixed by the plugin.
GEGLU = f"""
NPUGeglu (x) => (y, gelu) {{
    xf = Cast <to = 1> (x){_HALVES}
    one = Constant <value_float = 1.0> ()
    half = Constant <value_float = 0.5> ()
    v = Identity (right){_GELU_TANH}
    geluf = Mul (halved, shifted)
    yf = Mul (left, geluf)
    y = CastLike (yf, x)
    gelu = CastLike (geluf, x)
}}"""

GROUP_NORM_SILU = """
NPUGroupNormSilu <num_groups: int = 0, eps: float = 1e-5>
(x, gamma, beta) => (y, mean, rstd) {
    xf = Cast <to = 1> (x)
    gf = Cast <to = 1> (gamma)
    bf = Cast <to = 1> (beta)
    count = Constant <value_int: int = @num_groups> ()
    minus_one = Constant <value_ints = [-1]> ()
    zero = Constant <value_ints = [0]> ()
    groups = Reshape (count, minus_one)
    group_shape = Concat <axis = 0> (zero, groups, minus_one)
    grouped = Reshape (xf, group_shape)
    width = Shape <start = 2> (grouped)
    widthf = Cast <to = 1> (width)
    total = ReduceSum <keepdims = 1> (grouped, minus_one)
    meanf = Div (total, widthf)
    centred = Sub (grouped, meanf)
    square = Mul (centred, centred)
    square_total = ReduceSum <keepdims = 1> (square, minus_one)
    variance = Div (square_total, widthf)
    epsilon = Constant <value_float: float = @eps> ()
    shifted = Add (variance, epsilon)
    root = Sqrt (shifted)
    rstdf = Reciprocal (root)
    unit = Mul (centred, rstdf)
    shape = Shape (x)
    channels = Shape <start = 1, end = 2> (x)
    by_channel_shape = Concat <axis = 0> (zero, channels, minus_one)
    by_channel = Reshape (unit, by_channel_shape)
    one_int = Constant <value_ints = [1]> ()
    column = Concat <axis = 0> (channels, one_int)
    gamma_column = Reshape (gf, column)
    beta_column = Reshape (bf, column)
    scaled = Mul (by_channel, gamma_column)
    moved = Add (scaled, beta_column)
    normed = Reshape (moved, shape)
    gate = Sigmoid (normed)
    yf = Mul (normed, gate)
    y = CastLike (yf, x)
    mean_flat = Squeeze (meanf, minus_one)
    mean = CastLike (mean_flat, x)
    rstd_flat = Squeeze (rstdf, minus_one)
    rstd = CastLike (rstd_flat, x)
}"""

# Row i belongs to group i / size; without groups one row of scales serves all (broadcast).
# Packed weights (int32, eight int4 each, the first in the lowest bits) are told from int8 ones by
# casting 256 to the weight's dtype, which gives 0 in int8.
WEIGHT_QUANT_MATMUL = """
WeightQuantBatchMatmulV2 <antiquant_group_size: int = 0, dtype: int = -1>
(x, weight, antiquant_scale, antiquant_offset) => (y) {
    minus_one = Constant <value_ints = [-1]> ()
    zero = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    probe_value = Constant <value_int = 256> ()
    probe_like = CastLike (probe_value, weight)
    probe = Cast <to = 7> (probe_like)
    is_packed = Equal (probe, probe_value)
    wf = If (is_packed) <
        then_branch = unpack () => (w4) {
            bits = Cast <to = 12> (weight)
            column = Unsqueeze (bits, minus_one)
            shifts = Constant <value = uint32[8] {0, 4, 8, 12, 16, 20, 24, 28}> ()
            moved = BitShift <direction = "RIGHT"> (column, shifts)
            sixteen = Constant <value = uint32 {16}> ()
            nibble = Mod (moved, sixteen)
            signed = Cast <to = 1> (nibble)
            eight = Constant <value_float = 8.0> ()
            lifted = Add (signed, eight)
            sixteen_f = Constant <value_float = 16.0> ()
            wrapped = Mod <fmod = 1> (lifted, sixteen_f)
            level = Sub (wrapped, eight)
            rows_shape = Constant <value_ints = [0, -1]> ()
            w4 = Reshape (level, rows_shape)
        },
        else_branch = plain () => (w8) {
            w8 = Cast <to = 1> (weight)
        }
    >
    scale_width = Shape <start = -1> (antiquant_scale)
    table_shape = Concat <axis = 0> (minus_one, scale_width)
    scale_rows = Reshape (antiquant_scale, table_shape)
    offset_rows = Reshape (antiquant_offset, table_shape)
    scale_table = Cast <to = 1> (scale_rows)
    offset_table = Cast <to = 1> (offset_rows)
    group = Constant <value_int: int = @antiquant_group_size> ()
    grouped = Greater (group, zero)
    size = Max (group, one)
    rows_list = Shape <start = 0, end = 1> (weight)
    rows = Squeeze (rows_list)
    span = Where (grouped, rows, one)
    row = Range (zero, span, one)
    index = Div (row, size)
    scale = Gather <axis = 0> (scale_table, index)
    offset = Gather <axis = 0> (offset_table, index)
    moved_weight = Add (wf, offset)
    w = Mul (moved_weight, scale)
    xf = Cast <to = 1> (x)
    yf = MatMul (xf, w)
    y = CastLike (yf, x)
}"""

# dst_dtype 1 is float16; sqrt mode does not exist here.
ANTI_QUANT = """
NPUAntiQuant <dst_dtype: int = 1> (x, scale, offset) => (y) {
    xf = Cast <to = 1> (x)
    sf = Cast <to = 1> (scale)
    of = Cast <to = 1> (offset)
    moved = Add (xf, of)
    yf = Mul (moved, sf)
    y = Cast <to = 10> (yf)
}"""

BODIES: dict[str, str] = {
    "NPURmsNorm": RMS_NORM,
    "NPUAddRmsNorm": ADD_RMS_NORM,
    "NPUGeluV2": GELU_V2,
    "NPUFastGelu": FAST_GELU,
    "NPUMish": MISH,
    "NPURotaryMul": ROTARY_MUL,
    "NPUGeglu": GEGLU,
    "NPUGroupNormSilu": GROUP_NORM_SILU,
    "WeightQuantBatchMatmulV2": WEIGHT_QUANT_MATMUL,
    "NPUAntiQuant": ANTI_QUANT,
}
"""Operator name -> function text without its opset line. Attributes stand with their defaults."""

OTHER_SPELLINGS: dict[tuple[str, str], str] = {("NPUGroupNormSilu", "group"): "num_groups"}
"""(operator, attribute) -> the name of the same attribute that bodies use."""
