"""What ``run`` does with outputs: the last ones are shown, all are saved if asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cannc.compiler.core.files import atomic_write, make_folder


class Results:
    """Takes outputs sample by sample.

    Attributes:
        last: Outputs of the sample that came last.
    """

    def __init__(self, folder: Path | None, suffix: str, samples: Sequence[str]) -> None:
        """Prepare.

        Args:
            folder: Where to save; None saves nothing.
            suffix: ``npy`` or ``bin``.
            samples: Names of the samples. A single one's outputs are called as in the model,
                several ones' by sample and number of the output.
        """
        self._folder, self._suffix, self._samples = folder, suffix, samples
        self.last: dict[str, Any] = {}

    def keep(self, sample: int, outputs: dict[str, Any]) -> None:
        """Take the outputs of one sample."""
        self.last = outputs
        if self._folder is None:
            return
        make_folder(self._folder)
        for index, (name, value) in enumerate(outputs.items()):
            stem = name.replace("/", "_")
            if len(self._samples) > 1:
                stem = f"{self._samples[sample]}_{index}"
            with atomic_write(self._folder / f"{stem}.{self._suffix}") as stream:
                if self._suffix == "bin":
                    stream.write(np.ascontiguousarray(value).tobytes())
                else:
                    np.save(stream, value)
