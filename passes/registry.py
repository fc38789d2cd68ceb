"""All passes by name, and the recipes of the optimization levels. Loaded only when used."""

from __future__ import annotations

import importlib
from typing import Literal, get_args

from cannc.compiler.core.errors import UsageError, nearest
from cannc.passes.base import Pass

Level = Literal["O0", "O1", "O2"]
Precision = Literal["keep", "fp16", "mixed"]

PASSES: dict[str, str] = {
    # preparation
    "constant-inputs": "cannc.passes.cleanup.constant_inputs:ConstantInputs",
    "lower-quantized": "cannc.passes.legalize.quantized.lower:LowerQuantized",
    "expand-contrib": "cannc.passes.legalize.contrib.expand:ExpandContrib",
    "opset-to-18": "cannc.passes.opset.convert:OpsetTo18",
    # cleanup
    "inline-functions": "cannc.passes.cleanup.inline_functions:InlineFunctions",
    "fold-shapes": "cannc.passes.cleanup.fold_shapes:FoldShapes",
    "constant-if": "cannc.passes.cleanup.constant_if:ConstantIf",
    "fold-constants": "cannc.passes.cleanup.fold_constants:FoldConstants",
    "eliminate-identity": "cannc.passes.cleanup.eliminate_identity:EliminateIdentity",
    "merge-transposes": "cannc.passes.cleanup.merge_transposes:MergeTransposes",
    "common-subexpressions": "cannc.passes.cleanup.common_subexpressions:CommonSubexpressions",
    "deduplicate-initializers": (
        "cannc.passes.cleanup.deduplicate_initializers:DeduplicateInitializers"
    ),
    "dead-code": "cannc.passes.cleanup.dead_code:DeadCode",
    # fusion
    "fuse-conv-batchnorm": "cannc.passes.fusion.conv_batchnorm:FuseConvBatchNorm",
    "matmul-add-to-gemm": "cannc.passes.fusion.matmul_add:MatMulAddToGemm",
    "fuse-layer-norm": "cannc.passes.fusion.layer_norm:FuseLayerNorm",
    "fuse-rms-norm": "cannc.passes.fusion.rms_norm:FuseRmsNorm",
    "fuse-gelu": "cannc.passes.fusion.gelu:FuseGelu",
    "fuse-hardswish": "cannc.passes.fusion.hardswish:FuseHardSwish",
    "fuse-mish": "cannc.passes.fusion.mish:FuseMish",
    "fuse-add-rms-norm": "cannc.passes.fusion.add_rms_norm:FuseAddRmsNorm",
    "fuse-rotary": "cannc.passes.fusion.rotary:FuseRotary",
    # legalize
    "expand-reduce-norms": "cannc.passes.legalize.reduce_norms:ExpandReduceNorms",
    "expand-shape-range": "cannc.passes.legalize.shape_range:ExpandShapeRange",
    "expand-definitions": "cannc.passes.legalize.definitions:ExpandDefinitions",
    "explicit-attributes": "cannc.passes.legalize.explicit_attributes:ExplicitAttributes",
    "explicit-inputs": "cannc.passes.legalize.explicit_inputs:ExplicitInputs",
    "explicit-pads": "cannc.passes.legalize.pooling:ExplicitPads",
    "dilated-pooling": "cannc.passes.legalize.pooling:DilatedPooling",
    "remove-no-ops": "cannc.passes.legalize.no_ops:RemoveNoOps",
    "decompose-einsum": "cannc.passes.legalize.einsum:DecomposeEinsum",
    "floor-mod": "cannc.passes.legalize.floor_mod:FloorMod",
    "one-sided-isinf": "cannc.passes.legalize.is_inf:OneSidedIsInf",
    "arg-last-index": "cannc.passes.legalize.last_index:LastIndex",
    "pad-all-axes": "cannc.passes.legalize.pad_axes:PadAllAxes",
    "batch-gather-nd": "cannc.passes.legalize.gather_nd:BatchGatherND",
    "scatter-nd-reduction": "cannc.passes.legalize.scatter_nd:ScatterReduction",
    "slice-assignment": "cannc.passes.legalize.slice_assignment:SliceAssignment",
    "gemm-alpha": "cannc.passes.legalize.gemm_alpha:GemmAlpha",
    "general-selu": "cannc.passes.legalize.selu:GeneralSelu",
    "resize-by-constants": "cannc.passes.legalize.resize:ResizeByConstants",
    "recurrent-layout": "cannc.passes.legalize.recurrent:RecurrentLayout",
    "unroll-recurrent": "cannc.passes.legalize.recurrent:UnrollRecurrent",
    "unfreeze-batch": "cannc.passes.legalize.frozen_batch:UnfreezeBatch",
    "unroll-loop": "cannc.passes.legalize.unroll_loop:UnrollLoop",
    "unroll-scan": "cannc.passes.legalize.unroll_scan:UnrollScan",
    "resolve-sequences": "cannc.passes.legalize.sequences:ResolveSequences",
    "resolve-optionals": "cannc.passes.legalize.optionals:ResolveOptionals",
    # precision
    "float16": "cannc.passes.precision.half:Float16",
}
"""Pass name -> ``module:Class``. A test checks the table against the files."""

PREPARE: tuple[str, ...] = (
    "constant-inputs",
    "inline-functions",
    "lower-quantized",
    "expand-contrib",
    "opset-to-18",
    "lower-quantized",
    "expand-contrib",
    "unfreeze-batch",
)
"""Run once, at every level. What opsets below 11 cannot express is written out at opset 18."""

CLEANUP: tuple[str, ...] = (
    "dead-code",
    "fold-shapes",
    "fold-constants",
    "constant-if",
    "eliminate-identity",
    "merge-transposes",
    "deduplicate-initializers",
    "common-subexpressions",
)
"""Run until nothing changes, at the start and after every other group."""

UNROLL: tuple[str, ...] = (
    "expand-definitions",
    "unfreeze-batch",
    "unroll-loop",
    "unroll-scan",
    "resolve-sequences",
    "resolve-optionals",
)
"""Cures that lay the graph flat; run at every level, together with cleanup, until nothing changes:
a trip count or a sequence may be known only after an outer loop is gone."""

LEGALIZE: tuple[str, ...] = (
    "expand-reduce-norms",
    "expand-shape-range",
    "explicit-attributes",
    "explicit-inputs",
    "explicit-pads",
    "dilated-pooling",
    "remove-no-ops",
    "decompose-einsum",
    "floor-mod",
    "one-sided-isinf",
    "arg-last-index",
    "pad-all-axes",
    "batch-gather-nd",
    "scatter-nd-reduction",
    "slice-assignment",
    "gemm-alpha",
    "general-selu",
    "resize-by-constants",
    "recurrent-layout",
    "unroll-recurrent",
)
"""Cures that the target needs; run at every level (D25), until nothing changes."""

_ADJACENT = (
    "fuse-gelu",
    "fuse-hardswish",
    "fuse-conv-batchnorm",
    "matmul-add-to-gemm",
    "fuse-layer-norm",
    "fuse-rms-norm",
)
_ACROSS_LAYERS = ("fuse-mish", "fuse-add-rms-norm", "fuse-rotary")

FUSION: dict[Level, tuple[str, ...]] = {
    "O0": (),
    "O1": _ADJACENT,
    "O2": (*_ADJACENT, *_ACROSS_LAYERS),
}
"""O1 keeps every hidden state between layers; O2 fuses all that the target has kernels for."""


def load_pass(name: str) -> Pass:
    """Return the pass of that name.

    Raises:
        UsageError: ``PASS001`` no such pass.
    """
    if name not in PASSES:
        raise UsageError(
            "PASS001",
            f"no pass is called '{name}'{nearest(name, PASSES)}",
            where="--passes",
            fix=f"known passes: {', '.join(sorted(PASSES))}",
        )
    module, _, attribute = PASSES[name].partition(":")
    cls: type[Pass] = getattr(importlib.import_module(module), attribute)
    return cls()


def check_level(level: str) -> Level:
    """Return a valid level.

    Raises:
        UsageError: ``PASS002`` no such level.
    """
    for known in get_args(Level):
        if level == known:
            return known  # type: ignore[no-any-return]
    raise UsageError("PASS002", f"no optimization level '{level}'", fix="use O0, O1 or O2")
