"""The table of onnxruntime's operators that are written out, and the pass that does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cannc.passes.base import Numerics
from cannc.passes.legalize.contrib import (
    activations,
    group_query,
    matmul,
    multi_head,
    norms,
    rotary,
    self_attention,
)
from cannc.passes.legalize.contrib.writing import Expansion, WriteOut

_DOMAIN = "com.microsoft"
_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_FUSED_MATMUL = Expansion(
    matmul.fused_matmul, 2, attributes=("alpha", "transA", "transB", "transBatchA", "transBatchB")
)
_SIMPLIFIED = Expansion(
    norms.simplified_layer_norm, 2, attributes=("axis", "epsilon", "stash_type")
)
_LAYER_NORM = Expansion(
    norms.old_layer_norm, 3, attributes=("axis", "epsilon", "stash_type"), until=17
)

_MICROSOFT: dict[str, Expansion] = {
    "Attention": Expansion(
        self_attention.attention,
        6,
        2,
        (
            "num_heads", "qkv_hidden_sizes", "unidirectional", "scale", "mask_filter_value",
            "do_rotary", "rotary_embedding_dim", "past_present_share_buffer",
        ),
    ),
    "BiasGelu": Expansion(activations.bias_gelu, 2),
    "BiasSplitGelu": Expansion(activations.bias_split_gelu, 2),
    "EmbedLayerNormalization": Expansion(
        norms.embed_layer_norm, 9, 3, ("epsilon", "mask_index_type")
    ),
    "FastGelu": Expansion(activations.fast_gelu, 2),
    "FusedConv": Expansion(
        matmul.fused_conv, 4, attributes=(*_CONV, "activation", "activation_params")
    ),
    "FusedGemm": Expansion(
        matmul.fused_gemm,
        3,
        attributes=(
            "alpha", "beta", "transA", "transB",
            "activation", "activation_alpha", "activation_beta", "activation_gamma",
        ),
    ),
    "FusedMatMul": _FUSED_MATMUL,
    "Gelu": Expansion(activations.gelu, 1),
    "GroupQueryAttention": Expansion(
        group_query.group_query_attention,
        11,
        3,
        (
            "num_heads", "kv_num_heads", "scale", "softcap", "local_window_size", "do_rotary",
            "rotary_interleaved", "causal", "sliding_window_cache", "qk_output", "smooth_softmax",
            "kv_cache_bit_width", "k_quant_type", "v_quant_type",
        ),
    ),
    "MatMulNBits": Expansion(
        matmul.matmul_nbits,
        6,
        attributes=("K", "N", "bits", "block_size", "accuracy_level", "weight_prepacked"),
    ),
    "MultiHeadAttention": Expansion(
        multi_head.multi_head_attention,
        8,
        3,
        ("num_heads", "scale", "mask_filter_value", "unidirectional"),
    ),
    "QuickGelu": Expansion(activations.quick_gelu, 1, attributes=("alpha",)),
    "RotaryEmbedding": Expansion(
        rotary.rotary_embedding,
        4,
        attributes=(
            "interleaved", "num_heads", "rotary_embedding_dim", "is_packed_batching", "scale"
        ),
    ),
    "SkipLayerNormalization": Expansion(norms.skip_layer_norm, 5, 4, ("epsilon",)),
    "SkipSimplifiedLayerNormalization": Expansion(norms.skip_rms_norm, 4, 4, ("epsilon",)),
    "TransposeMatMul": _FUSED_MATMUL,
}  # fmt: skip


class ExpandContrib(WriteOut):
    """See the package."""

    name: ClassVar[str] = "expand-contrib"
    summary: ClassVar[str] = "operators of onnxruntime's domain written in ONNX's"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    table: ClassVar[Mapping[tuple[str, str], Expansion]] = {
        **{(_DOMAIN, op_type): expansion for op_type, expansion in _MICROSOFT.items()},
        ("", "LayerNormalization"): _LAYER_NORM,
        ("", "SimplifiedLayerNormalization"): _SIMPLIFIED,
    }
    reasons: ClassVar[Mapping[str, str]] = {
        _DOMAIN: "nobody has written this operator of onnxruntime out",
        "com.microsoft.nchwc": (
            "its layout is that of one machine: save the model with at most"
            " ORT_ENABLE_EXTENDED optimizations"
        ),
    }
