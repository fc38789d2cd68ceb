"""Runs that show inner values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.lowering import Half


class TappedRun:
    """A model loaded once that yields chosen values of each run.

    All values of a run are in memory at once; whoever consumes them takes one at a time, so that
    an executor that computes the graph in pieces can stand in here.
    """

    def __init__(
        self, model: ir.Model, names: Sequence[str], *, half: Half, fuse: bool = True
    ) -> None:
        """Args: the model, values of its main graph to show, and see `HostSession`."""
        self._names = list(dict.fromkeys(names))
        self._session = HostSession(model, half=half, taps=self._names, fuse=fuse)

    def __call__(
        self, feeds: Mapping[str, Array], *, allow_nan: bool = False
    ) -> Iterator[tuple[str, Array]]:
        """Run once and yield ``(name, array)``, each name once."""
        results = self._session.run(feeds, allow_nan=allow_nan)
        for name in self._names:
            yield name, results.pop(name)
