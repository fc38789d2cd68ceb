"""Sessions over gears and ranges: which sizes run, what is padded, and what is refused."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.gears import with_gears
from tests.support.models import mlp, parse
from tests.support.om_files import with_definition

from cannc.compiler.core.errors import UsageError
from cannc.compiler.om.gear_merge import main_graphs
from cannc.compiler.om.gears import Gear, GearKind, GearSet
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om
from cannc.compiler.runtime.gears import fit
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.session import Session

HEADER = '<ir_version: 10, opset_import: ["": 18]>'
RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def fails(code, call):
    with pytest.raises(UsageError) as error:
        call()
    assert error.value.code == code, error.value
    return error.value


@pytest.fixture
def artifact(tmp_path):
    return with_gears(mlp(), tmp_path / "m.om", [{"x": (n, 8)} for n in (1, 4, 2)])


def test_an_exact_gear_runs_as_the_model_does(artifact):
    reference = HostSession(ir.from_proto(mlp()))
    with Session(artifact.path) as session:
        assert [gear.sizes for gear in session.gears] == [(1,), (4,), (2,)]
        assert [str(port) for port in session.inputs] == ["float[N,8]"]
        for batch in (1, 2, 4):
            x = numbers(batch, 8)
            found = session.run({"x": x})["y"]
            np.testing.assert_array_equal(found, reference.run({"x": x})["y"])


def test_a_batch_between_gears_is_padded_and_cut_back(artifact):
    x = numbers(3, 8)
    expected = HostSession(ir.from_proto(mlp())).run({"x": x})["y"]
    with Session(artifact.path) as session:
        for _ in range(2):  # the second run is not judged any more
            found = session.run({"x": x})["y"]
            assert found.shape == (3, 4)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert session.run({"x": x[:0]})["y"].shape == (0, 4)


def test_strict_sessions_and_too_large_batches_list_the_gears(artifact):
    with Session(artifact.path, padding="none") as session:
        error = fails("RUN015", lambda: session.run({"x": numbers(3, 8)}))
        assert "x[1,8]; x[4,8]; x[2,8]" in error.where
        assert "x[3,8]" in error.what
        assert "--padding any" in error.fix
    with Session(artifact.path) as session:
        error = fails("RUN015", lambda: session.run({"x": numbers(5, 8)}))
        assert "--padding" not in error.fix  # nothing would help
        fails("INP004", lambda: session.run({"x": numbers(2, 7)}))
        fails("INP001", lambda: session.run({}))


def test_the_smallest_gear_that_covers_the_inputs_is_taken():
    def of(*shapes):
        gears = tuple(Gear(shape, {"a": shape}) for shape in shapes)
        return GearSet(GearKind.DIMS, ("a",), gears)

    feed = {"a": np.zeros((2, 3))}
    chosen = fit(of((9, 9), (2, 4), (4, 3), (2, 3), (1, 1)), feed, "any")
    assert (chosen.number, chosen.axes) == (3, {})
    chosen = fit(of((9, 9), (4, 3), (2, 4)), feed, "any")
    assert (chosen.number, chosen.axes) == (2, {"a": (1,)})
    chosen = fit(of((3, 4), (9, 3)), feed, "any")
    assert (chosen.number, chosen.axes) == (0, {"a": (0, 1)})


def test_the_largest_gear_is_what_random_inputs_have(artifact):
    with Session(artifact.path) as session:
        assert session.random_inputs(0)["x"].shape == (4, 8)


ROWS = f"{HEADER} g (float[N,S] x) => (float[N,S] y)"


def dims_gears(text, path, sizes):
    return with_gears(parse(text), path, sizes, [s["x"] for s in sizes], GearKind.DIMS).path


def test_other_axes_are_strict_unless_asked(tmp_path):
    sizes = [{"x": (2, 4)}, {"x": (2, 8)}]
    path = dims_gears(f"{ROWS} {{ y = Exp (x) }}", tmp_path / "m.om", sizes)
    x = numbers(2, 6)
    with Session(path) as session:
        error = fails("RUN015", lambda: session.run({"x": x}))
        assert "no batch" in error.why
    with Session(path, padding="any") as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("y = Softmax <axis = 1> (x)", "by up to"),
        ("i = ArgMax <axis = 1> (x) y0 = Cast <to = 1> (i) y = Add (x, y0)", "by up to"),
        ("y = LogSoftmax <axis = 1> (x)", "by up to"),
    ],
)
def test_padding_that_changes_results_is_refused(tmp_path, body, told):
    sizes = [{"x": (2, 4)}, {"x": (2, 8)}]
    path = dims_gears(f"{ROWS} {{ {body} }}", tmp_path / "m.om", sizes)
    with Session(path, padding="any") as session:
        feeds = {"x": -np.abs(numbers(2, 6)) - 1}
        for _ in range(2):  # it stays refused
            error = fails("RUN017", lambda: session.run(feeds))
            assert told in error.why
            assert "'y'" in error.what


def test_a_batch_that_the_model_mixes_is_refused(tmp_path):
    text = f"{HEADER} g (float[N,2] x) => (float[N,2] y) {{ m = ReduceMean (x) y = Sub (x, m) }}"
    file = with_gears(parse(text), tmp_path / "m.om", [{"x": (1, 2)}, {"x": (4, 2)}])
    with Session(file.path) as session:
        fails("RUN017", lambda: session.run({"x": numbers(3, 2)}))
        assert session.run({"x": numbers(4, 2)})["y"].shape == (4, 2)


def test_integer_results_must_agree_exactly(tmp_path):
    text = f"{HEADER} g (int64[N] x) => (int64[N] y) {{ n = Shape (x) y = Add (x, n) }}"
    file = with_gears(parse(text), tmp_path / "m.om", [{"x": (1,)}, {"x": (4,)}])
    with Session(file.path) as session:
        error = fails("RUN017", lambda: session.run({"x": np.arange(3)}))
        assert error.why.startswith("other values")


def test_a_result_whose_size_follows_from_nothing_cannot_be_cut(tmp_path):
    text = f"{HEADER} g (float[N] x) => (int64[1,M] y) {{ y = NonZero (x) }}"
    file = with_gears(parse(text), tmp_path / "m.om", [{"x": (2,)}, {"x": (4,)}])
    with Session(file.path) as session:
        error = fails("RUN016", lambda: session.run({"x": numbers(3)}))
        assert "int64[1,M]" in error.where
        assert session.run({"x": numbers(4)})["y"].shape == (1, 4)


def test_each_gear_runs_its_own_graph(tmp_path, artifact):
    definition = artifact.definition
    graph = main_graphs(definition)[2]
    next(op for op in graph.op if op.type == "Relu").type = "Neg"
    edited = with_definition(artifact, definition, tmp_path / "edited.om")
    before, x = HostSession(ir.from_proto(mlp())), numbers(4, 8)
    other = mlp()
    other.graph.node[2].op_type = "Neg"
    after = HostSession(ir.from_proto(other))
    with Session(edited) as session:
        for batch, reference in ((1, before), (2, after), (4, before)):
            feeds = {"x": x[:batch]}
            np.testing.assert_array_equal(session.run(feeds)["y"], reference.run(feeds)["y"])


def test_an_edge_of_one_gear_can_be_edited(tmp_path, artifact):
    bias = artifact.to_model().graph.initializers["b2"].const_value.numpy()
    definition = artifact.definition
    graph = main_graphs(definition)[1]
    end = next(op for op in graph.op if op.type == "NetOutput")
    matmul = [op for op in graph.op if op.type == "MatMul"][1]
    end.input[0] = f"{matmul.name}:0"  # the last bias is not added any more
    edited = with_definition(artifact, definition, tmp_path / "edited.om")
    with Session(edited) as session, Session(artifact.path) as plain:
        x = numbers(4, 8)
        expected = plain.run({"x": x})["y"] - bias
        name = session.outputs[0].name
        np.testing.assert_allclose(session.run({"x": x})[name], expected, rtol=1e-5, atol=1e-6)


def test_an_unknown_padding_is_a_usage_error(artifact):
    assert "batch" in fails("RUN018", lambda: Session(artifact.path, padding="bach")).what


def ranged(path, ranges):
    model = ir.from_proto(parse(f"{ROWS} {{ y = Neg (x) }}"))
    write_om(model, path, name="m", attributes={}, ranges={"x": ranges})
    return OmFile.open(path)


def test_sizes_within_a_range_run_and_others_are_refused(tmp_path):
    file = ranged(tmp_path / "m.om", ((1, 4), (2, -1)))
    assert file.ranges == {"x": ((1, 4), (2, -1))}
    assert [i.ranges for i in file.interface.inputs] == [((1, 4), (2, -1))]
    with Session(file.path) as session:
        assert session.gears == ()
        for shape in ((1, 2), (4, 99)):
            x = numbers(*shape)
            np.testing.assert_array_equal(session.run({"x": x})["y"], -x)
        for shape, axis in (((5, 2), 0), ((0, 2), 0), ((1, 1), 1)):
            error = fails("INP008", lambda: session.run({"x": numbers(*shape)}))  # noqa: B023
            assert f"dimension {axis} is {shape[axis]}" in error.what
            assert "x[1~4,2~]" in error.where
        assert session.random_inputs(0)["x"].shape == (4, 2)


def test_an_artifact_without_gears_takes_any_size_and_guesses_none(tmp_path):
    write_om(ir.from_proto(mlp()), tmp_path / "m.om", name="m", attributes={})
    with Session(tmp_path / "m.om") as session:
        assert session.run({"x": numbers(7, 8)})["y"].shape == (7, 4)
        fails("INP007", lambda: session.random_inputs(0))
