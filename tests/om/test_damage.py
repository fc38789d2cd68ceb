"""Damaged and hostile files: an error with a code, never a crash, a hang or a huge allocation."""

import os
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.om import fuzz
from tests.support.models import mlp
from tests.support.om_files import assembled, branching, written

from cannc.compiler.core.errors import CanncError, ModelError
from cannc.compiler.om.header import HEADER_BYTES
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("om") / "valid.om"
    written(branching(), path)
    return path.read_bytes()


def test_every_prefix_is_refused(valid, tmp_path):
    path = tmp_path / "cut.om"
    path.write_bytes(valid)
    for length in reversed(range(len(valid))):
        os.truncate(path, length)
        with pytest.raises(ModelError) as caught:
            OmFile.open(path)
        assert caught.value.code in ("OM001", "OM002", "OM003")


def test_every_prefix_of_each_partition_is_refused_or_read(valid, tmp_path):
    original = tmp_path / "valid.om"
    original.write_bytes(valid)
    file = OmFile.open(original)
    for cut in file.partitions:
        whole = file.read(cut)
        for length in range(1, len(whole), max(1, len(whole) // 150)):
            parts = [
                (p.type, whole[:length] if p == cut else file.read(p)) for p in file.partitions
            ]
            fuzz.read_everything(assembled(tmp_path / "cut.om", parts, file.header))


def test_trailing_bytes_are_refused(valid, tmp_path):
    path = tmp_path / "long.om"
    path.write_bytes(valid + b"\0")
    with pytest.raises(ModelError, match="wrong length"):
        OmFile.open(path)


@pytest.mark.parametrize("count", [0, 9, 4096, 2**31, 2**32 - 1])
def test_hostile_partition_counts(valid, tmp_path, count):
    path = tmp_path / "count.om"
    path.write_bytes(valid[:HEADER_BYTES] + struct.pack("<I", count) + valid[HEADER_BYTES + 4 :])
    with pytest.raises(ModelError) as caught:
        OmFile.open(path)
    assert caught.value.code == "OM003"


@pytest.mark.parametrize("size", [2**31, 2**40, 2**63, 2**64 - 1])
def test_hostile_partition_sizes(valid, tmp_path, size):
    path = tmp_path / "size.om"
    at = HEADER_BYTES + 8 + 16
    path.write_bytes(valid[:at] + struct.pack("<Q", size) + valid[at + 8 :])
    with pytest.raises(ModelError) as caught:
        OmFile.open(path)
    assert caught.value.code == "OM003"


@pytest.mark.parametrize("model_num", [2, 4096, 2**32 - 1])
def test_hostile_model_counts(valid, tmp_path, model_num):
    path = tmp_path / "models.om"
    path.write_bytes(valid[:156] + struct.pack("<I", model_num) + valid[160:])
    with pytest.raises(ModelError) as caught:
        OmFile.open(path)
    assert caught.value.code == "OM003"


def test_a_hostile_count_allocates_nothing(tmp_path):
    """2**32 - 1 inputs announced in a few bytes."""
    info = struct.pack("<III", 0, 4, 2**32 - 1)
    path = assembled(tmp_path / "x.om", [(PartitionType.MODEL_INOUT_INFO, info), (0, b"")])
    file = OmFile.open(path)
    tracemalloc.start()
    with pytest.raises(ModelError) as caught:
        _ = file.interface
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.code == "OM009"
    assert peak < 2**20


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_bit_flips(valid, tmp_path, data):
    flipped = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 4))):
        bit = data.draw(st.integers(0, 8 * len(valid) - 1))
        flipped[bit // 8] ^= 1 << bit % 8
    path = tmp_path / "flipped.om"
    path.write_bytes(bytes(flipped))
    fuzz.read_everything(path)


def test_random_bytes_behind_a_valid_header(tmp_path):
    path = assembled(tmp_path / "x.om", [(0, b"\xff" * 4000), (8, b"\xfe" * 40)])
    file = OmFile.open(path)
    with pytest.raises(ModelError) as caught:
        file.to_model()
    assert caught.value.code == "OM004"


def test_mutants():
    fuzz.main(5000, seed=7)


def test_damage_is_seen_at_all(tmp_path):
    """The mutants must differ in what happens to them, or this test would prove nothing."""
    codes = set()
    path = tmp_path / "m.om"
    written(mlp(), path)
    original = path.read_bytes()
    for seed in range(300):
        path.write_bytes(fuzz.repaired(fuzz.mutate(original, fuzz.random.Random(seed))))
        try:
            OmFile.open(path).to_model()
        except CanncError as error:
            codes.add(error.code)
    assert {"OM003", "OM004", "OM007"} <= codes
