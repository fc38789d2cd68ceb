"""The embedded backend: a host artifact that runs anywhere with the device's numerics."""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from pathlib import Path

import google.protobuf

import cannc
from cannc.compiler.backends.base import CompileOptions, CompileResult
from cannc.compiler.backends.host_options import apply_options, planned_sizes, resolved_options
from cannc.compiler.backends.host_shapes import sizes_of
from cannc.compiler.backends.readback import check_same
from cannc.compiler.backends.support import notes_of, require_support
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.files import check_writable
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.memory.planner import plan_memory
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.opening import HOST_DEVICE
from cannc.op_support.checker import check

log = logging.getLogger(__name__)

TARGET_SOC = "cannc_target_soc"
TARGET_CANN = "cannc_target_cann"


class HostBackend:
    """Writes the ONNX graph and its weights into an OM container marked as host-only.

    The target stands in an attribute of its own: the container's ``soc_version`` would claim that
    device code is inside (om-format.md section 13).
    """

    name = "host"

    def compile(self, unit: CompileUnit, out: Path, options: CompileOptions) -> CompileResult:
        """See `Backend.compile`; the artifact is read back and compared before it gets its name.

        Raises:
            UsageError: ``BCK003`` the unit has no target, or the path cannot be written, or ATC
                or the host would refuse the options.
            UnsupportedOpError: ``BCK004`` the target refuses operators, and support is required.
            WorkspaceError: ``MEM001`` a run needs more than ``options.max_workspace``.
            ModelError: onnxruntime refuses the graph, or the container cannot express it.
        """
        target = unit.target
        if target is None:
            raise UsageError(
                "BCK003", "no target SoC", fix="give --soc, e.g. Ascend910B4 or Ascend310P3"
            )
        check_writable(out, unit.source)
        given = unit
        resolved = resolved_options(unit, options, target)
        unit = apply_options(unit, resolved)
        report = check(unit, target)
        if options.require_support:
            require_support(report)
        stamped = unit.copy()
        stamped.stamp()
        planned = plan_memory(
            stamped.model,
            planned_sizes(given, resolved),
            budget=options.max_workspace,
            optimizer=options.memory_optimizer,
            open_model=given.model,
        )
        sizes = sizes_of(planned.model, resolved)
        name = options.name or out.stem
        temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.om")
        try:
            attributes = {**_attributes(target), **planned.attributes()}
            write_om(
                planned.model,
                temporary,
                name=name,
                attributes=attributes,
                memory=planned.places,
                gears=sizes.gears,
                ranges=sizes.ranges,
            )
            om = OmFile.open(temporary)
            read_back = om.to_model()
            check_same(planned.model, read_back)
            # Loading it here is what `run` will do; without folding no weight is read.
            HostSession(read_back, fuse=False, low_memory=True)
            weights = om.find(PartitionType.WEIGHTS_DATA)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
        log.info("wrote %s for %s", out, target.soc)
        weight_bytes = weights.size if weights else 0
        return CompileResult(
            path=out,
            size_bytes=out.stat().st_size,
            weight_bytes=weight_bytes,
            device=HOST_DEVICE,
            notes=(*sizes.notes, *planned.plan.notes(), *notes_of(report)),
            memory=replace(planned.plan, weight_bytes=weight_bytes),
        )


def _attributes(target: Target) -> dict[str, str | int | bytes]:
    versions = {
        "cannc_version": cannc.__version__,
        "cannc_protobuf_version": google.protobuf.__version__,
    }
    return {**versions, TARGET_SOC: target.soc, TARGET_CANN: target.cann or ""}
