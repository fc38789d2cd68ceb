"""``cannc run``: run an artifact and measure it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options


@click.command(short_help="Run an artifact and measure it.")
@click.argument("artifact", type=options.FILE, metavar="MODEL.om")
@click.option(
    "--inputs",
    "input_specs",
    multiple=True,
    metavar="FILE.npz|[NAME=]PATH",
    help="Real inputs: .npz, .npy, .bin, or a folder of .npy or .bin, one file per sample; "
    "without names by commas in the order of the inputs. May be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of random inputs.")
@click.option("--backend", type=click.Choice(["auto", "acl", "host"]), default="auto")
@click.option("--device", type=int, default=0, show_default=True)
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True)
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--in-flight",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many runs overlap.",
)
@click.option(
    "--padding",
    type=click.Choice(["batch", "none", "any"]),
    default="batch",
    show_default=True,
    help="Axes that may be padded to the size of a gear.",
)
@click.option("-o", "--output", "out", type=options.FILE, help="Folder for outputs.")
@click.option(
    "--out-format",
    type=click.Choice(["npy", "bin"]),
    default="npy",
    show_default=True,
    help="Of files in the folder; bin is the bare bytes.",
)
@options.common
def run(
    artifact: Path,
    input_specs: tuple[str, ...],
    seed: int,
    backend: str,
    device: int,
    warmup: int,
    repeat: int,
    in_flight: int,
    padding: Literal["batch", "none", "any"],
    out: Path | None,
    out_format: str,
    json_out: str | None,
    quiet: bool,
) -> None:
    """Run MODEL.om on real or seeded random inputs; print outputs and latency.

    The pipeline.json of a split model is run part after part. Folders of samples are run file by
    file; their outputs are named after the files: STEM_0.npy, STEM_1.npy ...
    """
    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.compiler.cli.results import Results
    from cannc.compiler.frontend.samples import Sample, read_samples
    from cannc.compiler.runtime.chain import open_session
    from cannc.compiler.runtime.latency import measure

    with open_session(artifact, backend, device, padding=padding, in_flight=in_flight) as session:
        samples = read_samples(input_specs, session.inputs)
        samples = samples or [Sample("", session.random_inputs(seed))]
        results = Results(out, out_format, [sample.name for sample in samples])
        latency = measure(
            session,
            [sample.feeds for sample in samples],
            results.keep,
            warmup=warmup,
            repeat=repeat,
            in_flight=in_flight,
        )
        facts = {"device": session.device_name, "init_ms": session.init_ms}
    outputs = results.last
    described = {name: [str(a.dtype), list(a.shape)] for name, a in outputs.items()}
    data = {
        "schema_version": 1,
        **facts,
        "samples": len(samples),
        "in_flight": in_flight,
        "outputs": described,
        "latency_ms": latency.to_dict(),
    }
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
