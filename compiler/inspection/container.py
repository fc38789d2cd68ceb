"""An .om file, read part by part; a part that cannot be read is named, with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import Message

from cannc.compiler.core.errors import ModelError
from cannc.compiler.inspection import graphs, interface, weights
from cannc.compiler.inspection.facts import (
    BinaryFacts,
    ContainerFacts,
    HeaderFacts,
    ModelFacts,
    PartitionFacts,
    TaskFacts,
    TilingFacts,
    Unread,
)
from cannc.compiler.om import own
from cannc.compiler.om.attributes import to_dict
from cannc.compiler.om.header import MODEL_TYPES, Header
from cannc.compiler.om.kernels import Binary
from cannc.compiler.om.memory import PLAN
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import MODEL_DEF_LIMIT_BYTES, OmFile

T = TypeVar("T")
U = TypeVar("U")

_COMPILER = (
    "soc_version",
    "arch_type",
    "target_type",
    "framework_type",
    "atc_version",
    "opp_version",
    "compiler_version",
    "host_env_os",
    "host_env_cpu",
    "atc_cmdline",
)
_RESOURCES = ("stream_num", "event_num", "notify_num", "label_num")
_SIZES = ("weights", "tbe_kernels", "cust_aicpu_kernels", "task_info", "so_store")
_REGIONS = "sub_memory_info"
_SIZE_LIST = "om_info_list"
_MEMORY_SUFFIX = "_size"
# Own attributes that are shown elsewhere: the model's metadata, function bodies, plan.
_SHOWN_ELSEWHERE = (own.META, own.FUNCTIONS, own.OPSET, own.PRODUCER, PLAN)


@dataclass
class Reading:
    """What is asked for, and what could not be read on the way.

    Attributes:
        top: How many of the largest weights to list; 0 lists all.
        with_graph: List ops and edges.
        unread: Filled on the way.
    """

    top: int = 20
    with_graph: bool = False
    unread: list[Unread] = field(default_factory=list)

    def attempt(self, part: str, action: Callable[[], T], default: U) -> T | U:
        """Return what `action` gives; note the part and the reason when it is damaged."""
        try:
            return action()
        except ModelError as error:
            self.unread.append(Unread(part, f"{error.what}: {error.why}", error.code))
            return default


def header_facts(header: Header) -> HeaderFacts:
    """Return the header in words."""
    return HeaderFacts(
        version=header.version_text,
        table_bits=64 if header.wide else 32,
        model_type=MODEL_TYPES.get(header.model_type, f"unknown {header.model_type}"),
        name=header.name,
        ir_version=header.ir_version,
        model_count=header.model_num,
        platform_version=header.platform_version,
        platform={0: "lite", 1: "mini"}.get(
            header.platform_type, f"unknown {header.platform_type}"
        ),
        encrypted=header.encrypted,
        dynamic=header.dynamic == 1,
        checks_host=header.checks_host == 1,
        online=header.generated_online != 0,
    )


def model_facts(file: OmFile, reading: Reading) -> ModelFacts:
    """Return the facts about one model (`OmFile.models`).

    Raises:
        ModelError: its definition is missing or cannot be read; codes of `OmFile.definition`.
    """
    definition = file.definition
    attributes = to_dict(definition.attr)
    info = reading.attempt("MODEL_INOUT_INFO", lambda: file.interface, None)
    described = interface.of_info(info) if info else interface.of_graph(definition)
    return ModelFacts(
        name=definition.name,
        inputs=described[0],
        outputs=described[1],
        gears=interface.gears(info, definition),
        graphs={graph.name: len(graph.op) for graph in definition.graph},
        ops=graphs.histogram(graphs.op_types(definition)),
        weights=weights.summarize(weights.of_definition(definition), reading.top),
        container=_container(file, attributes, reading),
        graph=graphs.of_definition(definition) if reading.with_graph else None,
    )


def partition_facts(file: OmFile) -> tuple[PartitionFacts, ...]:
    """Return the partitions of a model; offsets count from its file's first byte."""
    return tuple(
        PartitionFacts(int(part.type), part.name, part.offset - file.base, part.size)
        for part in file.partitions
    )


def _container(file: OmFile, attributes: dict[str, Any], reading: Reading) -> ContainerFacts:
    numbers = {name: v for name, v in attributes.items() if type(v) is int}
    memory = {name: v for name, v in numbers.items() if name.endswith(_MEMORY_SUFFIX)}
    resources = {name: numbers[name] for name in _RESOURCES if name in numbers}
    compiler = {n: attributes[n] for n in _COMPILER if isinstance(attributes.get(n), str)}
    sizes = attributes.get(_SIZE_LIST)
    named = {*memory, *resources, *compiler, _SIZE_LIST, _REGIONS}
    kernels = reading.attempt("kernels", lambda: file.kernels, ())
    libraries = reading.attempt("SO_BINS", lambda: file.libraries, ())
    tilings = reading.attempt("TILING_DATA", lambda: file.tilings, ())
    return ContainerFacts(
        partitions=partition_facts(file),
        op_count=sum(len(graph.op) for graph in file.definition.graph),
        compiler=compiler,
        memory=memory,
        memory_regions=_rows(attributes.get(_REGIONS)),
        resources=resources,
        sizes=dict(zip(_SIZES, sizes, strict=False)) if isinstance(sizes, list) else {},
        kernels=tuple(map(_binary, kernels)),
        libraries=tuple(map(_binary, libraries)),
        tasks=_tasks(file, reading),
        tilings=tuple(TilingFacts(**vars(tiling)) for tiling in tilings),
        attributes={
            name: _plain(value)
            for name, value in attributes.items()
            if name not in named and not name.startswith(_SHOWN_ELSEWHERE)
        },
    )


def _rows(value: Any) -> tuple[tuple[int, ...], ...]:
    is_table = isinstance(value, list) and all(isinstance(row, list) for row in value)
    return tuple(tuple(row) for row in value) if is_table else ()


def _binary(binary: Binary) -> BinaryFacts:
    return BinaryFacts(binary.name, binary.size, binary.kind, binary.vendor)


def _tasks(file: OmFile, reading: Reading) -> TaskFacts | None:
    part = file.find(PartitionType.TASK_INFO)
    if part is None:
        return None
    if part.size > MODEL_DEF_LIMIT_BYTES or file.tasks is None:
        why = f"its {part.size} bytes are no domi.ModelTaskDef, the format is not known"
        reading.unread.append(Unread("TASK_INFO", why))
        return None
    tasks = file.tasks
    return TaskFacts(
        count=len(tasks.tasks),
        by_type=graphs.histogram(task.type for task in tasks.tasks),
        kernels=graphs.histogram(task.kernel for task in tasks.tasks if task.kernel),
        memory_bytes=tasks.memory_size,
        weight_bytes=tasks.weight_size,
    )


def _plain(value: Any) -> Any:
    """Return an attribute as JSON can hold it; data and messages are given by their size."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Message):
        return f"<{value.DESCRIPTOR.name}, {value.ByteSize()} bytes>"
    # JSON has no word for these, and readers in other languages refuse them.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
