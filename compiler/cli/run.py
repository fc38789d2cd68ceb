"""``cannc run``: run an artifact and measure it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options


@click.command(short_help="Run an artifact and measure it.")
@click.argument("artifact", type=options.FILE, metavar="MODEL.om")
@options.inputs
@click.option("--backend", type=click.Choice(["auto", "acl", "host"]), default="auto")
@click.option("--device", type=int, default=0, show_default=True)
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True)
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--padding",
    type=click.Choice(["batch", "none", "any"]),
    default="batch",
    show_default=True,
    help="Axes that may be padded to the size of a gear.",
)
@click.option("-o", "--output", "out", type=options.FILE, help="Folder for outputs as .npy.")
@options.common
def run(
    artifact: Path,
    input_specs: tuple[str, ...],
    backend: str,
    device: int,
    warmup: int,
    repeat: int,
    padding: Literal["batch", "none", "any"],
    out: Path | None,
    json_out: str | None,
    quiet: bool,
) -> None:
    """Run MODEL.om on real or seeded random inputs; print outputs and latency.

    The pipeline.json of a split model is run part after part.
    """
    import numpy as np

    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.compiler.core.files import atomic_write, make_folder
    from cannc.compiler.frontend.inputs import read_inputs
    from cannc.compiler.runtime.chain import open_session
    from cannc.compiler.runtime.latency import measure

    with open_session(artifact, backend, device, padding=padding) as session:
        feeds = read_inputs(input_specs) or session.random_inputs(seed=0)
        outputs, latency = measure(session, feeds, warmup=warmup, repeat=repeat)
        facts = {"device": session.device_name, "init_ms": session.init_ms}
    if out is not None:
        make_folder(out)
        for name, array in outputs.items():
            with atomic_write(out / f"{name.replace('/', '_')}.npy") as stream:
                np.save(stream, array)
    described = {name: [str(a.dtype), list(a.shape)] for name, a in outputs.items()}
    data = {"schema_version": 1, **facts, "outputs": described, "latency_ms": latency.to_dict()}
    if write_json(json_out, dump(data)):
        return
    console = stdout()
    rows = [
        (name, a.dtype, "x".join(map(str, a.shape)) or "scalar", f"{_mean(a):.6g}")
        for name, a in outputs.items()
    ]
    console.print(table(artifact.name, ("output", "dtype", "shape", "mean"), rows))
    console.print(f"{facts['device']}; init {facts['init_ms']:.1f} ms; {latency}", markup=False)


def _mean(array: object) -> float:
    import numpy as np

    numbers = np.asarray(array)
    if not numbers.size or numbers.dtype.kind not in "fiub":
        return 0.0
    return float(numbers.mean(dtype=np.float64))
