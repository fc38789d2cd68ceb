"""Own attributes of host artifacts: what the graph protobuf has no place for (D12).

GE keeps unknown attributes, Netron lists those of ops, and nothing but this reader needs them. The
common prefix keeps them apart from ONNX attributes of the same op.
"""

from __future__ import annotations

from collections.abc import Mapping

from cannc.compiler.om.attributes import AttrMap, prefixed, put, put_prefixed, typed

PREFIX = "cannc_"

# Model
ARTIFACT_KIND = "cannc_artifact_kind"
HOST_ONLY = "host-only"
IR_VERSION = "cannc_ir_version"
PRODUCER = "cannc_producer."  # + name, version
MODEL_VERSION = "cannc_model_version"
MODEL_DOMAIN = "cannc_domain"
OPSET = "cannc_opset."  # + domain -> version
FUNCTIONS = "cannc_functions"  # list of serialized FunctionProto
GEARS = "cannc_gears"  # number of gears: the root graph chooses, each gear has the whole model

# Model, graph, op, tensor
META = "cannc_meta."  # + key: metadata_props
DOC = "cannc_doc"
NAME = "cannc_name"  # ONNX name, where it had to be changed to be unique

# Op
DOMAIN = "cannc_domain"
OVERLOAD = "cannc_overload"
OP_TYPE = "cannc_op_type"  # where op_type is a word that GE reserves
OUTPUTS = "cannc_outputs"  # ONNX value names
GRAPHS = "cannc_graphs"  # attribute name per entry of subgraph_name; "name[]" for a list
CAPTURES = "cannc_captures"  # how many of the last inputs only the nested graphs read
ATTRIBUTE_PROTOS = "cannc_attribute_protos"  # serialized AttributeProto of rare kinds
INPUT = "cannc_input"  # Const: position in the graph's inputs, which it is the default of
CAPTURE = "cannc_capture"  # Data of a nested graph: input of the parent op that it stands for

# Tensor descriptor
DTYPE = "cannc_dtype"  # real data type of what is stored as uint8
SHAPE = "cannc_shape"  # real dims of a packed tensor that is stored as a row of bytes
DIMS = "cannc_dims"  # names of symbolic dims, "" for the others
OPEN = "cannc_open_dims"  # dims that the model declares, where a gear has others
TYPE = "cannc_type"  # serialized TypeProto of sequences, optionals and types with denotations
QUANT = "cannc_quant."  # + parameter -> tensor name: quantization annotation


def put_notes(attrs: AttrMap, doc: str | None, metadata: Mapping[str, str]) -> None:
    """Store a documentation string and metadata, if there are any."""
    if doc:
        put(attrs, DOC, doc)
    put_prefixed(attrs, META, metadata)


def notes(attrs: AttrMap) -> tuple[str | None, dict[str, str]]:
    """Return what `put_notes` stored."""
    metadata = {k: v for k, v in prefixed(attrs, META).items() if isinstance(v, str)}
    return typed(attrs, DOC, "s", None), metadata
