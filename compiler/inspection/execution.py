"""What an .om is: device code, a host artifact, a graph only (om-format.md section 13)."""

from __future__ import annotations

from cannc.compiler.inspection.facts import ContainerFacts, Kind, ModelFacts
from cannc.compiler.om.header import BUNDLE, FLOW, VERSION_2, Header
from cannc.compiler.om.partitions import PartitionType

_KIRIN_TYPES = {3: "graph only", 4: "compiled"}
_CODE_PARTS = {
    PartitionType.TBE_KERNELS,
    PartitionType.CUST_AICPU_KERNELS,
    PartitionType.SO_BINS,
    PartitionType.CUSTOM_OPS,
}
END_GRAPH = "end graph"


def decide(
    header: Header, models: tuple[ModelFacts, ...], *, is_host: bool
) -> tuple[Kind, tuple[str, ...]]:
    """Return the kind of a file and the reasons, in the order of the rules.

    Args:
        header: Its header.
        models: All models in it; a root model may hold a definition and nothing else.
        is_host: The mark of our host artifacts is there.
    """
    if header.encrypted:
        return "encrypted", ("the header says that the contents are encrypted",)
    if is_host:
        why = "the model carries cannc's mark host-only: an ONNX graph without device code"
        return "host-only", (why,)
    containers = [model.container for model in models if model.container is not None]
    if _is_kirin(header, containers):
        form = _KIRIN_TYPES.get(header.model_type, "an older form")
        return "kirin", (f"a file for Kirin phone chips (HiAI), {form}; no Ascend device runs it",)
    if header.model_type in (BUNDLE, FLOW) and header.version >= VERSION_2:
        kind = "bundle" if header.model_type == BUNDLE else "flow model"
        return "unknown", (f"a {kind}: see the models inside",)
    tasks = [c.tasks for c in containers if c.tasks is not None]
    has_list = any(p.type == PartitionType.TASK_INFO for c in containers for p in c.partitions)
    reasons = (_tasks_reason(containers, has_list=has_list), *_evidence(containers))
    if any(END_GRAPH in t.by_type for t in tasks):
        return "device", reasons
    if has_list and not tasks:
        return "unknown", reasons
    return "graph-only", reasons


def _tasks_reason(containers: list[ContainerFacts], *, has_list: bool) -> str:
    if not has_list:
        return "no task list (TASK_INFO): nothing in it can be executed"
    counts = [c.tasks for c in containers if c.tasks is not None]
    if not counts:
        return "the task list is in an unknown format"
    total = sum(t.count for t in counts)
    if any(END_GRAPH in t.by_type for t in counts):
        return f"{total} tasks with an end-graph task"
    return f"{total} tasks without an end-graph task: a device refuses to load it"


def _evidence(containers: list[ContainerFacts]) -> tuple[str, ...]:
    parts = [p.name for c in containers for p in c.partitions if p.type in _CODE_PARTS]
    code = f"device code in {', '.join(sorted(set(parts)))}" if parts else "no device code"
    versions = {
        name: c.compiler[name]
        for c in containers
        for name in ("atc_version", "opp_version")
        if name in c.compiler
    }
    made = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
    return code, made or "neither atc_version nor opp_version: not compiled by ATC"


def _is_kirin(header: Header, containers: list[ContainerFacts]) -> bool:
    if header.version >= VERSION_2:
        return False
    target = next(
        (c.compiler["target_type"] for c in containers if "target_type" in c.compiler), ""
    )
    return header.model_type in _KIRIN_TYPES or target == "LITE"
