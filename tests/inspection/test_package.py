"""om2 packages: the manifest is shown; a hostile archive costs nothing."""

import json
import struct
import zipfile

import pytest

from cannc.compiler.core.errors import ModelError
from cannc.compiler.inspection import package
from cannc.compiler.inspection.inspect import inspect_file

MANIFEST = {"om2_version": "0", "model_num": 1, "atc_command": "atc --mode=7"}
META = {"name": "net", "inputs": [{"name": "x", "shape": [1, 3]}], "work_size": 512}


def written(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data if isinstance(data, bytes) else json.dumps(data))
    return path


@pytest.mark.parametrize("root", ["", "net/"])
def test_manifest_and_model_description_are_shown(tmp_path, root):
    entries = {
        f"{root}manifest.json": MANIFEST,
        f"{root}data/model_0/model_meta.json": META,
        f"{root}data/model_0/runtime/model.so": bytes(1000),
    }
    found = inspect_file(written(tmp_path / "net.om", entries))
    assert found.format == "om2"
    assert found.package.manifest == MANIFEST
    assert found.package.models == {"model_0": META}
    assert found.package.files["data/model_0/runtime/model.so"] == 1000


def test_a_broken_model_description_is_named(tmp_path):
    entries = {"manifest.json": MANIFEST, "data/model_0/model_meta.json": b"{"}
    found = inspect_file(written(tmp_path / "net.om2", entries))
    assert [(u.part, u.code) for u in found.unread] == [("data/model_0/model_meta.json", "OM013")]
    assert found.package.models == {"model_0": None}


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"readme.txt": b"hello"}, "no manifest.json"),
        ({"manifest.json": b"{"}, "is not JSON"),
        ({"manifest.json": b"[" * 100_000}, "is not JSON"),
        ({"manifest.json": b" " * (package.MAX_JSON_BYTES + 1)}, "has more than"),
    ],
)
def test_what_is_no_package(tmp_path, entries, why):
    with pytest.raises(ModelError, match="om2 package") as caught:
        inspect_file(written(tmp_path / "net.om", entries))
    assert caught.value.code == "OM013"
    assert why in caught.value.why


def test_too_many_entries(tmp_path, monkeypatch):
    monkeypatch.setattr(package, "MAX_ENTRIES", 2)
    path = written(tmp_path / "net.om", {f"{i}": b"" for i in range(3)})
    with pytest.raises(ModelError, match="om2 package") as caught:
        inspect_file(path)
    assert "3 entries" in caught.value.why


def test_an_archive_that_is_cut_off_or_lies_about_its_directory(tmp_path):
    path = written(tmp_path / "net.om", {"manifest.json": MANIFEST})
    whole = path.read_bytes()
    at = whole.rfind(b"PK\x05\x06")
    lie = bytearray(whole)
    lie[at + 12 : at + 16] = struct.pack("<I", 2**31)
    for data in [whole[:n] for n in range(4, len(whole), 7)] + [bytes(lie)]:
        path.write_bytes(data)
        with pytest.raises(ModelError) as caught:
            inspect_file(path)
        assert caught.value.code == "OM013"


def test_an_encrypted_manifest_is_said_to_be_encrypted(tmp_path):
    path = written(tmp_path / "net.om", {"manifest.json": MANIFEST})
    data = bytearray(path.read_bytes())
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(magic) + at] |= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match="om2") as caught:
        inspect_file(path)
    assert "encrypted" in caught.value.why
