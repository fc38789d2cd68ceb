"""Turn the fact sheets into the package data: ``python op_support/build/build_tables.py FACTS``.

Reads ``onnx_ops.json``, ``npu_ops.json``, ``ge_ops.json`` and ``parser-verdicts.json`` from the
folder FACTS, writes ``op_support/data/{operators,fused,kernels}.json``: sorted, one row a line, so
that a change of one operator is a change of one line. Every row is validated before it is written.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cannc.op_support.schema import (
    SCHEMA_VERSION,
    FusedOperator,
    GeKernel,
    KernelMark,
    Meta,
    Operator,
    ParserFacts,
)

DATA = Path(__file__).parents[1] / "data"
FACTS = ("onnx_ops.json", "npu_ops.json", "ge_ops.json", "parser-verdicts.json")
SOC_FAMILIES = (
    "ascend310",
    "ascend310b",
    "ascend310p",
    "ascend910",
    "ascend910_93",
    "ascend910b",
    "ascend950",
)
KERNEL_TABLES = (*SOC_FAMILIES, "aicpu", "proto")

# Position of the ONNX input that feeds a value-dependent GE port. Only ports whose GE position
# differs from the ONNX position, or whose operator is built by an expansion, need the table.
VALUE_PORTS: dict[tuple[str, str], int] = {
    ("Col2im", "output_size"): 1,
    ("ConstantOfShape", "dims"): 0,
    ("CumSum", "axis"): 1,
    ("Expand", "shape"): 1,
    ("OneHot", "depth"): 1,
    ("Pad", "paddings"): 1,
    ("Pad", "constant_values"): 2,
    ("Range", "start"): 0,
    ("Range", "limit"): 1,
    ("Range", "delta"): 2,
    ("Reshape", "shape"): 1,
    ("Resize", "size"): 3,
    ("Resize", "sizes"): 3,
    ("Resize", "scales"): 2,
    ("Slice", "begin"): 1,
    ("Slice", "end"): 2,
    ("Slice", "axes"): 3,
    ("Slice", "strides"): 4,
    ("SparseToDense", "output_shape"): 1,
    ("Split", "size_splits"): 1,
    ("Tile", "multiples"): 1,
    ("TopK", "k"): 1,
    ("Trilu", "k"): 1,
}
AXES_INPUT = 1  # reductions, Squeeze, Unsqueeze

# A kernel that exists but that no ONNX file is known to reach (npu-ops.md section 4: 310P takes
# only a transposed weight in NZ format, which a later pass would have to make).
UNREACHABLE = {
    ("WeightQuantBatchMatmulV2", "ascend310p"),
    ("NPUWeightQuantBatchMatmulV2", "ascend310p"),
}


def main(arguments: list[str]) -> int:
    """Build all tables from the folder given; return the exit code."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    folder = Path(arguments[0])
    facts = {name: json.loads((folder / name).read_text(encoding="utf-8")) for name in FACTS}
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FACTS}
    onnx_ops, npu_ops, ge_ops = (facts[name] for name in FACTS[:3])
    refused = refused_when_run(facts["parser-verdicts.json"]["tests"])
    snapshots = {str(k): str(v) for k, v in onnx_ops["_meta"]["sources"].items()}

    operators = {key: operator(row, key in refused) for key, row in onnx_ops["ops"].items()}
    fused = {key: fused_operator(row) for key, row in npu_ops["ops"].items()}
    wanted = {ge for row in operators.values() for e in row.expansions for ge in e.ge}
    wanted |= {row.ge for row in fused.values()}
    kernels = dict(ge_kernels(ge_ops["ops"], wanted))

    def meta(what: str) -> Meta:
        return Meta(
            schema_version=SCHEMA_VERSION, what=what, snapshots=snapshots, facts_sha256=hashes
        )

    parser = parser_facts(onnx_ops["parser"])
    write("operators.json", meta("operators that the ONNX parser knows"), operators, parser)
    write("fused.json", meta("non-standard operators with a plugin"), fused)
    write("kernels.json", meta("input dtypes of GE kernels"), kernels)
    return 0


def operator(row: Mapping[str, Any], refused: bool) -> Operator:
    """Build one row of the operator table."""
    any_opset = row["opsets"] == "any"
    return Operator.model_validate(
        {
            "status": row["status"],
            "opsets": () if any_opset else row["opsets"],
            "any_opset": any_opset,
            "audited": "audit" in row,
            "standard": row["standard_onnx"],
            "input_limits": row.get("connected_inputs_limited_to", {}),
            "output_limits": row.get("usable_outputs_limited_to", {}),
            "effects": row.get("attribute_effects", {}),
            "never_read": sorted(row.get("attributes_never_read", ())),
            "value_inputs": value_inputs(row),
            "limits": row.get("limits", ()),
            "doubtful": [claim["claim"] for claim in row.get("doubtful_claims", ())],
            "expansions": [expansion(m) for m in row.get("mapping", ()) if m["opsets"] != "any"],
            "documented_opsets": row.get("documented_opsets", ()),
            "refused_when_run": refused and row["status"] == "documented",
        }
    )


def expansion(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Build one expansion; a PartitionedCall stands for the operators inside it."""
    ge = mapping["expands_to"] if mapping.get("expands_to") else [mapping["ge"]]
    return {"opsets": mapping["opsets"], "ge": ge, "source": mapping["source"]}


def value_inputs(row: Mapping[str, Any]) -> list[int]:
    """Return positions of the ONNX inputs whose value the kernels or shape inference need."""
    ports = {port for ge in row.get("value_dependent_inputs", {}).values() for port in ge}
    return sorted(
        {
            AXES_INPUT
            if p == "axes" and row["op_type"] != "Slice"
            else VALUE_PORTS[row["op_type"], p]
            for p in ports
        }
    )


def refused_when_run(verdicts: Mapping[str, Any]) -> set[str]:
    """Return ``domain::type`` of every node for which the open parser found no plugin."""
    return {
        "::".join(name.split("::")[::2])
        for verdict in verdicts.values()
        for name in verdict.get("unknown", ())
    }


def fused_operator(row: Mapping[str, Any]) -> FusedOperator:
    """Build one row of the table of non-standard operators."""
    return FusedOperator.model_validate(
        {
            "ge": row["ge"],
            "inputs": None if row["inputs"] is None else [port(p) for p in row["inputs"]],
            "outputs": None if row["outputs"] is None else [port(p) for p in row["outputs"]],
            "attributes": {name: attribute(a) for name, a in row["attrs"].items()},
            "kernels": kernel_marks(row),
            "limits": [*row["limits"], *(f"rejects: {text}" for text in row.get("rejects") or ())],
            "source": row["source"],
        }
    )


def port(row: Mapping[str, Any]) -> dict[str, Any]:
    """Build one input or output."""
    return {
        "name": row["name"],
        "optional": row.get("optional", False),
        "dynamic": bool(row.get("dynamic", False)),
        "dtypes": row.get("dtypes") or (),
        "shape": row.get("shape") or "",
    }


def attribute(row: Mapping[str, Any]) -> dict[str, Any]:
    """Build one attribute."""
    return {
        "read": row["read"],
        "type": row["type"],
        "default": row["default"],
        "fixed": row.get("fixed_to") if not isinstance(row.get("fixed_to"), list) else None,
    }


def kernel_marks(row: Mapping[str, Any]) -> dict[str, KernelMark]:
    """Return SoC family -> kernel; the rule of npu-ops.md for the SoC columns."""
    socs = row["socs"]
    promised = socs.get("_product_table", {})
    marks: dict[str, KernelMark] = {}
    for family in SOC_FAMILIES:
        entry, note = socs.get(family), ""
        if entry is None and family == "ascend910_93":
            entry, note = socs.get("ascend910b"), "shares the operator store of ascend910b"
        mark = mark_of(entry, promised.get(family))
        if mark == "?":
            continue
        if (row["op_type"], family) in UNREACHABLE:
            mark, note = "?", "the kernel needs a weight layout that no ONNX file is known to give"
        dtypes = (entry or {}).get("combos_in_out", ())
        note = note or (entry or {}).get("note", "")
        marks[family] = KernelMark.model_validate(
            {"mark": mark, "dtypes": sorted(dtypes), "note": note}
        )
    return marks


def mark_of(entry: Mapping[str, Any] | None, promised: bool | None) -> str:
    """Return the mark of one SoC column."""
    kernel = (entry or {}).get("kernel", "")
    if kernel.startswith("closed store"):
        return "s"
    if kernel:
        return {"open": "o", "open, experimental": "x"}[kernel]
    return "?" if promised is None else ("t" if promised else "-")


def ge_kernels(ops: Mapping[str, Any], wanted: Iterable[str]) -> Iterable[tuple[str, GeKernel]]:
    """Yield ``GE@family`` -> input dtypes for the GE operators that a plugin can build."""
    for ge in wanted:
        for family, row in ops.get(ge, {}).items():
            if family not in KERNEL_TABLES:
                continue
            inputs = [None if p is None else sorted(set(p)) for p in row["inputs"]]
            experimental = bool(row.get("experimental", False))
            kernel = GeKernel.model_validate({"inputs": inputs, "experimental": experimental})
            yield f"{ge}@{family}", kernel


def parser_facts(parser: Mapping[str, Any]) -> ParserFacts:
    """Build the facts about tensors; float8 constants raise E19999 although float8 is mapped."""
    mapped = sorted(int(number) for number in parser["tensor_dtypes"])
    float8 = {int(k) for k, name in parser["tensor_dtypes"].items() if name.startswith("float8")}
    return ParserFacts(
        mapped_dtypes=tuple(mapped),
        constant_dtypes=tuple(number for number in mapped if number not in float8),
        max_rank=8,
    )


def write(
    name: str, meta: Meta, rows: Mapping[str, BaseModel], parser: ParserFacts | None = None
) -> None:
    """Write one table: one row a line, in key order, fields at their default left out."""
    head = [f'"meta": {dump(meta)}']
    if parser is not None:
        head.append(f'"parser": {dump(parser)}')
    body = ",\n".join(f"{json.dumps(key)}: {dump(rows[key])}" for key in sorted(rows))
    lines = ",\n".join([*head, f'"rows": {{\n{body}\n}}'])
    (DATA / name).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(f"{name}: {len(rows)} rows, {(DATA / name).stat().st_size} bytes")


def dump(row: BaseModel) -> str:
    """Return a row as JSON on one line."""
    data = row.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(data, sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
