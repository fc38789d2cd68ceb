"""Levels as they are stored: int8, or eight int4 in one INT32 (D7, npu-ops.md section 2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PER_WORD = 8
"""int4 values in one int32."""

_SHIFTS = np.arange(0, 32, 4, dtype=np.uint32)


def pack_int4(levels: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """Pack levels -8..7 (k, n), n a multiple of 8, into (k, n/8); the first in the lowest bits."""
    if levels.shape[-1] % PER_WORD:
        msg = f"the last dimension of {levels.shape} is no multiple of {PER_WORD}"
        raise ValueError(msg)
    nibbles = (levels.astype(np.int32) & 0xF).astype(np.uint32)
    words = nibbles.reshape(*levels.shape[:-1], levels.shape[-1] // PER_WORD, PER_WORD) << _SHIFTS
    packed: npt.NDArray[np.uint32] = np.bitwise_or.reduce(words, axis=-1)
    return packed.view(np.int32)


def unpack_int4(words: npt.NDArray[np.int32]) -> npt.NDArray[np.int8]:
    """Undo `pack_int4`."""
    nibbles = (words.view(np.uint32)[..., np.newaxis] >> _SHIFTS) & 0xF
    levels = (nibbles.astype(np.int8) ^ 8) - 8
    return levels.reshape(*words.shape[:-1], words.shape[-1] * PER_WORD).astype(np.int8)
