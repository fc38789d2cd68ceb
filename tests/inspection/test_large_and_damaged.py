"""A file of any size opens at once, and a damaged one ends in an error with a code."""

import dataclasses
import json
import logging
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from tests.om.fuzz import mutate, repaired
from tests.support import device_om as dev
from tests.support.models import mlp, save
from tests.support.om_files import branching, written

from cannc.compiler.core.errors import CanncError
from cannc.compiler.inspection.diff import diff_files
from cannc.compiler.inspection.facts import Inspection
from cannc.compiler.inspection.inspect import inspect_file
from cannc.compiler.inspection.reconstruct import as_onnx
from cannc.compiler.inspection.sections import sections
from cannc.compiler.om.header import Header
from cannc.compiler.om.partitions import PartitionType as P
from cannc.compiler.om.partitions import pack_table, table_bytes
from cannc.compiler.om.reader import OmFile

WEIGHTS, ELEMENTS = 40, 2**27  # 40 weights of 256 MiB in float16: 10 GiB
SIZE = WEIGHTS * ELEMENTS * 2
LIMIT_SECONDS = 2.0


def sparse(path, size):
    """Give a file a size without writing; skip where the file system takes real space."""
    try:
        os.truncate(path, size)
    except OSError:
        pytest.skip("the file system has no sparse files")
    if path.stat().st_blocks * 512 > 2**28:
        pytest.skip("the file system has no sparse files")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A 10 GiB device model: its weights are a hole in the file, the task list lies behind it."""
    path = tmp_path_factory.mktemp("large") / "large.om"
    model = dev.definition()
    root = model.graph[0]
    for index in range(WEIGHTS):
        dev.add_const(root, f"big{index}", index * ELEMENTS * 2, (ELEMENTS,), "ND")
    parts = {P.MODEL_DEF: dev.serialized(model), P.WEIGHTS_DATA: b"", P.TASK_INFO: dev.tasks(0, 19)}
    sizes = [(int(k), SIZE if k == P.WEIGHTS_DATA else len(data)) for k, data in parts.items()]
    body = table_bytes(3) + sum(size for _, size in sizes)
    with path.open("wb") as stream:
        stream.write(Header(name="large", model_length=body).pack() + pack_table(sizes))
        stream.write(parts[P.MODEL_DEF])
        at = stream.tell() + SIZE
    sparse(path, at)
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(parts[P.TASK_INFO])
    yield path
    path.unlink()


def test_a_10_gb_file_opens(large):
    found = inspect_file(large, with_graph=True)
    assert found.size_bytes > SIZE >= 10 * 2**30
    assert found.models[0].weights.count == WEIGHTS + 3
    assert found.models[0].weights.largest[0].size_bytes == 2 * ELEMENTS
    assert found.kind == "device"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_10_gb_file_takes_little_memory(large):
    code = (
        "import sys\n"
        "from cannc.compiler.cli.main import main\n"
        "code = main(['inspect', sys.argv[1]])\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(peak.split()[1], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(large)], capture_output=True, text=True, check=True
    )
    # Not ru_maxrss: that starts from the size of the process that forked.
    assert int(done.stderr.split()[-1]) * 1024 < 200e6
    assert "large.om: compiled for Ascend310B4" in done.stdout


def test_an_onnx_model_with_10_gb_beside_it_opens(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(mlp(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    sparse(tmp_path / "m.data", SIZE)
    found = inspect_file(path)
    assert found.onnx.external[0].found_bytes == SIZE


def use_everything(path: Path, other: Path) -> None:
    """Inspect, picture and compare a file; CanncError is how damage is reported."""
    actions = (
        lambda: show(inspect_file(path, with_graph=True)),
        lambda: as_onnx(OmFile.open(path)),
        lambda: diff_files(path, other),
    )
    codes = [code_of(action) for action in actions]
    # Each format has codes of its own; IO codes would be about the path.
    assert all(code.startswith(("OM", "ONNX")) for code in codes if code), codes


def show(found: Inspection) -> None:
    json.dumps(dataclasses.asdict(found), sort_keys=True, allow_nan=False).encode()
    for section in sections(found):
        assert all(str(cell) is not None for row in section.rows for cell in row)


def code_of(action) -> str:
    try:
        action()
    except CanncError as error:
        return error.code
    return ""


@pytest.mark.parametrize("kind", ["host", "device", "coded", "several", "bundle", "narrow", "onnx"])
def test_mutants_end_in_an_error_with_a_code(kind, tmp_path):
    path = tmp_path / ("m.onnx" if kind == "onnx" else "m.om")
    makers = {
        "host": lambda: written(branching(), path),
        "onnx": lambda: save(branching(), path),
        "device": lambda: dev.device_om(path),
        "coded": lambda: dev.device_om(path, dev.compressed(dev.definition())),
        "several": lambda: dev.several_models(
            path,
            dev.compressed(dev.definition("a")),
            dev.compressed(dev.definition("b"), dictionary=False),
        ),
        "bundle": lambda: dev.bundle(path, dev.device_om(path).read_bytes()),
        "narrow": lambda: dev.narrow(path, dev.device_parts()[3:]),
    }
    makers[kind]()
    original = path.read_bytes()
    reference = tmp_path / f"reference{path.suffix}"
    reference.write_bytes(original)
    logging.disable(logging.CRITICAL)
    try:
        for index in range(120):
            rng = random.Random(f"inspect-{kind}-{index}")
            mutant = mutate(original, rng)
            repair = kind in ("host", "device", "coded", "several") and rng.random() < 0.8
            path.write_bytes(repaired(mutant) if repair else mutant)
            start = time.perf_counter()
            use_everything(path, reference)
            assert time.perf_counter() - start < LIMIT_SECONDS, index
    finally:
        logging.disable(logging.NOTSET)


def test_every_prefix_is_refused(tmp_path):
    path = dev.device_om(tmp_path / "m.om")
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(CanncError) as caught:
            inspect_file(path)
        assert caught.value.code in ("OM001", "OM002", "OM003")
