from __future__ import annotations

from pathlib import Path

import pytest

from cannc.compiler.core import errors
from cannc.compiler.core.errors import CanncError, UsageError, add_note, nearest, notes
from cannc.compiler.core.files import atomic_write, check_writable, write_text


def test_an_error_prints_one_block_without_empty_parts() -> None:
    error = CanncError("X001", "it broke", where="here", fix="mend it")
    assert str(error) == "error[X001]: it broke\n  at   here\n  fix  mend it"


def test_every_kind_of_error_has_an_exit_code_of_the_contract() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {k.__name__: k.exit_code for k in kinds if issubclass(k, CanncError)}
    assert codes == {
        "CanncError": 70,
        "UsageError": 2,
        "ModelError": 2,
        "UnsupportedOpError": 1,
        "GoldenMismatchError": 1,
        "PassError": 70,
        "MissingToolError": 3,
        "ToolchainError": 4,
    }


def test_near_names_are_suggested() -> None:
    assert nearest("relu", ["Relu", "relus"]) == ", did you mean 'relus'?"
    assert nearest("relu", ["Conv"]) == ""


def test_notes_add_up() -> None:
    error = ValueError("x")
    assert notes(error) == []
    add_note(error, "one")
    add_note(error, "two")
    assert notes(error) == ["one", "two"]


def _write_and_raise(out: Path, error: Exception) -> None:
    with atomic_write(out) as stream:
        stream.write(b"new")
        raise error


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "a.txt"
    write_text(out, "old")
    with pytest.raises(RuntimeError, match="half-way"):
        _write_and_raise(out, RuntimeError("half-way"))
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        _write_and_raise(tmp_path / "a", OSError(28, "No space left on device"))
    assert caught.value.code == "IO003"
    assert "No space left" in caught.value.why
    assert not list(tmp_path.iterdir())


def test_output_over_input_is_refused_even_through_a_link(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("x")
    link = tmp_path / "b"
    link.symlink_to(source)
    with pytest.raises(UsageError, match="IO001"):
        check_writable(link, source)


@pytest.mark.parametrize("name", ["", "missing/a"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="IO002"):
        check_writable(tmp_path / name)
