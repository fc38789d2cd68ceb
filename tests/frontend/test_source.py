"""What a user may call a model."""

import pytest

from cannc.compiler.core.errors import CanncError, ModelError, UsageError
from cannc.compiler.frontend.source import Source, call_source


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a/b.onnx", Source("onnx", "a/b.onnx")),
        ("hf:some/folder", Source("hf", "some/folder")),
        ("nets/net.py:make", Source("callable", "nets/net.py", "make")),
        ("pkg.mod:make", Source("callable", "pkg.mod", "make")),
    ],
)
def test_forms(text, want):
    assert Source.parse(text) == want


@pytest.mark.parametrize("text", ["model", "net.py", "net.py:", ":make", "net.py:not a name"])
def test_other_forms_are_refused(text):
    with pytest.raises(UsageError, match="cannot tell") as caught:
        Source.parse(text)
    assert caught.value.code == "SRC001"


@pytest.mark.parametrize("text", ["m.pt", "m.pth", "m.pt2", "m.bin", "m.pkl"])
def test_pickles_are_refused(text):
    with pytest.raises(UsageError, match="not read") as caught:
        Source.parse(text)
    assert caught.value.code == "SRC002"


def test_callable_gets_only_what_it_declares(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("def make(package):\n    return package\n\ndef plain():\n    return 1\n")
    source = Source("callable", str(file), "make")
    assert call_source(source, package="p", other=1) == "p"
    assert call_source(Source("callable", str(file), "plain"), package="p") == 1


def test_missing_callable_lists_what_is_there(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("def make():\n    return 1\n")
    with pytest.raises(UsageError) as caught:
        call_source(Source("callable", str(file), "mak"))
    assert caught.value.code == "SRC003"
    assert "make" in caught.value.fix


@pytest.mark.parametrize("location", ["missing.py", "no.such.module"])
def test_missing_module(location):
    with pytest.raises(UsageError) as caught:
        call_source(Source("callable", location, "make"))
    assert caught.value.code == "SRC003"


def test_failing_callable_is_named(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("def make():\n    return 1 / 0\n")
    with pytest.raises(ModelError, match="ZeroDivisionError") as caught:
        call_source(Source("callable", str(file), "make"))
    assert caught.value.code == "SRC004"
    assert isinstance(caught.value, CanncError)
