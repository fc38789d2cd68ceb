"""Weight-only quantization of a model: find, plan, rewrite, report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.graphs import walk
from cannc.compiler.core.runner import Runner
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.passes.fusion.npu_ops import opset_of
from cannc.passes.pattern import constant_of
from cannc.passes.rewrite import Rewriter
from cannc.quant.activations import Activations
from cannc.quant.algorithms import load_algorithm
from cannc.quant.calibration.samples import Calibration
from cannc.quant.collect import Found, Skip, WeightUse, collect
from cannc.quant.emit import Emitter
from cannc.quant.forms import Form, FormRules, MayUseKernel
from cannc.quant.keep import kept
from cannc.quant.plan import Plan, Stored, make_plans
from cannc.quant.report import QUANT_KEY, QuantReport, WeightRow, merged
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import MAX_BYTES
from cannc.quant.weights import Weight

FORMS = ("auto", "qdq")

_POOR_COLUMN = 0.25
"""Relative error of a channel from which it is worth a note."""


def quantize(
    unit: CompileUnit,
    *,
    scheme: str = "w8a16",
    target: Target,
    may_use_kernel: MayUseKernel,
    algo: str = "minmax",
    granularity: str = "channel",
    keep: str | Sequence[str] = (),
    embeddings: bool = False,
    form: str = "auto",
    calibration: Calibration | None = None,
    runner: Runner | None = None,
    max_memory: int = MAX_BYTES,
) -> CompileUnit:
    """Return a copy of the unit whose weights are integers with float scales.

    Activations keep their dtype. `QuantReport.of` reads the report off the result.

    Args:
        unit: The model; not changed.
        scheme: ``w8a16``, ``w4a16``, and ``-asym`` behind either.
        target: SoC whose kernels decide about the forms (D11); stamped on the result.
        may_use_kernel: Asks the kernel tables, see `PassContext.may_use_kernel`.
        algo: ``minmax``, ``mse``, ``awq`` or ``gptq``.
        granularity: ``channel`` or ``group:32|64|128|256``.
        keep: What stays in float, see `cannc.quant.keep.kept`.
        embeddings: Quantize tables of Gather too.
        form: ``auto`` for the target's kernels, ``qdq`` for other tools.
        calibration: Real inputs. ``mse`` gets better with them, ``awq`` and ``gptq`` need them.
        runner: Runs the model on them.
        max_memory: Bytes for statistics of activations at a time.

    Raises:
        UsageError: ``QUANT001`` to ``QUANT004``, a wrong option; ``QUANT005`` no calibration data;
            ``QUANT006`` no such form.
        ModelError: ``QUANT010`` NaN or infinity in a weight, ``QUANT011`` nothing to quantize.
    """
    started = time.perf_counter()
    asked, algorithm = Scheme.parse(scheme, granularity), load_algorithm(algo)
    if algorithm.needs_data and (calibration is None or runner is None):
        raise UsageError(
            "QUANT005",
            f"{algo} needs calibration data",
            where="--algo",
            fix="give --calib DATA, or use minmax or mse, which need none",
        )
    if form not in FORMS:
        raise UsageError(
            "QUANT006", f"no form '{form}'", where="--form", fix=f"use one of {', '.join(FORMS)}"
        )
    work = unit.copy()
    model = work.model
    before = _count(model)
    found = _collect(model, embeddings)
    rewriter = Rewriter(model, work.provenance, "quantize")
    rules = FormRules(target, may_use_kernel, opset_of(model), form == "qdq")
    activations = Activations.of(model, found.uses, algorithm, runner, calibration, max_memory)
    if algorithm.moves_scales:
        replaced = activations.equalize(
            rewriter, found.uses, lambda use: rules.choose(use, asked).scheme
        )
        _sweep(rewriter, [weight for weight, _ in replaced])
        _keep_names(replaced)
        found = _collect(model, embeddings)
    uses, skips = _without_kept(found, keep)
    plans, pointless = make_plans(uses, asked, algorithm, rules, activations.of_use)
    skips += pointless
    if not plans and not any(skip.quantized for skip in skips):
        raise _nothing_to_do(skips)

    notes = {plan.use.node: activations.note(plan.use) for plan in plans}
    sizes = {plan.use.weight.root: _size(plan.use.weight.root) for plan in plans}
    emitter = Emitter(rewriter)
    emitter.emit(plans)
    _sweep(rewriter, [plan.use.weight for plan in plans])
    rows = [*_quantized_rows(plans, emitter, sizes, notes), *map(_skipped_row, skips)]
    report = QuantReport(
        str(asked),
        algo,
        asked.granularity,
        target.soc,
        merged(QuantReport.of(unit), rows),
        calibration.digests if calibration is not None else (),
    )
    model.metadata_props[QUANT_KEY] = report.to_json()
    work.target = target
    work.log.append(
        Stage(
            "quantize",
            applied=len(plans),
            nodes_before=before,
            nodes_after=_count(model),
            seconds=time.perf_counter() - started,
            refusals=tuple(f"{skip.node.name}: {skip.reason}" for skip in skips),
            notes=(*(calibration.notes if calibration else ()), *_notes(plans)),
        )
    )
    return work


def _collect(model: ir.Model, embeddings: bool) -> Found:
    """Find the weights; ranks of their activations are inferred when the file lacks them."""
    found = collect(model, embeddings=embeddings)
    others = [value for use in found.uses for value in use.node.inputs]
    if any(value is not None and value.shape is None for value in others):
        infer_shapes(model)
    return found


def _without_kept(found: Found, keep: str | Sequence[str]) -> tuple[list[WeightUse], list[Skip]]:
    """Split off what the user keeps in float."""
    patterns = kept(found.uses, keep)
    uses = [use for index, use in enumerate(found.uses) if index not in patterns]
    skips = [*found.skips]
    for index, pattern in patterns.items():
        use = found.uses[index]
        nbytes = _size(use.weight.root)
        reason = f"kept in float by '{pattern}'"
        skips.append(Skip(use.node, use.weight.name, reason, False, use.weight.shape, nbytes))
    return uses, skips


def _sweep(rewriter: Rewriter, weights: Iterable[Weight]) -> None:
    """Remove float weights, and the layout nodes behind them, that nothing reads any more."""
    for weight in {weight.value: weight for weight in weights}.values():
        for node, tensor in weight.prefixes():
            _drop_node(rewriter, node, tensor)
        root = weight.root
        holder, constant = root.producer(), constant_of(root)
        if holder is not None and constant is not None:
            _drop_node(rewriter, holder, constant)
        elif root.graph is not None and not _needed(root) and not root.is_graph_input():
            rewriter.drop_initializer(root)


def _keep_names(replaced: Iterable[tuple[Weight, ir.Value]]) -> None:
    """Give constants the names of those that they replaced, where these are free now."""
    for weight, new in replaced:
        graph, name = new.graph, weight.name
        if weight.root.graph is None and graph is not None and name not in graph.initializers:
            new.name = name


def _drop_node(rewriter: Rewriter, node: ir.Node, tensor: ir.TensorProtocol) -> None:
    """Remove a node that computes a constant which nothing reads; its fate is to be folded."""
    (value,) = node.outputs
    graph, name = node.graph, value.name or ""
    if not isinstance(graph, ir.Graph) or _needed(value):
        return
    rewriter.fold(node, [tensor])
    rewriter.drop_initializer(graph.initializers[name])


def _needed(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _quantized_rows(
    plans: Sequence[Plan[Stored]],
    emitter: Emitter,
    sizes: dict[ir.Value, int],
    notes: Mapping[ir.Node, str],
) -> Iterable[WeightRow]:
    """Describe what was quantized; bytes of shared weights are counted in their first row."""
    counted: set[int] = set()
    owners: dict[int, str] = {}
    for plan in plans:
        use, stored, weight = plan.use, plan.stored, plan.use.weight
        owner = owners.setdefault(id(stored), use.node.name or "")
        reasons = [stored.choice.why, stored.note, notes[use.node]]
        before = after = 0
        if owner == use.node.name:
            after = stored.nbytes
        else:
            reasons.append(f"shares the integers of '{owner}'")
        if id(weight.root) not in counted:
            counted.add(id(weight.root))
            before = sizes[weight.root]
            if weight.root.graph is not None:
                after += before
                reasons.append("the float weight stays, others need it")
        yield WeightRow(
            "quantized",
            weight.name,
            use.node.name or "",
            use.node.op_type,
            weight.shape,
            "; ".join(filter(None, reasons)),
            stored.choice.form.value,
            stored.choice.scheme.granularity,
            emitter.name_of(stored),
            before,
            after,
            stored.closeness.relative,
            stored.closeness.worst_column,
            stored.closeness.worst_error,
            stored.output_error,
        )


def _skipped_row(skip: Skip) -> WeightRow:
    return WeightRow(
        "skipped",
        skip.weight,
        skip.node.name or "",
        skip.node.op_type,
        skip.shape,
        skip.reason,
        bytes_before=skip.nbytes,
        bytes_after=skip.nbytes,
    )


def _notes(plans: Sequence[Plan[Stored]]) -> Iterable[str]:
    """Return what the user should see besides the table."""
    expanded = Counter(
        plan.stored.choice.why for plan in plans if plan.stored.choice.form is Form.DEQUANT
    )
    for why, count in expanded.items():
        yield f"{count} weights stand as Cast + Mul, which ATC may fold back to float16: {why}"
    for stored in {id(plan.stored): plan.stored for plan in plans}.values():
        error = stored.closeness
        if error.worst_error > _POOR_COLUMN:
            name = stored.first.weight.name
            yield (
                f"weight '{name}': column {error.worst_column} is off by {error.worst_error:.0%}, "
                "since its largest weights make the steps coarse"
            )


def _nothing_to_do(skips: Sequence[Skip]) -> ModelError:
    reasons = Counter(skip.reason for skip in skips).most_common(3)
    summary = "; ".join(f"{reason} ({count}x)" for reason, count in reasons)
    return ModelError(
        "QUANT011",
        "no weight could be quantized",
        why=summary or "the model has no MatMul, Gemm or Conv with a constant weight",
        fix="check that weights are stored in the model, not fed as inputs; see --keep",
    )


def _size(root: ir.Value) -> int:
    tensor = constant_of(root)
    assert tensor is not None
    return tensor.nbytes


def _count(model: ir.Model) -> int:
    return sum(1 for _ in walk(model.graph))
