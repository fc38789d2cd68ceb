"""Drives Netron's own sources headless under node."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_NODE = shutil.which("node")
_NETRON = find_spec("netron")

needs_netron = pytest.mark.skipif(
    _NODE is None or _NETRON is None, reason="node or netron is not installed"
)


def opened(path: Path, kind: str = "DaVinci OM") -> dict[str, Any]:
    """Return what Netron shows of a file, which it must open as `kind` without a complaint."""
    assert _NODE is not None
    assert _NETRON is not None
    assert _NETRON.origin is not None
    script = Path(__file__).with_name("netron_open.mjs")
    sources = Path(_NETRON.origin).parent
    done = subprocess.run(
        [_NODE, str(script), str(sources), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    assert shown["format"].startswith(kind)
    assert not shown["errors"]
    return shown
