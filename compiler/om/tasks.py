"""TASK_INFO: what the device executes (om-format.md section 8). Host artifacts have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from cannc.compiler.om.proto import ModelTaskDef

TASK_TYPES = {
    0: "kernel",
    1: "event record",
    2: "event wait",
    3: "fusion start",
    4: "fusion end",
    5: "kernel ex",
    6: "hccl",
    7: "stream switch",
    8: "stream active",
    13: "memcpy async",
    19: "end graph",
    22: "memcpy addr async",
    26: "all kernel",
    29: "ffts plus",
    31: "cmo",
    32: "barrier",
    39: "vector kernel",
    44: "super kernel",
    47: "fusion kernel",
}


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        type: Name of the kind, or ``unknown <n>``.
        stream: Stream that it runs on.
        op_index: ``OpDef.id`` of the op that it belongs to; None for tasks without kernel.
        kernel: Kernel name; empty when the file leaves it to the op's attributes.
        block_dim: Cores that the kernel runs on; 0 without kernel.
    """

    type: str
    stream: int
    op_index: int | None
    kernel: str
    block_dim: int


@dataclass(frozen=True)
class TaskList:
    """The tasks of a model, and the device memory in bytes that they need."""

    tasks: tuple[Task, ...]
    memory_size: int
    weight_size: int


def read_tasks(data: bytes) -> TaskList | None:
    """Read TASK_INFO; None when it is in another format, as in files for phone chips."""
    definition = ModelTaskDef()
    try:
        definition.ParseFromString(data)
    except DecodeError:
        return None
    return TaskList(
        tuple(_task(task) for task in definition.task),
        definition.memory_size,
        definition.weight_size,
    )


def _task(task: Any) -> Task:
    kernel = task.kernel if task.HasField("kernel") else None
    return Task(
        type=TASK_TYPES.get(task.type, f"unknown {task.type}"),
        stream=task.stream_id,
        op_index=kernel.context.op_index if kernel else None,
        kernel=kernel.kernel_name or kernel.stub_func if kernel else "",
        block_dim=kernel.block_dim if kernel else 0,
    )
