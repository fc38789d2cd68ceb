"""One-screen summaries of comparisons and builds."""

from __future__ import annotations

import math

from rich.console import Console
from rich.text import Text

from cannc.compiler.build import BuildResult
from cannc.compiler.cli.console import size, table
from cannc.compiler.core.graphs import node_count
from cannc.golden.report import GoldenReport, Layer
from cannc.quant.report import QuantReport

_SHOWN_CULPRITS = 5


def verdict_text(passed: bool) -> Text:
    """Return PASS or FAIL, coloured on a terminal."""
    return Text("PASS", "bold green") if passed else Text("FAIL", "bold red")


def print_comparison(console: Console, report: GoldenReport) -> None:
    """Print graph outputs, the worst layers, and the verdict."""
    outputs = [_row(layer) for layer in report.outputs]
    columns = ("output", "cosine", "relative L2", "max abs", "verdict")
    console.print(table("Graph outputs", columns, outputs))
    if report.culprits:
        rows = [
            (layer.node or layer.name, layer.op_type, *_figures(layer, isolated=True))
            for layer in report.culprits[:_SHOWN_CULPRITS]
        ]
        columns = ("layer", "operator", "cosine", "relative L2", "max abs")
        console.print(table("Layers that add most error of their own (isolated)", columns, rows))
    if report.first_divergence is not None:
        first = report.first_divergence
        console.print(
            f"first layer over its threshold: {first.name} ({first.op_type})", markup=False
        )
    for warning in report.warnings:
        console.print(f"warning: {warning}", markup=False)
    for text in report.regressions or ():
        console.print(f"worse than the baseline: {text}", markup=False)
    console.print(_tensor_counts(report), markup=False)
    console.print(Text("verdict: ").append(verdict_text(report.verdict == "pass")))


def print_build(console: Console, result: BuildResult) -> None:
    """Print what a build made: sizes, worst layer, verdict, and where the report lies."""
    report = result.report
    console.print(table(f"cannc build {result.recipe.name}", ("", ""), _facts(result)))
    if result.figures:
        rows = [
            (name, f"{found:.6g}", f"{least:g}", verdict_text(found >= least))
            for name, (found, least) in result.figures.items()
        ]
        console.print(table("Evaluation", ("figure", "found", "at least", "verdict"), rows))
    for warning in report.warnings:
        console.print(f"warning: {warning}", markup=False)
    console.print(Text("verdict: ").append(verdict_text(result.passed)))
    console.print(f"report:   {result.folder / 'report.html'}", markup=False)
    console.print(f"artifact: {result.artifact}", markup=False)


def summarize_quant(report: QuantReport) -> str:
    """Return one line: how many weights, their bytes before and after, what was skipped."""
    float32 = sum(4 * math.prod(row.shape) for row in report.quantized if row.bytes_before)
    after = report.bytes_after
    share = f", {after / float32:.1%} of float32" if float32 else ""
    return (
        f"{len(report.quantized)} weights {report.scheme}: {size(after)}{share}; "
        f"{len(report.skipped)} skipped"
    )


def _facts(result: BuildResult) -> list[tuple[str, object]]:
    report = result.report
    before, after = (node_count(unit.model) for unit in (result.original, result.final))
    original = (result.folder / "original.onnx").stat().st_size
    facts: list[tuple[str, object]] = [
        ("target", f"{result.recipe.target.soc}, {report.facts.device}"),
        ("nodes", f"{before} -> {after}"),
        ("size", f"{size(original)} -> {size(result.artifact.stat().st_size)}"),
    ]
    if result.quant is not None:
        facts.append(("quantized", summarize_quant(result.quant)))
    facts.append(("tensors", _tensor_counts(report)))
    worst = report.culprits[0] if report.culprits else None
    if worst is not None:
        _, rel_l2, _ = _figures(worst, isolated=True)
        bound = f"{worst.severity:.2f} of what is allowed"
        name = f"{worst.node} ({worst.op_type})"
        facts.append(("worst layer", f"{name}: adds relative L2 {rel_l2}, {bound}"))
    for layer in report.outputs:
        cosine, rel_l2, _ = _figures(layer, isolated=False)
        facts.append((f"output {layer.name}", f"cosine {cosine}, relative L2 {rel_l2}"))
    findings = result.support
    counts = (len(findings.refused), len(findings.wrong), len(findings.risks))
    facts.append(("operators", "{} refused, {} silently wrong, {} at risk".format(*counts)))
    facts.append(("time", ", ".join(f"{k} {v:.1f} s" for k, v in result.seconds.items())))
    return facts


def _row(layer: Layer) -> tuple[object, ...]:
    passed = layer.passed
    verdict = Text("not judged") if passed is None else verdict_text(passed)
    return (layer.name, *_figures(layer, isolated=False), verdict)


def _figures(layer: Layer, *, isolated: bool) -> tuple[str, str, str]:
    metrics = layer.isolated if isolated else layer.accumulated
    if metrics is None:
        return "-", "-", "-"
    return f"{metrics.cosine:.6f}", f"{metrics.rel_l2:.2e}", f"{metrics.max_abs:.2e}"


def _tensor_counts(report: GoldenReport) -> str:
    counts = dict(report.counts)
    rows, failed = counts.pop("rows"), counts.pop("failed")
    parts = [f"{count} {kind}" for kind, count in counts.items() if count]
    return f"{rows} original: {', '.join(parts)}; {failed} over their threshold"
