"""The one object that travels through the toolchain: a model and what is known about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from cannc.compiler.core.collector import collector_paused
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.files import atomic_write, write_text
from cannc.compiler.core.graphs import name_nodes, name_outputs
from cannc.compiler.core.onnx_io import read_model, write_model
from cannc.compiler.core.provenance import MODEL_KEY, Fate, Provenance, drop_exporter_notes
from cannc.compiler.core.runner import Array
from cannc.compiler.core.soundness import check_sound
from cannc.compiler.core.target import Target

SOC_KEY = "cannc.soc"
LOG_KEY = "cannc.log"
EXAMPLES_SUFFIX = ".examples.npz"


class Rewrite(NamedTuple):
    """One rewrite of a pass.

    Attributes:
        node: The node where it took place; the last one that it removed.
        before: Operators that it removed, in graph order.
        after: Operators that it put there; empty when the node was bypassed or folded.
    """

    node: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """One line of the model's history: a pass or a stage, and what it did.

    Attributes:
        name: Pass name in kebab-case.
        applied: How many rewrites it made.
        nodes_before: Node count of all graphs before it.
        nodes_after: The same after it.
        seconds: Wall time.
        refusals: Near misses, as ``node: reason``.
        notes: Findings that the reader should see, e.g. a clipped weight.
        rolled_back: Why all that it did was undone (`cannc.passes.guard`); empty when it was not.
        rewrites: What it did, place by place. Not stored with the model.
    """

    name: str
    applied: int
    nodes_before: int
    nodes_after: int
    seconds: float = 0.0
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rolled_back: str = ""
    rewrites: tuple[Rewrite, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return what is stored with the model: nothing that differs from run to run."""
        data = vars(replace(self, seconds=0.0))
        return {key: value for key, value in data.items() if key != "rewrites"}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Stage:
        """Read one row of the history that `CompileUnit.stamp` wrote."""
        return cls(**{**row, "refusals": tuple(row["refusals"]), "notes": tuple(row["notes"])})


@dataclass
class CompileUnit:
    """A model on its way through the toolchain.

    Attributes:
        model: The graph, as onnx-ir holds it.
        provenance: What became of the original model's tensors.
        target: SoC and CANN release; None until a stage that depends on it has stamped one.
        log: What was done so far, in order.
        examples: Sample inputs that came with the model, name -> array; may be empty.
        source: The file that the model was read from, if any.
    """

    model: ir.Model
    provenance: Provenance
    target: Target | None = None
    log: list[Stage] = field(default_factory=list)
    examples: dict[str, Array] = field(default_factory=dict)
    source: Path | None = None

    @classmethod
    def of(cls, model: ir.Model, source: Path | None = None) -> CompileUnit:
        """Take over a model: names its nodes and reads or starts its provenance. In place."""
        name_nodes(model)
        name_outputs(model)
        soc = model.metadata_props.get(SOC_KEY)
        log = json.loads(model.metadata_props.get(LOG_KEY, "[]"))
        provenance = Provenance.of(model)
        drop_exporter_notes(model)
        return cls(
            model=model,
            provenance=provenance,
            target=Target.parse(*json.loads(soc)) if soc else None,
            log=[Stage.from_row(row) for row in log],
            examples=_read_examples(source),
            source=source,
        )

    def copy(self) -> CompileUnit:
        """Return an independent copy; weights are shared, since nothing changes them in place."""
        return CompileUnit(
            model=self.model.clone(),
            provenance=Provenance.from_json(self.provenance.to_json()),
            target=self.target,
            log=[*self.log],
            examples=dict(self.examples),
            source=self.source,
        )

    def fates(self) -> list[Fate]:
        """Return what became of every original value, in original order."""
        return self.provenance.fates(self.model)

    def stamp(self) -> None:
        """Write target, history and provenance into the model's metadata, so that they travel."""
        props = self.model.metadata_props
        props[MODEL_KEY] = self.provenance.to_json()
        props[LOG_KEY] = json.dumps([stage.row() for stage in self.log])
        if self.target is not None:
            props[SOC_KEY] = json.dumps([self.target.soc, self.target.cann])

    def save(self, path: str | Path) -> Path:
        """Write ``path`` (.onnx) with its provenance inside and as ``PATH.provenance.json``.

        Example inputs go to ``PATH.examples.npz``.

        Raises:
            UsageError: the path cannot be written.
        """
        out = Path(path)
        self.stamp()
        write_model(self.model, out, self.source if self.source != out else None)
        write_text(out.with_suffix(".provenance.json"), self.provenance.to_json())
        if self.examples:
            with atomic_write(out.with_suffix(EXAMPLES_SUFFIX)) as stream:
                np.savez(stream, **self.examples)  # type: ignore[arg-type]
        return out


ModelLike: TypeAlias = "str | Path | onnx.ModelProto | ir.Model | CompileUnit"


def load(model: ModelLike) -> CompileUnit:
    """Return a unit for a path, a ``ModelProto``, an ``onnx_ir.Model`` or a unit.

    The argument is never changed: in-memory models are copied (an IR model shares its weights).

    Raises:
        ModelError: the file is not a sound ONNX model.
        UsageError: no such file, or an argument of another type.
    """
    with collector_paused():
        return _load(model)


def _load(model: ModelLike) -> CompileUnit:
    if isinstance(model, CompileUnit):
        return model.copy()
    if isinstance(model, ir.Model):
        return CompileUnit.of(model.clone())
    if isinstance(model, onnx.ModelProto):
        check_sound(model, "ModelProto in memory")
        # A copy: tensors of the IR write their names through to the proto that they wrap.
        private = onnx.ModelProto()
        private.CopyFrom(model)
        return CompileUnit.of(ir.from_proto(private))
    if isinstance(model, (str, Path)):
        path = Path(model)
        return CompileUnit.of(read_model(path), path)
    raise UsageError(
        "API001",
        f"a model cannot be a {type(model).__name__}",
        fix="pass a path, an onnx.ModelProto, an onnx_ir.Model or a cannc.CompileUnit",
    )


def _read_examples(source: Path | None) -> dict[str, Array]:
    if source is None:
        return {}
    path = source.with_suffix(EXAMPLES_SUFFIX)
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
