"""Read an offline model of any generation; a host artifact gives its ONNX model back.

Opening reads the header and the partition table; everything else is read when asked for, and
weights stay in the file.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
from google.protobuf.message import DecodeError

from cannc.compiler.core.errors import UsageError
from cannc.compiler.om import own
from cannc.compiler.om.attributes import to_dict, typed
from cannc.compiler.om.compression import Dictionary, decompress
from cannc.compiler.om.decode import decode_model, guarded
from cannc.compiler.om.faults import damaged
from cannc.compiler.om.gear_merge import fingerprints, read_gears
from cannc.compiler.om.gears import GearSet
from cannc.compiler.om.header import BUNDLE, FLOW, HEADER_BYTES, MAGIC, VERSION_2, Header
from cannc.compiler.om.inout_info import InOutInfo
from cannc.compiler.om.kernels import (
    CUSTOM_OP_MAGIC,
    ITEM_MAGIC,
    Binary,
    read_kernels,
    read_libraries,
)
from cannc.compiler.om.partitions import Partition, PartitionType, Table, read_tables
from cannc.compiler.om.proto import ModelDef
from cannc.compiler.om.ranges import Ranges, read_ranges
from cannc.compiler.om.tasks import TaskList, read_tasks
from cannc.compiler.om.tiling import Tiling, read_tilings
from cannc.compiler.om.weights import Weight, WeightRegion, weights_of

MODEL_DEF_LIMIT_BYTES = 2**31 - 1


@dataclass(frozen=True)
class OmFile:
    """An offline model.

    Attributes:
        path: The file, resolved.
        base: File offset of the header; not 0 for a model inside a bundle.
        header: The header.
        tables: Partition table of each model in the file; the first belongs to the root graph.
        root: For one of several models (see `models`), the first of them; else None.
    """

    path: Path
    base: int
    header: Header
    tables: tuple[Table, ...]
    root: OmFile | None = None

    @classmethod
    def open(cls, path: Path) -> OmFile:
        """Read header and partition table.

        Raises:
            ModelError: ``OM001`` not an offline model, ``OM002`` cut off or too long, ``OM003``
                broken partition table.
            UsageError: ``IO010`` no such file, ``IO011`` unreadable.
        """
        if not path.is_file():
            raise UsageError(
                "IO010",
                "no such file",
                where=str(path),
                fix="check the path; folders are not models",
            )
        try:
            return cls._open(path.resolve(), 0, path.stat().st_size)
        except OSError as error:
            raise UsageError(
                "IO011", "cannot read the file", where=str(path), why=str(error.strerror)
            ) from error

    @classmethod
    def _open(cls, path: Path, base: int, end: int) -> OmFile:
        with path.open("rb") as stream:
            stream.seek(base)
            header = Header.parse(stream.read(min(HEADER_BYTES, end - base)), path)
            _check_length(header, end - base, path)
            return cls(path, base, header, read_tables(stream, header, base, end, path))

    @property
    def partitions(self) -> Table:
        """The partitions of the root model."""
        return self.tables[0]

    @cached_property
    def models(self) -> tuple[OmFile, ...]:
        """Each model of the file by itself; the file itself where there is only one."""
        first = replace(self, tables=self.tables[:1]) if len(self.tables) > 1 else self
        rest = (replace(self, tables=(table,), root=first) for table in self.tables[1:])
        return (first, *rest)

    def find(self, kind: PartitionType) -> Partition | None:
        """Return the root model's first partition of a type, as loaders do."""
        return next((part for part in self.partitions if part.type == kind), None)

    def read(self, partition: Partition) -> bytes:
        """Return a partition's bytes."""
        with self.path.open("rb") as stream:
            stream.seek(partition.offset)
            return stream.read(partition.size)

    def mapped(self, partition: Partition) -> memoryview:
        """Return a partition's bytes without reading them before they are looked at."""
        with self.path.open("rb") as stream:
            pages = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(pages)[partition.offset : partition.offset + partition.size]

    @property
    def definition(self) -> Any:
        """The ``ge.proto.ModelDef`` of the root model, attribute compression undone.

        Raises:
            ModelError: ``OM004`` it is missing or unreadable, ``OM005`` encrypted, ``OM006`` its
                attribute dictionary is broken.
        """
        return self._decoded[0]

    @cached_property
    def _decoded(self) -> tuple[Any, Dictionary | None]:
        """The definition, and the dictionary that later models of the file may use too."""
        definition = self._parsed()
        inherited = self.root._decoded[1] if self.root else None
        return definition, decompress(definition, self.path, inherited)

    def _parsed(self) -> Any:
        if self.header.encrypted:
            why = "the header says that its contents are encrypted"
            raise damaged("OM005", "the model is encrypted", self.path, why, "ask for a plain file")
        part = self.find(PartitionType.MODEL_DEF)
        if part is None:
            kinds = ", ".join(p.name for p in self.partitions)
            if self.header.model_type in (FLOW, BUNDLE):
                kinds += "; it is a container of several models"
            raise damaged("OM004", "there is no model definition", self.path, f"found {kinds}")
        if part.size > MODEL_DEF_LIMIT_BYTES:
            why = f"{part.size} bytes, protobuf ends at 2 GB"
            raise damaged("OM004", "the model definition cannot be read", self.path, why)
        definition = ModelDef()
        try:
            definition.ParseFromString(self.read(part))
        except DecodeError as error:
            why = f"its {part.size} bytes are no ge.proto.ModelDef"
            raise damaged("OM004", "the model definition cannot be read", self.path, why) from error
        return definition

    @cached_property
    def model_attributes(self) -> dict[str, Any]:
        """The model's attributes as Python values."""
        return to_dict(self.definition.attr)

    @property
    def is_host(self) -> bool:
        """Is this a host artifact of ours, without device code?"""
        kind = typed(self.definition.attr, own.ARTIFACT_KIND, "s", "")
        return bool(kind == own.HOST_ONLY)

    @property
    def weight_region(self) -> WeightRegion:
        """Where the root model's weights are."""
        part = self.find(PartitionType.WEIGHTS_DATA)
        return WeightRegion(self.path, *((part.offset, part.size) if part else (0, 0)))

    @cached_property
    def interface(self) -> InOutInfo | None:
        """MODEL_INOUT_INFO; None in files from before its introduction."""
        part = self.find(PartitionType.MODEL_INOUT_INFO)
        return InOutInfo.parse(self.read(part), self.path) if part else None

    @cached_property
    def tasks(self) -> TaskList | None:
        """Tasks of the root model; None when there are none or in a format that is unknown."""
        part = self.find(PartitionType.TASK_INFO)
        return read_tasks(self.read(part)) if part else None

    @cached_property
    def kernels(self) -> tuple[Binary, ...]:
        """Kernels of the root model: AI Core, custom AICPU, custom ops."""
        found: list[Binary] = []
        for kind, magic in _KERNEL_STORES.items():
            part = self.find(kind)
            found += read_kernels(self.mapped(part), self.path, magic) if part else ()
        return tuple(found)

    @cached_property
    def libraries(self) -> tuple[Binary, ...]:
        """Shared libraries that travel with the model."""
        part = self.find(PartitionType.SO_BINS)
        return read_libraries(self.mapped(part), self.path) if part else ()

    @cached_property
    def tilings(self) -> tuple[Tiling, ...]:
        """Precomputed tilings of the root model."""
        part = self.find(PartitionType.TILING_DATA)
        return read_tilings(self.read(part), self.path) if part else ()

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        """The constants of all graphs of the root model."""
        return tuple(weights_of(self.definition))

    @cached_property
    def bundled(self) -> tuple[OmFile, ...]:
        """The whole files inside a bundle or flow model; empty for any other file.

        Parts of a flow model in another format are left out.
        """
        parts = [p for p in self.partitions if p.type == _MEMBERS.get(self.header.model_type)]
        if self.header.model_type == FLOW:
            parts = [p for p in parts if bytes(self.mapped(p)[: len(MAGIC)]) == MAGIC]
        return tuple(self._open(self.path, p.offset, p.offset + p.size) for p in parts)

    @cached_property
    def gears(self) -> GearSet | None:
        """The gears of a host artifact; None when it has none.

        Raises:
            ModelError: ``OM007`` they are damaged.
        """
        return guarded(lambda: read_gears(self.definition), self.path)

    @cached_property
    def gear_groups(self) -> tuple[int, ...]:
        """For each gear, the first gear whose graph is the same but for shapes.

        Raises:
            ModelError: ``OM007`` they are damaged.
        """
        marks = guarded(lambda: fingerprints(self.definition), self.path)
        return tuple(map(marks.index, marks))

    @cached_property
    def ranges(self) -> dict[str, Ranges]:
        """Input name -> least and most size per dimension, where the artifact states them.

        Raises:
            ModelError: ``OM007`` they are damaged.
        """
        return guarded(lambda: read_ranges(self.definition), self.path)

    def to_model(self, gear: int | None = None) -> ir.Model:
        """Return the ONNX model of a host artifact; its weights stay mapped from this file.

        Args:
            gear: Read the graph of this gear, with the dims open that gears fix; by default the
                one model that all gears are copies of.

        Raises:
            ModelError: ``OM010`` not a host artifact, ``OM007`` or ``OM008`` damaged, ``OM011``
                its gears are copies of different models.
        """
        if not self.is_host:
            raise damaged(
                "OM010",
                "not a host artifact of cannc",
                self.path,
                "a compiler for the device wrote it; its graph is not ONNX any more",
                "use it on a device, or compile the ONNX model again with --backend host",
            )
        return decode_model(self.definition, self.weight_region, gear)


_MEMBERS = {BUNDLE: PartitionType.BUNDLE_MODEL_INFO, FLOW: PartitionType.FLOW_SUBMODEL}
_KERNEL_STORES = {
    PartitionType.TBE_KERNELS: ITEM_MAGIC,
    PartitionType.CUST_AICPU_KERNELS: ITEM_MAGIC,
    PartitionType.CUSTOM_OPS: CUSTOM_OP_MAGIC,
}


def _check_length(header: Header, available: int, path: Path) -> None:
    body = available - HEADER_BYTES
    # Bundles count the header in (om-format.md section 3).
    bundle = header.model_type == BUNDLE and header.version >= VERSION_2
    if header.body_bytes not in ((body, available) if bundle else (body,)):
        why = f"the header promises {header.body_bytes} bytes after it, there are {body}"
        raise damaged("OM002", "the file has the wrong length", path, why)
