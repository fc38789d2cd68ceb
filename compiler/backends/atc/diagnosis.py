"""Why ATC failed: the first error code, what it means, and the node that it is about."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.backends.atc.process import Outcome
from cannc.compiler.backends.atc.table import error_table
from cannc.compiler.core.errors import ToolchainError, add_note
from cannc.op_support.advice import cure_for

SUCCESS_LINE = "ATC run success"

_CODE = re.compile(r"^([EW][A-Z0-9]\d{4})\b:?\s*(.*)")
_PREFIX = re.compile(r"^\[PID:[^\]]*\]\s*[\d\-:. ]*")
_TRACE = re.compile(r"^\s*(TraceBack|Traceback)\b")
_TYPE = re.compile(r"([\w.]+)::(\d+)::(\w+)")
_WORD = re.compile(r"[^\s'\"\[\](){},;=]+")
_TAIL_LINES = 40
_MESSAGE_LENGTH = 600


@dataclass(frozen=True)
class NodeFacts:
    """A node as reports name it.

    Attributes:
        name: Node name.
        op_type: Its type.
        origin: Nodes of the original model that it stands for, when they have other names.
    """

    name: str
    op_type: str
    origin: str = ""

    def __str__(self) -> str:
        """Return e.g. ``node conv1 (Conv), in the original model: conv``."""
        tail = f", in the original model: {self.origin}" if self.origin else ""
        return f"node {self.name} ({self.op_type}){tail}"


@dataclass(frozen=True)
class Block:
    """One error or warning of ATC.

    Attributes:
        code: E.g. ``E13010``.
        text: Its message without process number, time and trace, in one line.
    """

    code: str
    text: str


def diagnose(
    outcome: Outcome,
    log_file: Path,
    nodes: Mapping[str, NodeFacts],
    *,
    produced: bool,
    timeout_s: float | None = None,
) -> ToolchainError:
    """Return the error for a run that failed; its note holds the end of the log.

    Args:
        outcome: How the run ended.
        log_file: What ATC printed.
        nodes: Name in the model that ATC got -> the node.
        produced: Whether an output file is there.
        timeout_s: The time that it had.
    """
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    blocks = [block for block in error_blocks(lines) if block.code.startswith("E")]
    if outcome.timed_out:
        error = _timed_out(outcome, timeout_s, log_file)
    elif blocks:
        error = _refused(blocks, nodes, log_file)
    elif outcome.signal is not None:
        error = _killed(outcome, log_file)
    else:
        error = _unexplained(outcome, lines, log_file, produced=produced)
    add_note(error, "end of ATC's log:\n" + "\n".join(lines[-_TAIL_LINES:]))
    return error


def error_blocks(lines: Iterable[str]) -> Iterator[Block]:
    """Yield the blocks that begin with a code at the start of a line."""
    code, tracing = "", False
    text: list[str] = []
    for line in lines:
        match = _CODE.match(line)
        if match:
            if code:
                yield Block(code, _one_line(text))
            code, text, tracing = match[1], [_PREFIX.sub("", match[2])], False
        elif code:
            tracing = tracing or bool(_TRACE.match(line))
            if not tracing:
                text.append(line)
    if code:
        yield Block(code, _one_line(text))


def warnings(lines: Iterable[str]) -> list[str]:
    """Return the warnings that ATC prints, as ``CODE: text``."""
    return [f"{b.code}: {b.text}" for b in error_blocks(lines) if b.code.startswith("W")]


def _refused(blocks: list[Block], nodes: Mapping[str, NodeFacts], log_file: Path) -> ToolchainError:
    table = error_table()
    causes = [block for block in blocks if not table.is_follow_up(block.code)]
    first = (causes or blocks)[0]
    row = table.explain(first.code)
    same = [block for block in blocks if block.code == first.code and block is not first]
    rest = sorted({block.code for block in blocks if block.code != first.code})
    folded = f" (and {len(same)} more of {first.code})" if same else ""
    folded += f" (followed by {', '.join(rest)})" if rest else ""
    node = named_node(first.text, nodes)
    unsupported = _TYPE.search(first.text)
    cures = [cure_for(f"{unsupported[1]}::{unsupported[3]}")] if unsupported else []
    cures += [row.cure] if row else []
    return ToolchainError(
        "ATC101",
        f"ATC failed with {first.code}: {row.means if row else 'a code that cannc does not know'}",
        where=str(node) if node else "",
        why=first.text + folded,
        fix="; ".join([*filter(None, cures), f"whole log: {log_file}"]),
    )


def named_node(text: str, nodes: Mapping[str, NodeFacts]) -> NodeFacts | None:
    """Return the node that a message names: by name, by a name ATC derived from it, or by type."""
    words = [word.strip(".:") for word in _WORD.findall(text)]
    for word in words:
        if word in nodes:
            return nodes[word]
    for word in words:
        parents = [name for name in nodes if word.startswith((f"{name}_", f"{name}:"))]
        if parents:
            return nodes[max(parents, key=len)]
    types = [match[3] for match in _TYPE.finditer(text)]
    return next((node for node in nodes.values() if node.op_type in types), None)


def _timed_out(outcome: Outcome, timeout_s: float | None, log_file: Path) -> ToolchainError:
    return ToolchainError(
        "ATC103",
        f"ATC was stopped after {outcome.seconds:.0f} s",
        why=f"its time was {timeout_s:g} s; it used up to {outcome.peak_bytes / 1e9:.1f} GB",
        fix=f"give --timeout more seconds, or fewer gears; whole log: {log_file}",
    )


def _killed(outcome: Outcome, log_file: Path) -> ToolchainError:
    number = outcome.signal or 0
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    used = f"ATC and its compilers used up to {outcome.peak_bytes / 1e9:.1f} GB"
    if outcome.least_available_bytes is not None:
        used += f", {outcome.least_available_bytes / 1e9:.1f} GB of the machine stayed free"
    log = f"whole log: {log_file}"
    if number == signal.SIGKILL:
        seen = outcome.oom_kills > 0
        cause = (
            "the kernel's out-of-memory killer ended processes meanwhile"
            if seen
            else "it printed no error, as when the out-of-memory killer ends it"
        )
        fix = "set TE_PARALLEL_COMPILER=1 and MAX_COMPILE_CORE_NUMBER=1, add swap, or compile on a "
        fix += f"host with more memory; {log}"
        what = "ATC ran out of memory and was killed" if seen else "ATC was killed"
        return ToolchainError("ATC102", f"{what} ({name})", why=f"{cause}; {used}", fix=fix)
    return ToolchainError(
        "ATC102",
        f"ATC crashed ({name})",
        why=f"it ended without an error message; {used}",
        fix=f"'cannc check' names nodes that crash the parser; {log}",
    )


def _unexplained(
    outcome: Outcome, lines: list[str], log_file: Path, *, produced: bool
) -> ToolchainError:
    said = any(SUCCESS_LINE in line for line in lines)
    faults = [
        f"exit code {outcome.returncode}" if outcome.returncode else "",
        "" if said else f"no line '{SUCCESS_LINE}'",
        "" if produced else "no output file",
    ]
    last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing printed")
    return ToolchainError(
        "ATC104",
        "ATC gave no artifact" if outcome.returncode == 0 else "ATC failed without an error code",
        why=f"{', '.join(filter(None, faults))}; last line: {last[:200]}",
        fix=f"'cannc doctor' shows whether the toolkit is complete; whole log: {log_file}",
    )


def _one_line(lines: Iterable[str]) -> str:
    text = " ".join(" ".join(lines).split())
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[: _MESSAGE_LENGTH - 3]}..."
