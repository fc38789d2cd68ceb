"""Is there a plugin for this exact ``domain::opset::type``?"""

from __future__ import annotations

from collections.abc import Iterator

from cannc.op_support.advice import cure_for, refusal_cure
from cannc.op_support.releases import unknown_operator_code
from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Operator
from cannc.op_support.site import PARSER_RUN, Site

# npu-ops.md section 6: names that torch_npu's exporter writes and that no open plugin registers,
# with the registered name where there is one.
EXPORTER_NAMES = {
    "NPUGeGlu": "npu::NPUGeglu",
    "NPUWeightQuantBatchMatmulV2": "npu::WeightQuantBatchMatmulV2",
    "NPUScatterOP": "npu::NPUScatter",
    "NPUScatterNdUpdate": "",
    "NPUPromptFlashAttention": "",
    "NPUIncreFlashAttention": "",
    "NPUDeepNorm": "",
    "NPUMaskedSoftmaxWithRelPosBias": "",
    "NPUMaskedFillRange": "",
    "NPUNormalizeBatch": "",
    "NPUIfmr": "",
    "NPURotatedBoxDecode": "",
    "NPURotatedBoxEncode": "",
    "NPUStrideAdd": "",
    "NPUMmAllReduceBase": "",
}


def check(site: Site, entry: Operator | None) -> Iterator[Finding]:
    """Yield one finding about a node that has no plugin at its opset.

    Args:
        site: The node.
        entry: What the parser knows about its type, if anything.
    """
    if site.opset is None:
        yield site.finding(
            "OP061",
            Severity.REFUSED,
            f"its domain '{site.node.domain}' is not in opset_import",
            source=PARSER_RUN,
            atc_code="E19999",
            cure="export the model again, or add the import",
        )
        return
    atc_code = unknown_operator_code(site.world.target)
    if site.node.domain == "npu" and site.op_type in EXPORTER_NAMES:
        right = EXPORTER_NAMES[site.op_type]
        yield site.finding(
            "OP003",
            Severity.REFUSED,
            "torch_npu's exporter writes this name, but no open plugin registers it",
            source="npu-ops.md section 6",
            atc_code=atc_code,
            cure=f"call it {right}" if right else "export without the torch_npu operator",
        )
    elif entry is None or entry.status == "unregistered":
        yield site.finding(
            "OP001",
            Severity.REFUSED,
            f"no plugin for {_full_name(site)} in any release that could be read{_trips(site)}",
            source=PARSER_RUN,
            atc_code=atc_code,
            cure=cure_for(site.key),
        )
    elif entry.status == "documented" and site.opset in entry.opsets:
        yield _documented(site, entry, atc_code)
    else:
        yield _other_opset(site, entry, atc_code)


def _trips(site: Site) -> str:
    """Say whether a Loop could be unrolled."""
    if site.key != "ai.onnx::Loop":
        return ""
    trips = site.constant(0)
    if trips is not None:
        return f"; its trip count is {int(trips.reshape(-1)[0])}"
    return "; its trip count depends on data"


def _documented(site: Site, entry: Operator, atc_code: str) -> Finding:
    """Only documents list it; refused when the open parser was run on it, else unknown."""
    ran = entry.refused_when_run
    why = "only vendor documents list it; its plugin, if there is one, is closed"
    if ran:
        why += "; the open parser was run and refused it"
    return site.finding(
        "OP004",
        Severity.REFUSED if ran else Severity.UNKNOWN,
        why,
        source=PARSER_RUN if ran else "vendor operator lists",
        atc_code=atc_code if ran else "",
        cure=cure_for(site.key),
    )


def _other_opset(site: Site, entry: Operator, atc_code: str) -> Finding:
    known = entry.opsets
    above = [opset for opset in known if opset > site.version]
    nearest = min(above) if above else max(known)
    why = f"no plugin for {_full_name(site)}; opsets {entry.opset_text} are registered"
    if site.version in entry.documented_opsets:
        why += f" (a document of an older release also lists {site.version})"
    direction = "raise" if above else "lower"
    if 18 in known:
        by_itself = " (cannc optimize brings every model to 18)"
    else:
        by_itself = f", or {found}" if (found := refusal_cure(site.op_type)) else ""
    return site.finding(
        "OP002",
        Severity.REFUSED,
        why,
        source=PARSER_RUN,
        atc_code=atc_code,
        cure=f"{direction} the model's opset to {nearest}{by_itself}",
    )


def _full_name(site: Site) -> str:
    domain, _, op_type = site.key.partition("::")
    return f"{domain}::{site.opset}::{op_type}"
