"""Recipes: one YAML file that says how a model becomes an artifact, checked before work starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cannc.compiler.core.errors import UsageError, nearest


class _Section(BaseModel):
    """A part of a recipe; keys that it does not know are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSection(_Section):
    """Where the model comes from: exactly one of `onnx`, `hf` and `callable`.

    Paths are relative to the recipe, or to the package's folder when `package` is given (callables
    always to the recipe; they get the folder as their argument ``package``).
    """

    package: str | None = None
    onnx: str | None = None
    hf: str | None = None
    callable: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> SourceSection:
        given = [name for name in ("onnx", "hf", "callable") if getattr(self, name)]
        if len(given) != 1:
            msg = f"give exactly one of onnx, hf and callable (given: {given or 'none'})"
            raise ValueError(msg)
        return self


class InputsSection(_Section):
    """Real inputs for verification, calibration and comparison: a callable or an .npz file."""

    callable: str | None = None
    npz: str | None = None
    shapes: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    dynamic: dict[str, dict[int, str]] = Field(default_factory=dict)


class TargetSection(_Section):
    """SoC and CANN release."""

    soc: str = "Ascend910B4"
    cann: str | None = None


class OptimizeSection(_Section):
    """Level, precision, and passes to add or leave out (``+name``, ``-name``)."""

    level: Literal["O0", "O1", "O2"] = "O2"
    precision: Literal["keep", "fp16", "mixed"] = "keep"
    passes: tuple[str, ...] = ()


class QuantizeSection(_Section):
    """Weight quantization, see `cannc.quantize`.

    `calib`, `eval` and `tokenizer` are paths relative to the recipe; data may also be
    ``file.py:callable``. An accuracy goal needs `eval`.
    """

    scheme: str = "w8a16"
    algo: str = "minmax"
    granularity: str = "channel"
    keep: tuple[str, ...] = ()
    embeddings: bool = False
    calib: str | None = None
    num_samples: int = Field(default=128, ge=1)
    tokenizer: str | None = None
    eval: str | None = None
    min_token_accuracy: float | None = Field(default=None, ge=0, le=1)
    min_cosine: float | None = Field(default=None, ge=0, le=1)


class CompileSection(_Section):
    """Which compiler writes the artifact, for which sizes, and what a run may take (``2GB``).

    Dynamic dimensions are named as in the model: `gears` gives each the sizes of gear 0, 1, ...;
    `ranges` a least and a most size, ``1~8``, and leaves others open.
    """

    backend: Literal["auto", "host", "atc"] = "host"
    require_support: bool = True
    gears: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    ranges: dict[str, Annotated[str, Field(pattern=r"^\d+~\d+$")]] = Field(default_factory=dict)
    max_workspace: int | str | None = None
    memory_optimizer: Literal["none", "recompute"] = "none"

    @model_validator(mode="after")
    def _one_way(self) -> CompileSection:
        if self.gears and self.ranges:
            msg = "give gears or ranges, not both"
            raise ValueError(msg)
        return self


class CompareSection(_Section):
    """Thresholds of the verdict on the graph outputs; see `cannc.golden.metrics`."""

    mode: Literal["accumulated", "isolated", "both"] = "both"
    thresholds: dict[str, float] = Field(default_factory=dict)


class EvaluateSection(_Section):
    """A task-level check: a callable that returns named figures, and the least allowed values.

    The callable gets ``original`` and ``artifact`` (functions of a dict of inputs), and, if it
    declares them, ``examples`` and ``package``.
    """

    callable: str
    at_least: dict[str, float]


class Recipe(_Section):
    """How one model becomes one artifact."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    description: str = ""
    source: SourceSection
    inputs: InputsSection = InputsSection()
    target: TargetSection = TargetSection()
    optimize: OptimizeSection = OptimizeSection()
    quantize: QuantizeSection | None = None
    compile: CompileSection = CompileSection()
    compare: CompareSection = CompareSection()
    evaluate: EvaluateSection | None = None


def load_recipe(path: Path, overrides: dict[str, str] | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: The YAML file.
        overrides: Dotted key -> YAML text, e.g. ``{"optimize.level": "O1"}``.

    Raises:
        UsageError: ``IO010`` no such file, ``RCP001`` not YAML, ``RCP002`` all keys and values
            that are wrong, with the nearest known name.
    """
    if not path.is_file():
        raise UsageError("IO010", "no such recipe", where=str(path), fix="see recipes/*.yaml")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        for key, value in (overrides or {}).items():
            _set(data, key, yaml.safe_load(value))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())
        raise UsageError("RCP001", "the recipe is not YAML", where=str(path), why=why) from error
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        faults = [_describe(fault) for fault in error.errors()]
        raise UsageError(
            "RCP002",
            f"the recipe has {len(faults)} mistake{'s' if len(faults) > 1 else ''}",
            where=str(path),
            why="; ".join(faults),
            fix="README.md, section Recipes, lists the keys",
        ) from error


def _set(data: Any, dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for key in parents:
        if not isinstance(data, dict):
            break
        data = data.setdefault(key, {})
    if not isinstance(data, dict):
        raise UsageError("RCP003", f"cannot set '{dotted}'", where="--set", why="no such section")
    data[last] = value


def _describe(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "extra_forbidden":
        return f"{place or 'recipe'}: {fault['msg']}"
    known = _fields(fault["loc"][:-1])
    return f"unknown key '{place}'{nearest(str(fault['loc'][-1]), known)}"


def _fields(place: tuple[Any, ...]) -> list[str]:
    """Return the keys that the section at `place` knows."""
    model: Any = Recipe
    for part in place:
        annotation = model.model_fields[part].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
