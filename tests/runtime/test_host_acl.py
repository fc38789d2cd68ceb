"""The host's pyACL calls: conventions, and a code for each misuse."""

import numpy as np
import onnx
import pytest
from tests.support.acl import opened, write
from tests.support.gears import with_gears
from tests.support.models import mlp, parse

from cannc.compiler.runtime.acl.status import CODES, explain
from cannc.compiler.runtime.host_acl.acl import HostAcl

HEADER = '<ir_version: 10, opset_import: ["": 18]>'
FIXED = f"{HEADER} g (float[2,3] x) => (float[2,3] y) {{ y = Neg (x) }}"
OPEN = f"{HEADER} g (float[N,3] x) => (float[N,3] y) {{ y = Neg (x) }}"
UNSET = 0x99


@pytest.fixture
def api():
    return opened()


@pytest.fixture
def fixed(tmp_path):
    return write(parse(FIXED), tmp_path / "fixed.om")


def loaded(api, path):
    number, status = api.mdl.load_from_file(str(path))
    assert status == 0, api.get_recent_err_msg()
    desc = api.mdl.create_desc()
    assert api.mdl.get_desc(desc, number) == 0
    return number, desc


def dataset(api, *sizes):
    made = api.mdl.create_dataset()
    for size in sizes:
        address, status = api.rt.malloc(size, 0)
        assert status == 0
        buffer = api.create_data_buffer(address, size)
        assert api.mdl.add_dataset_buffer(made, buffer) == (made, 0)
    return made


def said(api, status, code, text):
    assert status == code, (status, api.get_recent_err_msg())
    assert text in api.get_recent_err_msg()
    assert code in CODES


def test_starting_and_ending_once():
    api = HostAcl()
    said(api, api.rt.set_device(0), 100001, "acl.init")
    assert api.init() == 0
    said(api, api.init(), 100002, "before")
    assert api.finalize() == 0
    said(api, api.finalize(), 100037, "before")
    said(api, api.init(), 100002, "before")


def test_devices_and_contexts(api):
    assert api.rt.get_device_count() == (1, 0)
    said(api, api.rt.set_device(1), 107001, "no device 1")
    assert api.rt.reset_device(0) == 0
    said(api, api.rt.reset_device(0), 107001, "not in use")
    context, status = api.rt.get_context()
    assert (context > 0, status) == (True, 0)
    assert api.rt.destroy_context(context) == 0
    said(api, api.rt.destroy_context(context), 107002, "released already")
    said(api, api.rt.set_context(context), 107002, "no context")
    said(api, api.rt.malloc(8, 0)[1], 107002, "set_context")


def test_memory(api):
    said(api, api.rt.malloc(0, 0)[1], 100000, "0 bytes")
    address, _ = api.rt.malloc(8, 0)
    source, target = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    assert api.rt.memcpy(address, 8, source.ctypes.data, 8, 1) == 0
    assert api.rt.memcpy(target.ctypes.data, 8, address, 8, 2) == 0
    np.testing.assert_array_equal(source, target)
    assert api.rt.memcpy(address + 4, 4, address, 4, 3) == 0
    said(api, api.rt.memcpy(address, 8, source.ctypes.data, 9, 1), 107000, "9 of 8 bytes")
    said(api, api.rt.memcpy(address + 4, 8, source.ctypes.data, 8, 1), 107000, "no device memory")
    said(api, api.rt.memcpy(target.ctypes.data, 8, source.ctypes.data, 8, 2), 107000, "no device")
    said(api, api.rt.memcpy(address, 8, source.ctypes.data, 8, 7), 107000, "kind 7")
    assert api.rt.free(address) == 0
    said(api, api.rt.free(address), 100000, "released already")


def test_handles_are_released_once_and_by_their_own_call(api):
    buffer = api.create_data_buffer(0, 0)
    said(api, api.mdl.destroy_dataset(buffer), 100000, "no dataset")
    assert api.destroy_data_buffer(buffer) == 0
    said(api, api.destroy_data_buffer(buffer), 100000, "released already")
    assert api.create_data_buffer(1, 0) == 0
    assert api.get_data_buffer_addr(buffer) == 0
    desc = api.mdl.create_desc()
    assert api.mdl.get_num_inputs(desc) == 0
    assert "get_desc" in api.get_recent_err_msg()
    said(api, api.mdl.get_desc(desc, UNSET), 100011, "no model")
    assert api.left() == {"device": 1, "context": 1, "model desc": 1}


def test_loading(api, tmp_path, fixed):
    said(api, api.mdl.load_from_file(str(tmp_path / "none.om"))[1], 100000, "no file")
    (tmp_path / "text.om").write_text("text")
    said(api, api.mdl.load_from_file(str(tmp_path / "text.om"))[1], 100003, "OM001")
    number, _ = loaded(api, fixed)
    other = api.rt.create_context(0)[0]
    said(api, api.mdl.unload(number), 107004, "another context")
    assert api.rt.destroy_context(other) == 0
    said(api, api.mdl.unload(number), 107002, "set_context")
    api.rt.set_context(min(api.state.all("context")))
    assert api.mdl.unload(number) == 0
    said(api, api.mdl.unload(number), 100011, "no model")


def test_descriptions(api, fixed):
    _, desc = loaded(api, fixed)
    assert (api.mdl.get_num_inputs(desc), api.mdl.get_num_outputs(desc)) == (1, 1)
    assert api.mdl.get_input_name_by_index(desc, 0) == "x"
    name = api.mdl.get_output_name_by_index(desc, 0)
    assert name.split(":")[1:] == ["0", "y"]  # node:index:tensor
    assert api.mdl.get_input_dims(desc, 0) == ({"name": "x", "dimCount": 2, "dims": [2, 3]}, 0)
    assert api.mdl.get_output_dims(desc, 0)[0]["dims"] == [2, 3]
    assert api.mdl.get_input_size_by_index(desc, 0) == 24
    assert api.mdl.get_input_data_type(desc, 0) == 0
    assert api.mdl.get_input_index_by_name(desc, "x") == (0, 0)
    said(api, api.mdl.get_input_index_by_name(desc, "z")[1], 100000, "'z'")
    said(api, api.mdl.get_input_dims(desc, 1)[1], 100000, "no input 1")
    said(api, api.mdl.get_output_dims(desc, -1)[1], 100000, "no output -1")
    assert api.mdl.get_dynamic_batch(desc) == ({"batchCount": 0, "batch": []}, 0)
    said(api, api.mdl.get_dynamic_hw(desc, 0)[1], 100000, "is -1")


def test_a_run_needs_its_buffers(api, fixed):
    number, _ = loaded(api, fixed)
    good = dataset(api, 24)
    assert api.mdl.execute(number, good, dataset(api, 24)) == 0
    said(api, api.mdl.execute(UNSET, good, good), 100011, "no model")
    said(api, api.mdl.execute(number, UNSET, good), 100000, "no dataset")
    said(api, api.mdl.execute(number, dataset(api), good), 100017, "has 1 inputs")
    said(api, api.mdl.execute(number, good, dataset(api, 8, 8)), 100018, "2 output buffers")
    said(api, api.mdl.execute(number, dataset(api, 20), good), 145012, "has 20 bytes, needs 24")
    said(api, api.mdl.execute(number, good, dataset(api, 20)), 100018, "has 20 bytes, needs 24")


def test_a_run_sees_freed_memory(api, fixed):
    number, _ = loaded(api, fixed)
    given, wanted = dataset(api, 24), dataset(api, 24)
    buffer = api.state.get("dataset", given).buffers[0]
    assert api.rt.free(api.get_data_buffer_addr(buffer)) == 0
    said(api, api.mdl.execute(number, given, wanted), 145011, "no device memory")


def test_a_run_in_another_context_or_none(api, fixed):
    number, _ = loaded(api, fixed)
    given, wanted = dataset(api, 24), dataset(api, 24)
    other = api.rt.create_context(0)[0]
    said(api, api.mdl.execute(number, given, wanted), 107004, "another context")
    assert api.rt.destroy_context(other) == 0
    said(api, api.mdl.execute(number, given, wanted), 107002, "set_context")


def test_a_node_that_fails_is_told(api, tmp_path):
    text = f"{HEADER} g (int64[1] i) => (float[1] y) {{ y = Gather (w, i) }}"
    proto = parse(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2, np.float32), "w"))
    number, _ = loaded(api, write(proto, tmp_path / "m.om"))
    given = dataset(api, 8)
    address = api.get_data_buffer_addr(api.state.get("dataset", given).buffers[0])
    index = np.array([9])
    api.rt.memcpy(address, 8, index.ctypes.data, 8, 1)
    said(api, api.mdl.execute(number, given, dataset(api, 4)), 507011, "out of")
    assert api.state.cause.code == "RUN002"


def test_gears_must_be_set_to_one_that_exists(api, tmp_path, fixed):
    path = with_gears(mlp(), tmp_path / "m.om", [{"x": (n, 8)} for n in (1, 4, 2)]).path
    number, desc = loaded(api, path)
    assert api.mdl.get_num_inputs(desc) == 2
    assert api.mdl.get_dynamic_batch(desc)[0]["batch"] == [1, 4, 2]
    assert api.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data") == (1, 0)
    given, wanted = dataset(api, 128, 4), dataset(api, 64)
    said(api, api.mdl.execute(number, given, wanted), 100000, "no gear is set")
    batch = api.mdl.set_dynamic_batch_size
    said(api, batch(number, given, 1, 3), 145013, "(3,) is no gear")
    said(api, batch(number, given, 0, 2), 100000, "is not 'ascend_mbatch_shape_data'")
    said(api, api.mdl.set_dynamic_hw_size(number, given, 1, 2, 2), 100019, "kind image")
    dims = {"dimCount": 1, "name": "", "dims": [2, 8]}
    said(api, api.mdl.set_input_dynamic_dims(number, given, 1, dims), 100000, "dimCount")
    assert batch(number, given, 1, 2) == 0
    assert api.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [2, 4]
    assert api.mdl.execute(number, given, wanted) == 0
    plain, _ = loaded(api, fixed)
    said(api, batch(plain, given, 1, 2), 100019, "kind batch")


def test_range_shapes_must_be_described(api, tmp_path):
    number, desc = loaded(api, write(parse(OPEN), tmp_path / "m.om"))
    assert api.mdl.get_input_dims(desc, 0)[0]["dims"] == [-1, 3]
    assert api.mdl.get_input_size_by_index(desc, 0) == 0
    assert api.mdl.get_output_size_by_index(desc, 0) == 0
    given, wanted = dataset(api, 24), api.mdl.create_dataset()
    buffer = api.create_data_buffer(0, 0)
    api.mdl.add_dataset_buffer(wanted, buffer)
    said(api, api.mdl.execute(number, given, wanted), 145021, "shape of input 'x' is not set")
    for dims, code in (((2, 4), 145021), ((2,), 145021), ((9, 3), 145012), ((2, 3), 0)):
        shape = api.create_tensor_desc(0, dims, 2)
        assert api.mdl.set_dataset_tensor_desc(given, shape, 0) == (given, 0)
        assert api.mdl.execute(number, given, wanted) == code, dims
    said(api, api.mdl.set_dataset_tensor_desc(given, shape, 5)[1], 100000, "no buffer 5")
    made = api.mdl.get_dataset_tensor_desc(wanted, 0)
    assert api.get_tensor_desc_num_dims(made) == 2
    assert [api.get_tensor_desc_dim_v2(made, k) for k in range(2)] == [(2, 0), (3, 0)]
    assert api.get_data_buffer_size(buffer) == 24  # the run allocated; the caller frees
    assert api.rt.free(api.get_data_buffer_addr(buffer)) == 0
    assert api.mdl.destroy_dataset(wanted) == 0
    said(api, api.mdl.destroy_dataset(wanted), 100000, "released already")


@pytest.mark.parametrize("code", [100000, 107002, 145000, 145011, 507018, 100017, 207001, 507008])
def test_every_code_has_a_meaning_and_a_cure(code):
    meaning = explain(code)
    assert meaning.text
    assert meaning.fix
    assert meaning is CODES[code]


def test_unknown_codes_are_told_by_their_family():
    assert explain(100999).text == "the call is wrong"
    assert explain(207999).text == "a resource is missing"
    assert explain(507999).text == "the device failed"
    assert explain(500999).text == "internal error"
    assert explain(-7).text == "unknown code"
    assert len({m.text for m in CODES.values()}) > 0.9 * len(CODES)
