"""``cannc split``: parts that run one after the other."""

from __future__ import annotations

from pathlib import Path

import click

from cannc.compiler.cli import options


@click.command(short_help="Parts that run one after the other.")
@options.model_argument
@click.option(
    "-o", "--output", "out", type=options.FILE, required=True, metavar="DIR", help="Folder."
)
@click.option("--layers-per-subgraph", type=int, metavar="N", help="Layers per part (2).")
@click.option("--parts", type=int, metavar="K", help="Number of parts.")
@click.option(
    "--at", "cuts", multiple=True, metavar="NAME", help="Cut after a value, node or module."
)
@click.option(
    "--strategy",
    type=click.Choice(["memory_balanced", "even", "named"]),
    default="memory_balanced",
    show_default=True,
)
@click.option("--input-shape", multiple=True, metavar="NAME:1,3,8,8", help="For the estimate.")
@options.target
@options.common
def split(
    model: Path,
    out: Path,
    layers_per_subgraph: int | None,
    parts: int | None,
    cuts: tuple[str, ...],
    strategy: str,
    input_shape: tuple[str, ...],
    soc: str | None,
    cann: str | None,
    json_out: str | None,
    quiet: bool,
) -> None:
    """Cut MODEL into parts: ONNX files in DIR, and pipeline.json that says how they are wired.

    'cannc run DIR/pipeline.json' runs them on this machine.
    """
    from cannc.compiler.cli.console import size, stdout, table, write_json
    from cannc.compiler.core.files import make_folder
    from cannc.compiler.pipeline import stamped
    from cannc.compiler.runtime.pipeline_file import PipelineFile
    from cannc.compiler.splitting import split_model, write_split
    from cannc.passes.split.choose import Request

    if layers_per_subgraph is None and parts is None and not cuts:
        layers_per_subgraph = 2
    request = Request(layers_per_subgraph, parts, cuts, strategy)
    make_folder(out)
    shapes = options.parse_shapes(input_shape)
    result = split_model(stamped(model, soc, cann), request, shapes or None)
    path = write_split(result, out)
    written = PipelineFile.read(path)
    if write_json(json_out, written.to_json()):
        return
    console = stdout()
    rows = [
        (
            part.file,
            f"{part.layers[0]} .. {part.layers[-1]}" if part.layers else "",
            part.nodes,
            size(part.weight_bytes),
            size(part.activation_bytes),
            size(part.received_bytes),
        )
        for part in written.parts
    ]
    columns = ("part", "layers", "nodes", "weights", "activations", "received")
    console.print(table(f"{model.name} -> {path}", columns, rows))
    for note in result.parts[0].unit.log[-1].notes:
        console.print(f"note: {note}", markup=False)
