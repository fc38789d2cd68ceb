"""Shape of the package data: what the build script writes and the checker reads.

The data comes from reading and running the vendor's open sources; each table carries a stamp of
where it was taken from.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1

Status = Literal["open", "documented", "unregistered"]
"""How sure a registration is: seen in open sources, only in documents, nowhere."""

Mark = Literal["o", "s", "t", "x", "-", "?"]
"""How sure a kernel of a fused operator is on one SoC family.

``o`` open source, ``s`` seen in a copy of the product's operator store, ``t`` only promised by a
product table, ``x`` open but experimental, ``-`` ruled out by a product table, ``?`` unknown.
"""


class _Row(BaseModel):
    """Immutable, and no field that the schema does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Effect(_Row):
    """What happens when the parser's plugin ignores an attribute, and under which condition."""

    effect: Literal["silently_wrong", "risk", "harmless", "unknown"]
    confidence: Literal["high", "low"]
    when: str
    opsets: tuple[int, ...] | None = None


class Expansion(_Row):
    """What the plugin turns the node into, for some opsets: one GE operator, or several."""

    opsets: tuple[int, ...]
    ge: tuple[str, ...]
    source: str


class Operator(_Row):
    """One ``domain::type`` as the parser knows it.

    Attributes:
        status: How sure the registration is.
        opsets: Model opsets that are registered; empty with `any_opset`.
        any_opset: The parser handles the type itself, whatever the opset.
        audited: The entry was read by eye against the plugin's source.
        standard: The type is in the ONNX standard.
        input_limits: A connected input at or beyond the key fails, for the listed opsets.
        output_limits: The same for outputs that something uses.
        effects: Attribute -> effect of the plugin's ignoring it.
        never_read: Attributes that no plugin reads.
        value_inputs: Positions of inputs that should be constant.
        limits: What the plugin or the kernels refuse, in prose.
        doubtful: Claims that no error may rest on.
        expansions: GE operators that the node becomes.
        documented_opsets: Opsets that only documents list.
        refused_when_run: The open parser was run on it and had no plugin, whatever documents say.
    """

    status: Status
    opsets: tuple[int, ...] = ()
    any_opset: bool = False
    audited: bool = False
    standard: bool = False
    input_limits: dict[int, tuple[int, ...]] = {}
    output_limits: dict[int, tuple[int, ...]] = {}
    effects: dict[str, Effect] = {}
    never_read: tuple[str, ...] = ()
    value_inputs: tuple[int, ...] = ()
    limits: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    expansions: tuple[Expansion, ...] = ()
    documented_opsets: tuple[int, ...] = ()
    refused_when_run: bool = False

    def registered_at(self, opset: int) -> bool:
        """Is there an open registration for this opset?"""
        return self.status == "open" and (self.any_opset or opset in self.opsets)

    @property
    def opset_text(self) -> str:
        """The opsets as ranges, e.g. ``8, 10-18``."""
        parts: list[list[int]] = []
        for opset in self.opsets:
            if parts and opset == parts[-1][-1] + 1:
                parts[-1].append(opset)
            else:
                parts.append([opset])
        return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


class Port(_Row):
    """One input or output of a fused operator."""

    name: str
    optional: bool = False
    dynamic: bool = False
    dtypes: tuple[str, ...] = ()
    shape: str = ""


class Attribute(_Row):
    """One attribute of a fused operator.

    `read` is None where the plugin is closed. `fixed` is the value that the operator always uses
    when the plugin does not read the attribute.
    """

    read: bool | None
    type: str
    default: float | int | str | bool | list[int] | list[float] | None = None
    fixed: float | int | str | bool | None = None


class KernelMark(_Row):
    """Is there a kernel on one SoC family, and for which dtype tuples (inputs, then outputs)."""

    mark: Mark
    dtypes: tuple[str, ...] = ()
    note: str = ""


class FusedOperator(_Row):
    """A non-standard operator that the parser has a plugin for.

    Attributes:
        ge: GE operator (or a note) that the plugin builds.
        inputs: Input ports in order; None where the sources do not say.
        outputs: Output ports in order.
        attributes: Attribute -> what the plugin does with it.
        kernels: SoC family -> kernel. A family that is absent is unknown.
        limits: Conditions in prose.
        source: Files that this was read from.
    """

    ge: str
    inputs: tuple[Port, ...] | None
    outputs: tuple[Port, ...] | None
    attributes: dict[str, Attribute] = {}
    kernels: dict[str, KernelMark] = {}
    limits: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


class GeKernel(_Row):
    """Input dtypes that one kernel of a GE operator takes; None where closed code decides."""

    inputs: tuple[tuple[str, ...] | None, ...]
    experimental: bool = False


class Meta(_Row):
    """Stamp of a table: schema version, source snapshots, and hashes of the fact sheets."""

    schema_version: int
    what: str
    snapshots: dict[str, str]
    facts_sha256: dict[str, str]


class ParserFacts(_Row):
    """What the parser does to tensors of each dtype (ONNX dtype numbers)."""

    mapped_dtypes: tuple[int, ...]
    constant_dtypes: tuple[int, ...]
    max_rank: int
