"""Whether this machine can run device code: pyACL installed, and a device that answers."""

from __future__ import annotations

import importlib
import importlib.util
import logging

log = logging.getLogger(__name__)


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
