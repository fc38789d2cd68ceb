"""Weights that stay where they are until someone needs their numbers.

Reading a memory-mapped weight makes its pages count as ours (D16), so everything that walks over
all weights goes through `read` or `released`, which give mapped pages back.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import onnx_ir as ir


@contextmanager
def released(tensor: ir.TensorProtocol) -> Iterator[npt.NDArray[np.generic]]:
    """Give the tensor's array inside the block; give its mapped pages back afterwards.

    The array of an external tensor must not be used after the block.
    """
    origin = source_of(tensor)
    was_mapped = isinstance(origin, ir.ExternalTensor) and origin.raw is not None
    try:
        yield tensor.numpy()
    finally:
        if isinstance(origin, ir.ExternalTensor):
            _release(origin, unmap=not was_mapped)


def read(tensor: ir.TensorProtocol) -> npt.NDArray[np.generic]:
    """Return a private copy of the tensor's numbers without keeping its file mapped."""
    with released(tensor) as array:
        return np.array(array)


@contextmanager
def stored_bytes(tensor: ir.TensorProtocol) -> Iterator[memoryview]:
    """Give the bytes in which a file holds the tensor; release its pages like `released`.

    A derived tensor is computed once for it, and not copied, as its ``tobytes`` would.
    """
    with released(tensor) as array:
        if tensor.dtype.bitwidth < 8 or sys.byteorder != "little":
            yield memoryview(tensor.tobytes())
        else:
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class DerivedTensor(ir.LazyTensor):
    """A tensor computed from another one when it is read, e.g. a weight rounded to float16.

    Keeping `source` lets a later stage start from the original numbers: quantization takes its
    scales from the float32 weights even if the precision pass ran before it (D11).
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        derive: Callable[[npt.NDArray[np.generic]], npt.NDArray[np.generic]],
        dtype: ir.DataType,
        shape: ir.Shape | None = None,
    ) -> None:
        """Args: source tensor, the function of its array, and dtype and shape of the result."""

        def evaluate() -> ir.TensorProtocol:
            with released(source) as array:
                return ir.Tensor(np.asarray(derive(array), order="C"), dtype=dtype)

        super().__init__(evaluate, dtype=dtype, shape=shape or source.shape, name=source.name)  # type: ignore[arg-type]
        self.source = source


class RoundedTensor(DerivedTensor):
    """The same numbers in another float dtype, see `cast_to`."""


def cast_to(tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.TensorProtocol:
    """Return `tensor` in another dtype, rounded when read (round to nearest even)."""
    if tensor.dtype == dtype:
        return tensor

    def convert(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        with np.errstate(over="ignore"):
            return array.astype(dtype.numpy())

    return RoundedTensor(tensor, convert, dtype)


def unrounded(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return the numbers from before `cast_to` rounded them.

    Stops at a tensor that was derived in any other way (transposed, scaled): its numbers are new.
    """
    while isinstance(tensor, RoundedTensor):
        tensor = tensor.source
    return tensor


def source_of(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return the tensor that `tensor` was derived from, through any number of steps."""
    while isinstance(tensor, DerivedTensor):
        tensor = tensor.source
    return tensor


def _release(tensor: ir.ExternalTensor, *, unmap: bool) -> None:
    """Give pages back; they are read again if somebody still looks at a view of them."""
    pages = tensor.raw
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
    if unmap:
        # A view may outlive the block (the name after `as` does), and a map with views cannot be
        # closed. The tensor lets go of it; it is closed with its last view.
        try:
            tensor.release()
        except BufferError:
            tensor.raw = None
