"""A `Runner` for many inputs of one model: the session stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.host_session import HostSession, with_outputs


class RepeatRunner:
    """Keeps the session of the last model and fetches; the model must not change between runs."""

    def __init__(self) -> None:
        self._model: ir.Model | None = None
        self._fetches: tuple[str, ...] = ()
        self._session: HostSession | None = None

    def run(
        self, model: ir.Model, feeds: Mapping[str, Array], fetches: Sequence[str]
    ) -> dict[str, Array]:
        """See `cannc.compiler.core.runner.Runner`."""
        wanted = tuple(fetches)
        if self._session is None or self._model is not model or self._fetches != wanted:
            self._session = None  # frees the old one's memory first
            self._session = HostSession(with_outputs(model, wanted))
            self._model, self._fetches = model, wanted
        results = self._session.run(feeds)
        return {name: results[name] for name in fetches}
