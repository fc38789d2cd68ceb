"""``pipeline.json``: the parts of a split model and how they are wired.

Every value keeps the name that it has in the whole model, so a wire is a name and a source.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cannc.compiler.core.errors import ModelError, UsageError

PIPELINE_NAME = "pipeline.json"
Source: TypeAlias = "int | Literal['input']"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class Described(_Row):
    """A value at the border of a part or of the whole model.

    Attributes:
        name: Its name, the same everywhere.
        type: For people, e.g. ``float16[batch,128]``.
    """

    name: str
    type: str


class Wire(Described):
    """A value and where it comes from.

    Attributes:
        source: Index of the part that gives it (``from`` in the file); ``input``: the caller.
    """

    source: Source = Field(alias="from")


class PartRow(_Row):
    """One part.

    Attributes:
        file: Name of the ONNX file beside this one.
        sha256: Digest of that file; the name of its data file, if any, holds the data's digest.
        nodes: Number of nodes.
        layers: Layers of the whole model that lie in it.
        weight_bytes: Bytes of its weights.
        activation_bytes: Estimated peak of its activations.
        received_bytes: Estimated bytes that it gets from other parts.
        inputs: What it takes.
        outputs: What it gives.
    """

    file: str
    sha256: str
    nodes: int
    layers: tuple[str, ...]
    weight_bytes: int
    activation_bytes: int
    received_bytes: int
    inputs: tuple[Wire, ...]
    outputs: tuple[Described, ...]


class SharedRow(_Row):
    """A weight that several parts have a copy of."""

    name: str
    bytes: int
    parts: tuple[int, ...]


class TargetRow(_Row):
    """SoC and CANN release that the parts were prepared for."""

    soc: str
    cann: str | None = None


class PipelineFile(_Row):
    """The whole file.

    Attributes:
        schema_version: 1.
        original: Digest of the original model, as provenance knows it (D13).
        target: What the parts are meant for.
        strategy: How the cuts were chosen.
        inputs: Inputs of the whole model, in order.
        outputs: Outputs of the whole model, in order.
        parts: In the order in which they run.
        shared_weights: Weights that several parts have a copy of.
    """

    schema_version: Literal[1] = 1
    original: str
    target: TargetRow | None
    strategy: str
    inputs: tuple[Described, ...]
    outputs: tuple[Wire, ...]
    parts: tuple[PartRow, ...]
    shared_weights: tuple[SharedRow, ...] = ()

    def to_json(self) -> str:
        """Return the text of the file, the same for the same content."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> PipelineFile:
        """Read and check a file.

        Raises:
            UsageError: ``IO010`` no such file.
            ModelError: ``PIPE001`` not a pipeline file, or its wires lead nowhere.
        """
        if not path.is_file():
            raise UsageError("IO010", "no such file", where=str(path), fix="check the path")
        try:
            pipeline = cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"]))
            raise _not_a_pipeline(path, f"{at}: {first['msg']}" if at else first["msg"]) from error
        for fault in pipeline._faults():
            raise _not_a_pipeline(path, fault)
        return pipeline

    def _faults(self) -> list[str]:
        inputs = {row.name for row in self.inputs}
        given = [{row.name for row in part.outputs} for part in self.parts]
        faults = [] if self.parts else ["it has no parts"]
        readers = [*enumerate(self.parts), (len(self.parts), None)]
        for index, part in readers:
            for wire in self.outputs if part is None else part.inputs:
                if wire.source == "input":
                    known = wire.name in inputs
                else:
                    known = 0 <= wire.source < index and wire.name in given[wire.source]
                if not known:
                    faults.append(f"nothing before part {index} gives '{wire.name}'")
            if part is not None and Path(part.file).name != part.file:
                faults.append(f"'{part.file}' is not beside it")
        return faults


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _not_a_pipeline(path: Path, why: str) -> ModelError:
    return ModelError(
        "PIPE001",
        "not a usable pipeline file",
        where=str(path),
        why=why,
        fix="write it again with 'cannc split'",
    )
