"""Options that name inputs and outputs: out_nodes, output_type, input_fp16_nodes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.shapes import check_name
from cannc.compiler.core.errors import nearest
from cannc.compiler.core.target import Target

_OUTPUT_TYPES = (
    *("FP32", "FP16", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32"),
    *("UINT64", "INT64", "DOUBLE"),
)
_OUTPUT_TYPES_950 = ("HIF8", "FP8E5M2", "FP8E4M3FN")


def check_names(options: Mapping[str, str], model: ir.Model, target: Target) -> None:
    """Refuse names that the model does not have, and dtypes that no output can have.

    Raises:
        UsageError: ``ATC032`` no such input, ``ATC050`` no such node or output, ``ATC051`` forms
            mixed, ``ATC052`` bad output type.
    """
    for name in split(options.get("input_fp16_nodes", "")):
        check_name("input_fp16_nodes", name, model)
    if "out_nodes" in options:
        _check_out_nodes(split(options["out_nodes"]), model)
    if "output_type" in options:
        _check_output_type(options, target)


def split(text: str) -> list[str]:
    """Return the parts of a ``;`` list without outer spaces."""
    return [part.strip() for part in text.split(";") if part.strip()]


def _check_out_nodes(entries: list[str], model: ir.Model) -> None:
    nodes = {node.name: node for node in model.graph if node.name}
    produced = {value.name for node in model.graph for value in node.outputs if value.name}
    by_node = [_is_node_output(entry, nodes) for entry in entries]
    if any(by_node) and not all(by_node):
        raise refuse(
            "ATC051",
            "out_nodes",
            "--out_nodes mixes NODE:INDEX with output names",
            atc="E10001",
            fix="use one form for all",
        )
    for entry, is_node in zip(entries, by_node, strict=True):
        if not is_node and entry not in produced:
            raise refuse(
                "ATC050",
                "out_nodes",
                f"--out_nodes: '{entry}' is no output of a node{nearest(entry, produced)}",
                atc="E10016",
                fix="write NODE:INDEX, or the name of a value",
            )


def _is_node_output(entry: str, nodes: Mapping[str, ir.Node]) -> bool:
    name, _, index = entry.rpartition(":")
    node = nodes.get(name)
    return node is not None and index.isdigit() and int(index) < len(node.outputs)


def _check_output_type(options: Mapping[str, str], target: Target) -> None:
    allowed = _OUTPUT_TYPES + (_OUTPUT_TYPES_950 if target.family == "ascend950" else ())
    entries = split(options["output_type"])
    for entry in entries:
        node, _, dtype = entry.rpartition(":")
        if dtype not in allowed:
            raise refuse(
                "ATC052",
                "output_type",
                f"--output_type: '{dtype}' is no output type{nearest(dtype, allowed)}",
                atc="E10001",
                fix=f"use {', '.join(allowed)}",
            )
        if node and node not in split(options.get("out_nodes", "")):
            raise refuse(
                "ATC052",
                "output_type",
                f"--output_type names '{node}', which --out_nodes does not",
                atc="E10001",
                fix="name the outputs in --out_nodes too",
            )
