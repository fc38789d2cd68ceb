"""``cannc quantize``: store weights in few bits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options


@click.command(short_help="Store weights in eight bits.")
@options.model_argument
@options.output(".onnx")
@click.option("--scheme", default="w8a16", show_default=True)
@click.option("--algo", default="minmax", show_default=True, help="How scales are chosen.")
@click.option("--granularity", default="channel", show_default=True, help="channel or group:SIZE.")
@click.option("--keep", default="", metavar="first,last,NAME", help="Weights to leave alone.")
@click.option("--embeddings", is_flag=True, help="Quantize embedding tables too.")
@click.option("--form", default="auto", show_default=True, help="qdq: for other tools.")
@click.option("--calib", metavar="DATA", help="Calibration data: .npz, folder, prompts, pictures.")
@click.option("--num-samples", default=128, show_default=True, help="Most samples to use.")
@click.option("--tokenizer", type=options.FILE, help="Hugging Face folder, for prompts.")
@click.option("--images", type=options.FILE, help="YAML with the preprocessing of pictures.")
@click.option("--max-memory", metavar="2GB", help="For statistics of activations.")
@click.option("--min-token-accuracy", type=float, help="Keep layers in float until this is met.")
@click.option("--min-cosine", type=float, help="The same for the cosine of the outputs.")
@click.option("--eval", "eval_data", metavar="DATA", help="What accuracy is measured on.")
@click.option(
    "--rank",
    "ranking",
    type=click.Choice(["isolated", "end-to-end"]),
    default="isolated",
    show_default=True,
    help="How the layers that stay in float are chosen.",
)
@click.option("--allow-overlap", is_flag=True, help="Let --eval hold calibration samples.")
@click.option("--curve", type=options.FILE, help="Write the trade curve as JSON.")
@options.target
@options.common
def quantize(
    model: Path,
    out: Path,
    scheme: str,
    algo: str,
    granularity: str,
    keep: str,
    embeddings: bool,
    form: str,
    calib: str | None,
    num_samples: int,
    tokenizer: Path | None,
    images: Path | None,
    max_memory: str | None,
    min_token_accuracy: float | None,
    min_cosine: float | None,
    eval_data: str | None,
    ranking: Literal["isolated", "end-to-end"],
    allow_overlap: bool,
    curve: Path | None,
    soc: str | None,
    cann: str | None,
    json_out: str | None,
    quiet: bool,
) -> None:
    """Quantize the weights of MODEL in the form that the target's kernels take."""
    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import stdout, table, write_json
    from cannc.compiler.cli.summary import summarize_quant
    from cannc.compiler.core.files import check_writable, write_text
    from cannc.compiler.core.quantities import parse_bytes
    from cannc.quant.report import HEADER, QuantReport
    from cannc.quant.sensitivity import CURVE_KEY
    from cannc.quant.statistics import MAX_BYTES

    check_writable(out, model)
    if curve is not None:
        check_writable(curve, model)
    unit = pipeline.quantize(
        model,
        scheme,
        soc,
        calib,
        algo=algo,
        granularity=granularity,
        cann=cann,
        keep=[name for name in keep.split(",") if name],
        embeddings=embeddings,
        form=form,
        num_samples=num_samples,
        tokenizer=tokenizer,
        preprocessing=images,
        max_memory=parse_bytes(max_memory, "--max-memory") or MAX_BYTES,
        min_token_accuracy=min_token_accuracy,
        min_cosine=min_cosine,
        eval_data=eval_data,
        ranking=ranking,
        allow_overlap=allow_overlap,
    )
    unit.save(out)
    if curve is not None:
        write_text(curve, unit.model.metadata_props.get(CURVE_KEY, "{}"))
    report = QuantReport.of(unit)
    if report is None or write_json(json_out, report.to_json()):
        return
    console = stdout()
    console.print(table(f"{model.name} -> {out.name}", HEADER, report.table()))
    console.print(summarize_quant(report), markup=False)
