"""The facts about one file, as one typed tree; JSON and text are made from the same object.

Nothing in it depends on where the file lies or when it is read, so equal files give equal JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from cannc.compiler.inspection.graphs import Graph
from cannc.compiler.memory.plan import MemoryPlan

SCHEMA_VERSION = 1

Kind = Literal["host-only", "device", "graph-only", "kirin", "unknown", "encrypted"]


@dataclass(frozen=True)
class TensorFacts:
    """One input or output.

    Attributes:
        name: Its name.
        dtype: Data type, e.g. ``float16``.
        dims: Numbers, names of symbolic dims, -1 for unknown; None for unknown rank.
        layout: Layout in memory, where the file states one.
        size_bytes: Bytes; 0 when the file does not say.
        ranges: Lower and upper bound per dim; empty when not given.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...] | None
    layout: str = ""
    size_bytes: int = 0
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class GearFacts:
    """The shapes that a model with gears was compiled for.

    Attributes:
        kind: ``batch``, ``image size``, ``dims``, or ``unknown <n>``.
        rows: One per gear: what the dynamic dims are, in the order of the inputs.
        order: Input names in the order that the rows follow; may be empty.
        output_shapes: Shapes of outputs by gear, as the compiler wrote them.
    """

    kind: str
    rows: tuple[tuple[int, ...], ...]
    order: tuple[str, ...] = ()
    output_shapes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WeightFacts:
    """One constant.

    Attributes:
        name: Its name.
        used_by: First op that reads it, with the graph's name in front when it is a nested one.
        op_type: Type of that op; empty when nothing reads the constant.
        readers: How many ops read it.
        dtype: Data type as stored.
        dims: Shape as stored.
        layout: Layout as stored, where the file states one.
        place: ``weights+OFFSET``, ``inline``, or the name of another file and offset.
        size_bytes: Bytes.
    """

    name: str
    used_by: str
    op_type: str
    readers: int
    dtype: str
    dims: tuple[int, ...]
    layout: str
    place: str
    size_bytes: int


@dataclass(frozen=True)
class WeightSummary:
    """The constants of a model.

    Attributes:
        count: How many.
        total_bytes: Their sizes added up.
        stored_bytes: The same with constants that share their place counted once.
        by_dtype: Data type -> bytes.
        by_op: Op type that reads them -> bytes; a constant counts for its first reader.
        largest: The largest ones; all of them if asked for.
    """

    count: int = 0
    total_bytes: int = 0
    stored_bytes: int = 0
    by_dtype: dict[str, int] = field(default_factory=dict)
    by_op: dict[str, int] = field(default_factory=dict)
    largest: tuple[WeightFacts, ...] = ()


@dataclass(frozen=True)
class PartitionFacts:
    """One partition: its number and name, file offset and size in bytes."""

    type: int
    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class BinaryFacts:
    """A kernel or library inside the file."""

    name: str
    size_bytes: int
    kind: str = ""
    vendor: str = ""


@dataclass(frozen=True)
class TilingFacts:
    """One precomputed tiling; workspaces and data in bytes."""

    key: int
    block_dim: int
    workspaces: tuple[int, ...]
    data_bytes: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class TaskFacts:
    """What the device is told to do.

    Attributes:
        count: Number of tasks.
        by_type: Kind -> number.
        kernels: Kernel name -> number of tasks that run it; tasks that name one only.
        memory_bytes: Device memory that the list asks for.
        weight_bytes: Weights that it asks for.
    """

    count: int
    by_type: dict[str, int]
    kernels: dict[str, int]
    memory_bytes: int
    weight_bytes: int


@dataclass(frozen=True)
class Unread:
    """A part that is there but was not read, and why: encrypted, in an unknown format, broken."""

    part: str
    why: str
    code: str = ""


@dataclass(frozen=True)
class ContainerFacts:
    """What an .om says about one model beside its graph.

    Attributes:
        partitions: In file order.
        op_count: Ops in all graphs, with Data, Const and NetOutput.
        compiler: SoC, versions, framework and command line, as far as the file states them.
        memory: Sizes in bytes, attribute name -> number.
        memory_regions: Rows of type, base, size, fixed; the last one is for zero copy.
        resources: Streams, events, notifies, labels.
        sizes: Bytes by part, as the compiler wrote them (``om_info_list``).
        kernels: Kernels and custom ops.
        libraries: Shared libraries that travel with the model.
        tasks: None when there are none or they are in an unknown format.
        tilings: Precomputed tilings.
        attributes: All other model attributes; data is given by its size.
    """

    partitions: tuple[PartitionFacts, ...]
    op_count: int = 0
    compiler: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    memory_regions: tuple[tuple[int, ...], ...] = ()
    resources: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    kernels: tuple[BinaryFacts, ...] = ()
    libraries: tuple[BinaryFacts, ...] = ()
    tasks: TaskFacts | None = None
    tilings: tuple[TilingFacts, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFacts:
    """One model: a file has one, several when shapes are dynamic.

    Attributes:
        name: Model name.
        inputs: In order.
        outputs: In order.
        gears: None without gears.
        graphs: Graph name -> number of ops; the first is the root.
        ops: Op type -> number, without Data, Const and NetOutput; domains other than ONNX's own
            stand in front.
        weights: The constants.
        container: What only an .om has.
        graph: Ops and edges of all graphs, if asked for.
    """

    name: str
    inputs: tuple[TensorFacts, ...] = ()
    outputs: tuple[TensorFacts, ...] = ()
    gears: GearFacts | None = None
    graphs: dict[str, int] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)
    weights: WeightSummary = field(default_factory=WeightSummary)
    container: ContainerFacts | None = None
    graph: tuple[Graph, ...] | None = None


@dataclass(frozen=True)
class HeaderFacts:
    """The header of an .om.

    Attributes:
        version: ``1.0`` or ``2.0``.
        table_bits: 32 or 64, the width of the partition table.
        model_type: Name of the model type.
        name: Model name, at most 31 bytes.
        ir_version: Version of the model definition.
        model_count: Models in the file.
        platform_version: Version of the data format.
        platform: ``lite`` or ``mini``.
        encrypted: The contents cannot be read.
        dynamic: Shapes are known at run time only.
        checks_host: The loader compares operating system and CPU with the model's.
        online: Generated online.
    """

    version: str
    table_bits: int
    model_type: str
    name: str
    ir_version: int
    model_count: int
    platform_version: str
    platform: str
    encrypted: bool
    dynamic: bool
    checks_host: bool
    online: bool


@dataclass(frozen=True)
class ExternalFile:
    """A file beside an .onnx that holds weights.

    Attributes:
        location: As the model names it.
        tensors: How many are in it.
        needed_bytes: Where the last of them ends.
        found_bytes: Size of the file; None when it is not there or outside the model's folder.
    """

    location: str
    tensors: int
    needed_bytes: int
    found_bytes: int | None


@dataclass(frozen=True)
class FunctionFacts:
    """A model-local function."""

    name: str
    domain: str
    inputs: int
    outputs: int
    nodes: int


@dataclass(frozen=True)
class OnnxFacts:
    """What only an ONNX model has: an .onnx file or a host artifact, which carries one.

    Attributes:
        ir_version: Version of the ONNX format.
        opsets: Domain -> version; ``ai.onnx`` is the default domain.
        producer: Name and version of what made the model.
        domain: Model domain.
        model_version: Version that the producer gave the model.
        doc: Documentation string.
        functions: Model-local functions.
        external: Files that hold weights.
        metadata: Key -> value; long values are given by their size.
    """

    ir_version: int
    opsets: dict[str, int]
    producer: str
    domain: str
    model_version: int
    doc: str
    functions: tuple[FunctionFacts, ...]
    external: tuple[ExternalFile, ...]
    metadata: dict[str, str]


@dataclass(frozen=True)
class StageFacts:
    """One line of the model's history: a pass, and what it did."""

    name: str
    applied: int
    nodes_before: int
    nodes_after: int
    refusals: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class QuantFacts:
    """What quantization did; bytes of the quantized weights before and after."""

    scheme: str
    algo: str
    granularity: str
    soc: str
    quantized: int
    skipped: int
    bytes_before: int
    bytes_after: int
    worst_error: float


@dataclass(frozen=True)
class CanncFacts:
    """What cannc itself left in the model.

    Attributes:
        soc: SoC that it was built for.
        cann: CANN release that it was built for.
        version: Version of cannc that wrote the artifact.
        original: Digest of the original model's graph.
        fates: Kind of fate -> number of original tensors.
        history: The passes, in order.
        quant: None for a model that was not quantized.
    """

    soc: str = ""
    cann: str = ""
    version: str = ""
    original: str = ""
    fates: dict[str, int] = field(default_factory=dict)
    history: tuple[StageFacts, ...] = ()
    quant: QuantFacts | None = None


@dataclass(frozen=True)
class PackageFacts:
    """An om2 package: manifest and model descriptions as they are, and the files in it.

    Attributes:
        manifest: Contents of ``manifest.json``.
        models: ``model_<i>`` -> contents of its ``model_meta.json``.
        files: Name -> uncompressed bytes.
    """

    manifest: Any
    models: dict[str, Any]
    files: dict[str, int]


@dataclass(frozen=True)
class Inspection:
    """All that is known about one file.

    Attributes:
        schema_version: Version of this structure.
        name: File name, or entry of the container that holds it.
        size_bytes: Its size.
        format: ``om``, ``om2`` or ``onnx``.
        kind: What the file is; ``unknown`` for formats without device code of a known kind.
        reasons: Why it is that kind, in the order in which they were looked at.
        header: Header of an .om.
        models: The models.
        onnx: What only ONNX models have.
        cannc: What cannc left in the model.
        memory_plan: What a run of a host artifact needs, an estimate for the target.
        package: Contents of an om2 package.
        members: The files inside a bundle or flow model.
        unread: Parts that were not read, and why.
    """

    schema_version: int
    name: str
    size_bytes: int
    format: Literal["om", "om2", "onnx"]
    kind: Kind | Literal["onnx"]
    reasons: tuple[str, ...] = ()
    header: HeaderFacts | None = None
    models: tuple[ModelFacts, ...] = ()
    onnx: OnnxFacts | None = None
    cannc: CanncFacts | None = None
    memory_plan: MemoryPlan | None = None
    package: PackageFacts | None = None
    members: tuple[Inspection, ...] = ()
    unread: tuple[Unread, ...] = ()
