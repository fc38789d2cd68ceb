"""om2 packages: zip archives whose manifest and model descriptions are shown as they are.

Source: om-format.md section 10. Nothing is unpacked, and nothing in it is run.
"""

from __future__ import annotations

import json
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

from cannc.compiler.core.errors import ModelError
from cannc.compiler.inspection.container import Reading
from cannc.compiler.inspection.facts import PackageFacts
from cannc.compiler.om.faults import damaged

MAX_ENTRIES = 10_000
MAX_JSON_BYTES = 2**20
# The list of entries at the end of the archive is read whole; this bounds it.
MAX_DIRECTORY_BYTES = 2**24
_ENCRYPTED = 1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_package(path: Path, reading: Reading) -> PackageFacts:
    """Read manifest and model descriptions of an om2 package.

    Raises:
        ModelError: ``OM013`` no readable archive, or no ``manifest.json`` in it.
    """
    try:
        with zipfile.ZipFile(_checked(path)) as archive:
            return _read(archive, path, reading)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise _bad(path, str(error) or type(error).__name__) from error


def _checked(path: Path) -> Path:
    """Refuse an archive whose directory is too long to be read at once."""
    with path.open("rb") as stream:
        size = path.stat().st_size
        stream.seek(max(size - 2**16 - 22, 0))
        tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    directory = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if directory > MAX_DIRECTORY_BYTES:
        raise _bad(path, f"its directory claims {directory} bytes")
    return path


def _read(archive: zipfile.ZipFile, path: Path, reading: Reading) -> PackageFacts:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise _bad(path, f"{len(entries)} entries, at most {MAX_ENTRIES} are read")
    root = _root(entries)
    by_name = {e.filename.removeprefix(root): e for e in entries if not e.is_dir()}
    if "manifest.json" not in by_name:
        raise _bad(path, "there is no manifest.json in it: a zip archive, but not om2")
    manifest = _json(archive, by_name["manifest.json"], path)
    models: dict[str, Any] = {}
    for name in sorted(by_name):
        parts = name.split("/")
        if len(parts) == 3 and (parts[0], parts[2]) == ("data", "model_meta.json"):
            read = partial(_json, archive, by_name[name], path)
            models[parts[1]] = reading.attempt(name, read, None)
    return PackageFacts(manifest, models, {n: by_name[n].file_size for n in sorted(by_name)})


def _root(entries: list[zipfile.ZipInfo]) -> str:
    """Return the one folder that everything lies in, if there is one; readers strip it."""
    tops = {entry.filename.partition("/")[0] for entry in entries}
    nested = all("/" in entry.filename for entry in entries)
    return f"{tops.pop()}/" if nested and len(tops) == 1 and tops != {"data"} else ""


def _json(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> Any:
    name = entry.filename
    if entry.flag_bits & _ENCRYPTED:
        raise _bad(path, f"{name} is encrypted")
    if entry.compress_type not in _METHODS:
        raise _bad(path, f"{name} is compressed by method {entry.compress_type}")
    with archive.open(entry) as stream:
        data = stream.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise _bad(path, f"{name} has more than {MAX_JSON_BYTES} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"{name} is not JSON: {error}") from error


def _bad(path: Path, why: str) -> ModelError:
    return damaged("OM013", "the om2 package cannot be read", path, why)
