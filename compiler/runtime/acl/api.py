"""The only module that imports pyACL."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from typing import Any

from cannc.compiler.core.errors import MissingToolError

log = logging.getLogger(__name__)

_FIX = (
    "source the toolkit's set_env.sh and check the device with npu-smi info; artifacts compiled "
    "with --backend host run on any machine"
)


def device_count() -> int:
    """Return the number of Ascend devices that pyACL sees; 0 without pyACL or driver."""
    if importlib.util.find_spec("acl") is None:
        return 0
    try:
        acl = importlib.import_module("acl")
        count, status = acl.rt.get_device_count()
    except (ImportError, OSError, AttributeError) as error:
        log.warning("pyACL is installed but cannot be used: %s", error)
        return 0
    if status != 0:
        log.warning("pyACL finds no device: acl.rt.get_device_count returned %s", status)
        return 0
    return int(count)


def device_acl(device: int) -> Any:
    """Return pyACL's module where it and the device can be used.

    Args:
        device: Number of the device that is wanted.

    Raises:
        MissingToolError: ``RUN032`` pyACL, any device, or this one is missing.
    """
    found = device_count()
    if 0 <= device < found:
        return importlib.import_module("acl")
    if found:
        why = f"pyACL sees {found} devices, numbered from 0"
    elif importlib.util.find_spec("acl") is None:
        why = (
            "pyACL (the Python module acl of the CANN toolkit) is not installed or not on the path"
        )
    else:
        why = "pyACL is installed and sees no device"
    raise MissingToolError(
        "RUN032", "no device can run this", where=f"device {device}", why=why, fix=_FIX
    )
