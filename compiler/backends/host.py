"""The embedded backend: a host artifact that runs anywhere with the device's numerics."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

import google.protobuf

import cannc
from cannc.compiler.backends.base import CompileOptions, CompileResult
from cannc.compiler.backends.readback import check_same
from cannc.compiler.core.errors import UnsupportedOpError, UsageError
from cannc.compiler.core.files import check_writable
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.session import HOST_DEVICE
from cannc.op_support.checker import check
from cannc.op_support.report import SupportReport

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
            UsageError: ``BCK003`` the unit has no target, or the path cannot be written.
            UnsupportedOpError: ``BCK004`` the target refuses operators, and support is required.
            ModelError: onnxruntime refuses the graph, or the container cannot express it.
        """
        if unit.target is None:
            raise UsageError(
                "BCK003", "no target SoC", fix="give --soc, e.g. Ascend910B4 or Ascend310P3"
            )
        check_writable(out, unit.source)
        report = check(unit, unit.target)
        if options.require_support and report.refused:
            raise _unsupported(report)
        stamped = unit.copy()
        stamped.stamp()
        name = options.name or out.stem
        temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.om")
        try:
            write_om(stamped.model, temporary, name=name, attributes=_attributes(unit.target))
            om = OmFile.open(temporary)
            read_back = om.to_model()
            check_same(stamped.model, read_back)
            # Loading it here is what `run` will do; without folding no weight is read.
            HostSession(read_back, fuse=False, low_memory=True)
            weights = om.find(PartitionType.WEIGHTS_DATA)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
        log.info("wrote %s for %s", out, unit.target.soc)
        return CompileResult(
            path=out,
            size_bytes=out.stat().st_size,
            weight_bytes=weights.size if weights else 0,
            device=HOST_DEVICE,
            notes=_notes(report),
        )


def _attributes(target: Target) -> dict[str, str | int | bytes]:
    versions = {
        "cannc_version": cannc.__version__,
        "cannc_protobuf_version": google.protobuf.__version__,
    }
    return {**versions, TARGET_SOC: target.soc, TARGET_CANN: target.cann or ""}


def _notes(report: SupportReport) -> tuple[str, ...]:
    soc = report.target.soc
    counts = (
        (len(report.refused), f"ATC would refuse for {soc}"),
        (len(report.wrong), f"ATC would compile wrongly for {soc}"),
        (len(report.risks), f"carry a risk on {soc}"),
    )
    found = [f"{count} findings that {text}" for count, text in counts if count]
    return (*found, "'cannc check' lists them") if found else ()


def _unsupported(report: SupportReport) -> UnsupportedOpError:
    first = report.refused[0]
    return UnsupportedOpError(
        "BCK004",
        f"{report.target.soc} refuses {len(report.refused)} nodes",
        where=f"first: node {first.node} ({first.op_type})",
        why=first.why,
        fix=first.cure or "'cannc check' lists all of them with their cures",
    )
