"""Seeded damage: ``python -m tests.om.fuzz 100000``.

Every mutant must be read without any exception but CanncError, in bounded time.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import time
from pathlib import Path

import onnx_ir as ir
from tests.support.gears import with_gears
from tests.support.om_files import branching, written

from cannc.compiler.core.errors import CanncError
from cannc.compiler.inspection.inspect import inspect_file
from cannc.compiler.om.reader import OmFile

LIMIT_SECONDS = 2.0
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return a damaged copy: bits flipped, numbers replaced, bytes cut, inserted or moved."""
    mutant = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        kind, at = rng.randrange(6), rng.randrange(len(mutant))
        if kind == 0:
            mutant[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            mutant[at] = rng.randrange(256)
        elif kind == 2:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(_INTERESTING) % 2 ** (8 * size)
            mutant[at : at + size] = number.to_bytes(size, "little")
        elif kind == 3:
            del mutant[at : at + rng.randrange(1, 64)]
        elif kind == 4:
            mutant[at:at] = rng.randbytes(rng.randrange(1, 16))
        else:
            other = rng.randrange(len(mutant))
            mutant[at : at + 16] = mutant[other : other + 16]
        if not mutant:
            return b""
    return bytes(mutant)


def repaired(mutant: bytes) -> bytes:
    """Make the length fit, so that the damage is found by what lies behind that check."""
    if len(mutant) < 256:
        return mutant
    return mutant[:184] + (len(mutant) - 256).to_bytes(8, "little") + mutant[192:]


def read_everything(path: Path) -> None:
    """Use all that a reader offers; CanncError is how damage is reported."""
    try:
        file = OmFile.open(path)
    except CanncError:
        return
    for part in ("model_attributes", "is_host", "interface", "tasks", "kernels", "libraries"):
        _attempt(lambda part=part: getattr(file, part))  # type: ignore[misc]
    for part in ("tilings", "weights", "bundled", "gears", "gear_groups", "ranges"):
        _attempt(lambda part=part: getattr(file, part))  # type: ignore[misc]
    for gear in (None, 1):
        _attempt(lambda gear=gear: _use(file.to_model(gear)))  # type: ignore[misc]
    _attempt(lambda: inspect_file(path, with_graph=True))


def _attempt(action) -> None:
    try:
        action()
    except CanncError:
        return


def _use(model: ir.Model) -> None:
    for value in model.graph.initializers.values():
        value.const_value.numpy()
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value.release()


def main(count: int, seed: int = 0) -> float:
    """Read `count` mutants; return the slowest one's seconds.

    Raises:
        AssertionError: a mutant took longer than the limit.
    """
    logging.disable(logging.CRITICAL)
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.om"
        written(branching(), path)
        originals = [path.read_bytes()]
        with_gears(branching(), path, [{"x": (n, 8), "c": ()} for n in (1, 2)])
        originals.append(path.read_bytes())
        for index in range(count):
            rng = random.Random(f"{seed}-{index}")
            mutant = mutate(originals[index % 2], rng)
            path.write_bytes(repaired(mutant) if rng.random() < 0.8 else mutant)
            start = time.perf_counter()
            try:
                read_everything(path)
            except Exception as error:
                message = f"mutant {index} of seed {seed}: {type(error).__name__}: {error}"
                raise AssertionError(message) from error
            slowest = max(slowest, time.perf_counter() - start)
            assert slowest < LIMIT_SECONDS, f"mutant {index} of seed {seed} took {slowest:.1f} s"
    logging.disable(logging.NOTSET)
    return slowest


if __name__ == "__main__":
    seconds = main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
    sys.stdout.write(f"slowest: {seconds:.3f} s\n")
