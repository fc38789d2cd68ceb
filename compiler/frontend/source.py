"""What a user may call a model: a file, a folder, or a Python callable that makes one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cannc.compiler.core.errors import ModelError, UsageError

Kind = Literal["onnx", "hf", "callable"]
Dynamic = Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Attributes:
        kind: ``onnx`` file, ``hf`` folder, or ``callable``.
        location: Path of the file or folder; for callables the module file or dotted name.
        attribute: Name of the callable.
    """

    kind: Kind
    location: str
    attribute: str = ""

    @classmethod
    def parse(cls, text: str | Path) -> Source:
        """Read ``x.onnx``, ``hf:DIR``, ``file.py:callable`` or ``pkg.mod:callable``.

        Raises:
            UsageError: ``SRC001`` no such form, ``SRC002`` a format that is refused on purpose.
        """
        spec = str(text)
        if spec.startswith("hf:"):
            return cls("hf", spec[3:])
        if spec.endswith(".onnx"):
            return cls("onnx", spec)
        if Path(spec).suffix in _REFUSED:
            raise UsageError(
                "SRC002",
                f"{Path(spec).suffix} files are not read",
                where=spec,
                why="they can hold pickled objects, and unpickling runs code from the file",
                fix="name a callable of yours that loads it: file.py:callable",
            )
        location, _, attribute = spec.rpartition(":")
        if location and attribute.isidentifier():
            return cls("callable", location, attribute)
        raise UsageError(
            "SRC001",
            f"cannot tell what '{spec}' is",
            fix="use model.onnx, hf:FOLDER, file.py:callable or package.module:callable",
        )


_REFUSED = {".pt", ".pth", ".pt2", ".bin", ".ckpt", ".pkl"}


@dataclass
class Example:
    """A PyTorch module with what is needed to export it.

    Attributes:
        module: The ``torch.nn.Module``.
        inputs: Input name -> example tensor, in the order of the exported graph's inputs.
        dynamic: Input name -> {axis: dimension name}; axes not named are static.
    """

    module: Any
    inputs: dict[str, Any]
    dynamic: dict[str, dict[int, str]] = field(default_factory=dict)


def call_source(source: Source, **offered: Any) -> Any:
    """Import the callable of a source and call it.

    Args:
        source: A source of kind ``callable``.
        **offered: Keyword arguments; the callable gets those that it declares.

    Raises:
        UsageError: ``SRC003`` the module or the callable does not exist.
        ModelError: ``SRC004`` the callable itself failed.
    """
    function = load_callable(source)
    accepted = inspect.signature(function).parameters
    try:
        return function(**{key: value for key, value in offered.items() if key in accepted})
    except Exception as error:
        raise ModelError(
            "SRC004",
            f"the callable failed: {type(error).__name__}: {error}",
            where=f"{source.location}:{source.attribute}",
            fix="run it by itself first; --debug shows its traceback",
        ) from error


def load_callable(source: Source) -> Callable[..., Any]:
    """Import and return the callable of a source (see `call_source`)."""
    where = f"{source.location}:{source.attribute}"
    try:
        module = _import(source.location)
    except (ImportError, OSError) as error:
        raise UsageError(
            "SRC003",
            f"cannot import {source.location}",
            where=where,
            why=str(error),
            fix="check the path, and that the packages it imports are installed",
        ) from error
    function = getattr(module, source.attribute, None)
    if not callable(function):
        public = [name for name in vars(module) if callable(getattr(module, name))]
        raise UsageError(
            "SRC003",
            f"{source.location} has no callable '{source.attribute}'",
            where=where,
            fix=f"it has: {', '.join(n for n in public if not n.startswith('_'))}",
        )
    return function  # type: ignore[no-any-return]


def _import(location: str) -> Any:
    if not location.endswith(".py"):
        return importlib.import_module(location)
    path = Path(location)
    if not path.is_file():
        msg = f"no such file: {location}"
        raise FileNotFoundError(msg)
    name = f"_cannc_source_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{location} is not a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling inside the file look their module up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
