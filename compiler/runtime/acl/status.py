"""Return codes of pyACL: what they mean and what to do (pyacl.md section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from cannc.compiler.core.errors import ToolchainError

SUCCESS = 0


@dataclass(frozen=True)
class Meaning:
    """What a code says.

    Attributes:
        text: What went wrong.
        fix: What usually helps.
    """

    text: str
    fix: str


class AclError(ToolchainError):
    """A pyACL call failed.

    Attributes:
        status: Its return code.
        call: Its name.
    """

    def __init__(self, call: str, status: int, message: str = "") -> None:
        meaning = explain(status)
        why = f"{status}: {meaning.text}"
        if message:
            why += f". The runtime says: {' '.join(message.split())}"
        super().__init__("RUN030", f"{call} failed", where=call, why=why, fix=meaning.fix)
        self.status = status
        self.call = call


def explain(status: int) -> Meaning:
    """Return the meaning of a code; by its family where the code itself is not in the table."""
    if status in CODES:
        return CODES[status]
    for low, high, meaning in _FAMILIES:
        if low <= status <= high:
            return meaning
    return Meaning("unknown code", _PLOG)


_PLOG = "look into the plog files below ~/ascend/log, which name the operator and the reason"
_OURS = "this is a fault of the calling program: report it with the command that shows it"
_RECOMPILE = "compile the model again for this SoC and a CANN release not newer than this one"
_SMALLER = "use a smaller batch or fewer runs in flight, or free what other programs hold"
_CHECK = "check the device with npu-smi info, then reset it or start the machine again"
_SHAPES = "feed the sizes and dtypes that 'cannc inspect' shows for the artifact"

CODES = {
    100000: Meaning("invalid parameter: a null handle, a bad index or an unknown gear", _SHAPES),
    100001: Meaning("pyACL is not initialised", "call acl.init first, and once per process"),
    100002: Meaning("pyACL was initialised twice", "call acl.init once per process"),
    100003: Meaning("the file is missing or no offline model", "check the path of the .om"),
    100004: Meaning("a file cannot be written", "check permissions and free space"),
    100005: Meaning("a file has the wrong size", "copy or compile the artifact again"),
    100006: Meaning("a file cannot be parsed", "copy or compile the artifact again"),
    100009: Meaning("the dump configuration is wrong", "check the fields of acl.json"),
    100010: Meaning("the profiling configuration is wrong", "check the fields of acl.json"),
    100011: Meaning("no model has this id: it was unloaded", _OURS),
    100012: Meaning("the model cannot be read: damaged, or newer than the runtime", _RECOMPILE),
    100013: Meaning("the model cannot be parsed", _RECOMPILE),
    100014: Meaning("the model cannot be read", _RECOMPILE),
    100015: Meaning("the model has a wrong size", _RECOMPILE),
    100016: Meaning("the model lacks an attribute", _RECOMPILE),
    100017: Meaning("inputs do not fit the model: number of buffers or their sizes", _SHAPES),
    100018: Meaning("outputs do not fit the model: number of buffers or their sizes", _SHAPES),
    100019: Meaning("the model has no gears of this kind", "compile it with --gears"),
    100033: Meaning("the callback is subscribed already", _OURS),
    100034: Meaning("the callback is not subscribed", _OURS),
    100035: Meaning("the callback timed out", _PLOG),
    100037: Meaning("pyACL was finalised twice", _OURS),
    100038: Meaning("the model has no static AIPP", "compile it with --aipp"),
    100039: Meaning("a stub library for compiling is loaded", "take devlib off LD_LIBRARY_PATH"),
    100042: Meaning("profiling runs already", "end the other profiling session"),
    100044: Meaning("dumping is configured already", "configure it once: acl.init or set_dump"),
    107000: Meaning("the runtime refuses a parameter", _OURS),
    107001: Meaning("there is no device with this number", "npu-smi info lists the devices"),
    107002: Meaning("the thread has no context", "call acl.rt.set_context in each new thread"),
    107003: Meaning("the stream belongs to another context", _OURS),
    107004: Meaning("the model belongs to another context", _OURS),
    107019: Meaning("waiting timed out", _PLOG),
    107020: Meaning("a task timed out", _PLOG),
    145000: Meaning("the executor refuses a parameter", _SHAPES),
    145001: Meaning("the executor is not initialised", _OURS),
    145002: Meaning("the executor does not find the model file", "check the path of the .om"),
    145003: Meaning("the executor knows no model with this id", _OURS),
    145006: Meaning("the model has a wrong size", "copy or compile the artifact again"),
    145007: Meaning("the address of the model is wrong", _OURS),
    145011: Meaning("the address of an input buffer is wrong", _OURS),
    145012: Meaning("the size of an input buffer does not fit the model", _SHAPES),
    145013: Meaning("the gear is none of the model's", _SHAPES),
    145014: Meaning("AIPP has no batch", "set the AIPP parameters of this run"),
    145015: Meaning("the model has no AIPP", "compile it with --aipp"),
    145016: Meaning("AIPP is of the other kind, static or dynamic", "check the AIPP file"),
    145020: Meaning("the executor refuses a format", _SHAPES),
    145021: Meaning("the executor refuses a shape", _SHAPES),
    145022: Meaning("the executor refuses a dtype", _SHAPES),
    148049: Meaning("the path of the operator package is wrong", "source set_env.sh"),
    200000: Meaning("memory cannot be allocated", _SMALLER),
    200001: Meaning("this release or device does not support the call", "use a newer CANN"),
    200002: Meaning("the device is invalid", _CHECK),
    200006: Meaning("this release or device does not support the feature", "use a newer CANN"),
    207001: Meaning("the runtime cannot allocate memory", _SMALLER),
    207003: Meaning("a number overflowed in the AI Core", "compare layers: cannc compare"),
    207004: Meaning("there is no device", _CHECK),
    207005: Meaning("no permission for the device", "add the user to the group of the driver"),
    207018: Meaning("the device is out of memory", _SMALLER),
    300000: Meaning("a storage limit is reached", _SMALLER),
    500000: Meaning("internal error of pyACL", _PLOG),
    500002: Meaning("internal error of the graph engine", _PLOG),
    500003: Meaning("internal error of the runtime", _PLOG),
    500004: Meaning("internal error of the driver", _CHECK),
    507008: Meaning("the model is for another SoC", "compile with the --soc that npu-smi shows"),
    507011: Meaning("the model failed while it ran", _PLOG),
    507014: Meaning("the AI Core timed out", _PLOG),
    507015: Meaning("an exception in the AI Core: a bad address or a fault of a kernel", _PLOG),
    507016: Meaning("a trap in the AI Core: a bad address or a fault of a kernel", _PLOG),
    507017: Meaning("the AI CPU timed out", _PLOG),
    507018: Meaning(
        "an exception in the AI CPU, often by values such as an index out of range",
        "check the values of the inputs; " + _PLOG,
    ),
    507034: Meaning("the vector core timed out", _PLOG),
    507035: Meaning("an exception in the vector core", _PLOG),
    507036: Meaning("a trap in the vector core", _PLOG),
    507053: Meaning("a fault of the device's memory", _CHECK),
    507899: Meaning("internal error of the driver", _CHECK),
    545000: Meaning("the graph engine cannot load or run the model", _RECOMPILE),
    545001: Meaning("the graph engine cannot load the model: newer than the runtime", _RECOMPILE),
    545601: Meaning("the graph engine timed out", _PLOG),
}
"""Code -> meaning, for those whose cause is known."""

_FAMILIES = (
    (100000, 199999, Meaning("the call is wrong", _SHAPES)),
    (200000, 299999, Meaning("a resource is missing", _SMALLER)),
    (300000, 399999, Meaning("a limit is reached", _SMALLER)),
    (507000, 507999, Meaning("the device failed", _CHECK)),
    (500000, 599999, Meaning("internal error", _PLOG)),
)
