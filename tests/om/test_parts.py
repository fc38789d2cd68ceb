"""The small binary records and the protobuf schema."""

import struct
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from tests.support.device_om import tilings

from cannc.compiler.core.errors import ModelError
from cannc.compiler.om.header import Header
from cannc.compiler.om.inout_info import InOutInfo, TensorInfo
from cannc.compiler.om.kernels import CUSTOM_OP_MAGIC, ITEM_MAGIC, read_kernels, read_libraries
from cannc.compiler.om.proto import DataType, ModelDef, generate
from cannc.compiler.om.tiling import read_tilings

PATH = Path("m.om")


def test_the_committed_descriptors_match_the_proto_files():
    pytest.importorskip("grpc_tools")
    assert generate.compiled() == generate.DESCRIPTORS.read_bytes()


def test_our_messages_stay_out_of_the_default_pool():
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(ModelDef.DESCRIPTOR.full_name)
    assert ModelDef.DESCRIPTOR.full_name == "ge.proto.ModelDef"
    assert DataType.values_by_name["DT_BF16"].number == 27


def test_header_fields_lie_where_the_format_says():
    packed = Header(model_length=1000, name="n", platform_version="1.11.0.0", dynamic=1).pack()
    assert len(packed) == 256
    assert packed[:4] == b"IMOD"
    assert struct.unpack_from("<II", packed, 4) == (256, 0x20000000)
    assert packed[84:86] == b"n\0"
    assert struct.unpack_from("<II", packed, 152) == (2, 1)
    assert packed[160:169] == b"1.11.0.0\0"
    assert packed[180] == 1
    assert struct.unpack_from("<QBB", packed, 184) == (1000, 0, 1)
    assert Header.parse(packed, PATH).name == "n"


def test_inout_info_with_gears_survives():
    info = InOutInfo(
        inputs=[TensorInfo("x", 24, 2, 0, (-1, 3), (-1, 3), ((1, 8), (3, 3)))],
        outputs=[TensorInfo("\u00e9", 0, 2, 1, ())],
        batch=[1, 2, 8],
        image_sizes=[(224, 224), (448, 448)],
        dims=[(1, 2, 3), (4,)],
        output_shapes=["0:1,3", "0:2,3"],
        designated_order=["x"],
    )
    assert InOutInfo.parse(info.pack(), PATH) == info
    assert InOutInfo.parse(b"", PATH) == InOutInfo()
    assert InOutInfo().pack() == b""


def test_inout_info_bytes_are_those_of_the_format():
    packed = InOutInfo(inputs=[TensorInfo("ab", 8, 2, 9, (1,))], batch=[3]).pack()
    block = struct.pack("<IQiiIIII", 1, 8, 2, 9, 2, 8, 0, 0) + b"ab" + struct.pack("<q", 1)
    expected = struct.pack("<II", 0, len(block)) + block + struct.pack("<IIIq", 2, 12, 1, 3)
    assert packed == expected


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<II", 7, 0),
        struct.pack("<II", 0, 100),
        struct.pack("<III", 2, 4, 5),
        struct.pack("<IIIQ", 2, 12, 0, 1),
        b"abc",
    ],
)
def test_broken_inout_info_is_refused(data):
    with pytest.raises(ModelError) as caught:
        InOutInfo.parse(data, PATH)
    assert caught.value.code == "OM009"


def kernel(name, binary, magic=ITEM_MAGIC):
    return struct.pack("<III", magic, len(name), len(binary)) + name + binary


def test_kernel_store_and_custom_ops():
    data = kernel(b"one", b"\x7fELF") + kernel(b"two", bytes(10))
    assert [(k.name, k.size) for k in read_kernels(data, PATH)] == [("one", 4), ("two", 10)]
    custom = kernel(b"op", b"so", CUSTOM_OP_MAGIC)
    assert read_kernels(custom, PATH, CUSTOM_OP_MAGIC)[0].name == "op"
    for broken in (data[:-1], custom, data[:20]):
        with pytest.raises(ModelError) as caught:
            read_kernels(broken, PATH)
        assert caught.value.code == "OM011"


def test_libraries():
    item = struct.pack("<IHHII", ITEM_MAGIC, 4, 3, 6, 5) + b"a.so" + b"vendor" + bytes(5)
    (library,) = read_libraries(struct.pack("<I", 1) + item, PATH)
    assert (library.name, library.kind, library.vendor) == ("a.so", "custom op", "vendor")
    for broken in (struct.pack("<I", 2) + item, struct.pack("<I", 1) + item[:-1], b"\1"):
        with pytest.raises(ModelError):
            read_libraries(broken, PATH)


def test_tilings():
    (tiling,) = read_tilings(tilings(), PATH)
    assert (tiling.key, tiling.block_dim, tiling.workspaces) == (77, 20, (512, 1024))
    assert (tiling.data_bytes, tiling.ids) == (4, (5, 6))
    for broken in (tilings()[:-1], b"\0" + tilings()[1:], tilings(version=1), b""):
        with pytest.raises(ModelError) as caught:
            read_tilings(broken, PATH)
        assert caught.value.code == "OM012"
