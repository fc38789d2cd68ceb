"""The constants of a model: by size, by data type, by reader. Their numbers are never read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, walk
from cannc.compiler.inspection.facts import WeightFacts, WeightSummary
from cannc.compiler.inspection.graphs import desc_dtype, node_type
from cannc.compiler.inspection.names import common_dtype, onnx_dtype
from cannc.compiler.om.attributes import typed
from cannc.compiler.om.weights import weights_of

Reader = tuple[str, str]  # name and type of an op


@dataclass(frozen=True)
class Placed:
    """A constant and what tells whether another one shares its bytes."""

    facts: WeightFacts
    identity: object


def summarize(weights: Iterable[Placed], top: int) -> WeightSummary:
    """Add constants up.

    Args:
        weights: The constants.
        top: How many of the largest to list; 0 lists all.
    """
    found = list(weights)
    by_dtype: Counter[str] = Counter()
    by_op: Counter[str] = Counter()
    stored: dict[object, int] = {}
    for weight in found:
        facts = weight.facts
        by_dtype[facts.dtype] += facts.size_bytes
        by_op[facts.op_type or "nothing"] += facts.size_bytes
        stored[weight.identity] = max(stored.get(weight.identity, 0), facts.size_bytes)
    ordered = sorted((w.facts for w in found), key=lambda w: (-w.size_bytes, w.name, w.used_by))
    return WeightSummary(
        count=len(found),
        total_bytes=sum(w.facts.size_bytes for w in found),
        stored_bytes=sum(stored.values()),
        by_dtype=_by_size(by_dtype),
        by_op=_by_size(by_op),
        largest=tuple(ordered[: top or None]),
    )


def _by_size(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def of_definition(definition: Any) -> Iterator[Placed]:
    """Yield the constants of a ModelDef, those in files beside it included."""
    readers = _readers(definition)
    root = definition.graph[0].name if definition.graph else ""
    for index, weight in enumerate(weights_of(definition)):
        used_by = readers.get((weight.graph, weight.name), [])
        inline = weight.offset is None
        yield Placed(
            _facts(
                weight.name,
                used_by,
                common_dtype(weight.dtype),
                weight.dims,
                weight.layout,
                "inline" if inline else f"weights+{weight.offset}",
                weight.size,
                "" if weight.graph == root else f"{weight.graph}/",
            ),
            index if inline else (weight.offset, weight.size),
        )
    yield from _in_files(definition, readers)


def _readers(definition: Any) -> dict[tuple[str, str], list[Reader]]:
    found: dict[tuple[str, str], list[Reader]] = {}
    for graph in definition.graph:
        for op in graph.op:
            for edge in op.input:
                key = (graph.name, edge.rpartition(":")[0])
                found.setdefault(key, []).append((op.name, op.type))
    return found


def _in_files(definition: Any, readers: dict[tuple[str, str], list[Reader]]) -> Iterator[Placed]:
    """Yield weights that the file only refers to (om-format.md section 5)."""
    for graph in definition.graph:
        for op in graph.op:
            if op.type != "FileConstant":
                continue
            location = typed(op.attr, "location", "s", "") or typed(op.attr, "file_path", "s", "")
            offset = typed(op.attr, "offset", "i", 0)
            size = typed(op.attr, "length", "i", 0)
            desc = op.output_desc[0] if op.output_desc else None
            used_by = readers.get((graph.name, op.name), [])
            # The folder is the compiling machine's own; only the name says anything.
            place = f"{str(location).replace(chr(92), '/').rpartition('/')[2]}+{offset}"
            dims = tuple(desc.shape.dim) if desc else ()
            dtype = desc_dtype(desc) if desc else "undefined"
            layout = desc.layout if desc else ""
            facts = _facts(op.name, used_by, dtype, dims, layout, place, size, "")
            yield Placed(facts, (place, size))


def of_model(model: ir.Model) -> Iterator[Placed]:
    """Yield the constants of an ONNX model: initializers, and tensors of Constant nodes."""
    for scope, graph in all_graphs(model.graph):
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                used_by = [(u.node.name or "", node_type(u.node)) for u in value.uses()]
                yield _placed(f"{scope}{name}", value.const_value, used_by, scope)
    for scoped in walk(model.graph):
        node = scoped.node
        tensor = node.attributes.get("value") if node.op_type == "Constant" else None
        if tensor is None or tensor.is_ref() or tensor.type != ir.AttributeType.TENSOR:
            continue
        output = node.outputs[0]
        used_by = [(u.node.name or "", node_type(u.node)) for u in output.uses()]
        yield _placed(scoped.key(output), tensor.as_tensor(), used_by, scoped.scope)


def _placed(name: str, tensor: ir.TensorProtocol, used_by: list[Reader], scope: str) -> Placed:
    if isinstance(tensor, ir.ExternalTensor):
        place = f"{tensor.location}+{tensor.offset or 0}"
        identity: object = (place, tensor.nbytes)
    else:
        place, identity = "inline", id(tensor)
    dims = tuple(tensor.shape.numpy())
    dtype, size = onnx_dtype(tensor.dtype), size_of(tensor)
    return Placed(_facts(name, used_by, dtype, dims, "", place, size, scope), identity)


def size_of(tensor: ir.TensorProtocol) -> int:
    """Return the bytes of a tensor; for strings, of their characters."""
    if tensor.dtype != ir.DataType.STRING:
        return tensor.nbytes
    return sum(len(item) for item in tensor.numpy().reshape(-1).tolist())


def _facts(
    name: str,
    used_by: list[Reader],
    dtype: str,
    dims: tuple[int, ...],
    layout: str,
    place: str,
    size: int,
    scope: str,
) -> WeightFacts:
    reader, op_type = used_by[0] if used_by else ("", "")
    prefix = scope if reader else ""
    return WeightFacts(
        name, f"{prefix}{reader}", op_type, len(used_by), dtype, dims, layout, place, size
    )
