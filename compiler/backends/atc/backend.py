"""The real ATC behind the backend protocol."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from cannc.compiler.backends.atc import config_files, precision
from cannc.compiler.backends.atc.diagnosis import NodeFacts
from cannc.compiler.backends.atc.discovery import Atc, require_atc
from cannc.compiler.backends.atc.handover import MODEL_FILE, HandOver, prepare
from cannc.compiler.backends.atc.job import Job, check_artifact, deliver
from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.resolve import resolve
from cannc.compiler.backends.atc.table import option_table
from cannc.compiler.backends.atc.values import forbidden_characters
from cannc.compiler.backends.atc.workdir import safe_name, work_folder
from cannc.compiler.backends.base import CompileOptions, CompileResult
from cannc.compiler.backends.support import notes_of, require_support
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.files import check_writable, write_text
from cannc.compiler.core.graphs import walk
from cannc.compiler.core.provenance import origins
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit
from cannc.op_support.checker import check

FUSION_FILE, KEEP_FILE = "fusion_switch.json", "keep_dtype.txt"


class AtcBackend:
    """Compiles for a device with the ATC of an installed CANN toolkit."""

    name = "atc"

    def compile(self, unit: CompileUnit, out: Path, options: CompileOptions) -> CompileResult:
        """See `Backend.compile`.

        Success is exit code 0 and ATC's success line and a new file that is an offline model.

        Raises:
            UsageError: ATC would refuse the options; ``BCK003`` the unit has no target.
            UnsupportedOpError: ``BCK004`` ATC would refuse nodes.
            MissingToolError: ``BCK002`` there is no ATC.
            ToolchainError: ``ATC101`` to ``ATC106`` it ran and failed.
        """
        if unit.target is None:
            raise UsageError("BCK003", "no target SoC", fix="give --soc, e.g. Ascend910B4")
        check_writable(out, unit.source)
        atc = None if options.dry_run else require_atc(options.atc)
        target, release_notes = _with_release(unit.target, atc)
        flags, notes = _flags(unit, target, options)
        copy = prepare(unit.model, target)
        report = check(_as_unit(unit, copy), target, on_disk_too=False)
        require_support(report)
        notes += [*release_notes, *notes_of(report)]
        if options.max_workspace is not None:
            notes.append("--max-workspace is kept by the host backend only: ATC plans by itself")
        if options.golden:
            flags |= {"fusion_switch_file": FUSION_FILE, "quant_dumpable": "1"}
        if copy.float32_nodes and _converts(flags):
            flags.setdefault("keep_dtype", KEEP_FILE)
        if atc is None:
            return _describe(copy, flags, out, target, notes)
        debug = flags.get("op_debug_level", "0") != "0"
        with work_folder(out, keep=debug) as folder:
            _write_files(copy, flags, folder)
            command = _command(
                atc.path, flags, target, MODEL_FILE, options.name or safe_name(out.stem)
            )
            job = Job(atc, command, folder, options.timeout_s)
            written, more = job.run(_node_facts(unit, copy))
            weight_bytes = check_artifact(written)
            deliver(written, folder, out)
            more += [f"files for debugging kernels are in {folder}"] if debug else []
        return CompileResult(
            path=out,
            size_bytes=out.stat().st_size,
            weight_bytes=weight_bytes,
            device=target.soc,
            notes=(*notes, *more),
            command=shlex.join(command),
        )


def _with_release(target: Target, atc: Atc | None) -> tuple[Target, list[str]]:
    """Let the installed release decide where the user named none: ATC's parsers differ."""
    if atc is None or atc.version is None or target.cann == atc.version:
        return target, []
    if target.cann is None:
        return Target.parse(target.soc, atc.version), []
    return target, [f"--cann says {target.cann}, the ATC that ran is of {atc.version}"]


def _flags(
    unit: CompileUnit, target: Target, options: CompileOptions
) -> tuple[dict[str, str], list[str]]:
    """Return the flags besides model, output and soc_version; paths in them are absolute."""
    resolved = resolve(options, unit.model, target)
    flags = dict(resolved.options)
    if options.golden:
        for flag in ("fusion_switch_file", "quant_dumpable"):
            if flag in flags:
                why = "--golden sets it: all fusions off, quantization dumpable"
                raise refuse("ATC006", flag, f"--{flag} and --golden exclude each other", why=why)
    chosen = precision.choose(flags, options.precision)
    if "precision_mode" not in flags and "precision_mode_v2" not in flags:
        flag, value = precision.flag_for(chosen, target.cann)
        flags[flag] = value
    for flag, value in flags.items():
        option = option_table().get(flag)
        if option is not None and option.kind in ("file", "folder", "path"):
            flags[flag] = str(Path(value).absolute())
    return flags, resolved.notes


def _as_unit(unit: CompileUnit, copy: HandOver) -> CompileUnit:
    return CompileUnit(copy.model, unit.provenance, unit.target, source=None)


def _converts(flags: Mapping[str, str]) -> bool:
    """Would ATC bring nodes to float16 that the model keeps in float32?"""
    return precision.asked(flags) == "fp16"


def _write_files(copy: HandOver, flags: Mapping[str, str], folder: Path) -> None:
    copy.write(folder)
    if flags.get("fusion_switch_file") == FUSION_FILE:
        write_text(folder / FUSION_FILE, config_files.ALL_FUSIONS_OFF)
    if flags.get("keep_dtype") == KEEP_FILE:
        write_text(folder / KEEP_FILE, config_files.keep_dtype_text(copy.float32_nodes))


def _command(
    program: str | Path, flags: Mapping[str, str], target: Target, model: str, output: str
) -> list[str]:
    first = {"model": model, "framework": "5", "output": output, "soc_version": target.soc}
    return [str(program), *(f"--{flag}={value}" for flag, value in {**first, **flags}.items())]


def _describe(
    copy: HandOver, flags: dict[str, str], out: Path, target: Target, notes: list[str]
) -> CompileResult:
    """Write the hand-over beside the output, so that the command can be pasted and works."""
    path = out.absolute()
    bad = forbidden_characters(str(path))
    if bad:
        raise refuse(
            "ATC012",
            "output",
            f"the output path '{path}' has characters that ATC refuses: '{bad}'",
            atc="E10001",
            fix="choose another path; without --dry-run cannc moves the result there itself",
        )
    folder = path.with_suffix(".atc")
    folder.mkdir(exist_ok=True)
    for old in (MODEL_FILE, FUSION_FILE, KEEP_FILE, "weights*.data"):
        for file in folder.glob(old):
            file.unlink()
    _write_files(copy, flags, folder)
    placed = {
        flag: str(folder / value) if value in (FUSION_FILE, KEEP_FILE) else value
        for flag, value in flags.items()
    }
    output = str(path.with_suffix("") if path.suffix == ".om" else path)
    command = _command("atc", placed, target, str(folder / MODEL_FILE), output)
    notes = [*notes, f"the model for ATC is in {folder}; ATC was not run"]
    return CompileResult(out, 0, 0, target.soc, tuple(notes), shlex.join(command))


def _node_facts(unit: CompileUnit, copy: HandOver) -> dict[str, NodeFacts]:
    nodes = {scoped.node.name: scoped.node for scoped in walk(unit.model.graph)}
    facts = {}
    for scoped in walk(copy.model.graph):
        name = scoped.node.name or ""
        before = copy.nodes[name]
        node = nodes.get(before)
        stems = [origin for origin in origins(node) if origin != before] if node else []
        facts[name] = NodeFacts(before or name, scoped.node.op_type, ", ".join(stems))
    return facts
