"""``cannc convert``: PyTorch, Hugging Face folders and ONNX files in."""

from __future__ import annotations

from pathlib import Path

import click

from cannc.compiler.cli import options


@click.command(short_help="PyTorch, Hugging Face or ONNX in: checked, named, verified.")
@click.argument("source", metavar="SRC")
@options.output(".onnx")
@click.option("--soc", metavar="NAME", help="Target to stamp, e.g. Ascend910B4.")
@click.option(
    "--input-shape", "shapes", multiple=True, metavar="NAME:1,3,224,224", help="Fix a shape."
)
@click.option(
    "--dynamic", multiple=True, metavar="NAME:0=batch", help="Name dynamic axes of an input."
)
@options.inputs
@options.common
def convert(
    source: str,
    out: Path,
    soc: str | None,
    shapes: tuple[str, ...],
    dynamic: tuple[str, ...],
    input_specs: tuple[str, ...],
    json_out: str | None,
    quiet: bool,
) -> None:
    """Bring a model in, checked and with stable names.

    SRC is x.onnx, hf:FOLDER, file.py:callable or package.module:callable. A callable returns
    (module, inputs) or (module, inputs, dynamic axes). Exports are verified against PyTorch.
    """
    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import dump, stdout, write_json
    from cannc.compiler.core.files import check_writable
    from cannc.compiler.core.graphs import node_count
    from cannc.compiler.frontend.inputs import read_inputs

    check_writable(out, Path(source))
    unit = pipeline.convert(
        source,
        inputs=read_inputs(input_specs) or None,
        soc=soc,
        input_shapes=options.parse_shapes(shapes),
        dynamic=options.parse_dynamic(dynamic) or None,
    )
    unit.save(out)
    nodes = node_count(unit.model)
    if not write_json(json_out, dump({"schema_version": 1, "out": str(out), "nodes": nodes})):
        stdout().print(f"{out}: {nodes} nodes, opset {unit.model.opset_imports.get('')}")
