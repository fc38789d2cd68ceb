import numpy as np
import onnx_ir as ir
from tests.support.models import mlp, parse

from cannc.compiler.core.unit import load
from cannc.compiler.runtime.dtypes import infer_types
from cannc.compiler.runtime.host_session import HostSession
from cannc.golden.explode import explode
from cannc.golden.grades import grades
from cannc.golden.regions import regions
from cannc.golden.verdict import Grade

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def model_of(proto):
    model = load(proto).model
    infer_types(model)
    return model


def test_users_read_fed_numbers_and_the_value_is_still_computed():
    model = model_of(mlp())
    fed = np.full((3, 16), 2.0, np.float32)
    exploded = explode(model, {"a": fed, "y": np.zeros((3, 4), np.float32)})
    assert list(exploded.inputs) == ["a"]  # nobody reads y
    session = HostSession(exploded.model, taps=["a"])
    found = session.run({"x": X, exploded.inputs["a"].name: fed})
    plain = HostSession(model, taps=["a"]).run({"x": X})
    np.testing.assert_array_equal(found["a"], plain["a"])
    weights = {t.name: t for t in mlp().graph.initializer}
    w2, b2 = (np.frombuffer(weights[n].raw_data, np.float32) for n in ("w2", "b2"))
    np.testing.assert_allclose(found["y"], fed @ w2.reshape(16, 4) + b2, rtol=1e-5)


def test_the_argument_is_not_changed():
    model = model_of(mlp())
    before = ir.to_proto(model).SerializeToString()
    explode(model, {"a": np.zeros((3, 16), np.float32)})
    assert ir.to_proto(model).SerializeToString() == before


def test_a_graph_output_that_others_read_stays_the_output():
    model = model_of(parse("m (float[2] x) => (float[2] a, float[2] y) { a = Neg(x) y = Exp(a) }"))
    exploded = explode(model, {"a": np.zeros(2, np.float32)})
    found = HostSession(exploded.model).run(
        {"x": np.float32([1, 2]), exploded.inputs["a"].name: np.zeros(2, np.float32)}
    )
    assert found["a"].tolist() == [-1, -2]
    assert found["y"].tolist() == [1, 1]


def test_branches_read_fed_numbers_too():
    model = model_of(
        parse("""m (float[2] x, bool c) => (float[2] y) {
            a = Neg(x)
            y = If(c)<
                then_branch = t () => (float[2] p) { p = Exp(a) },
                else_branch = e () => (float[2] q) { q = Identity(a) }>
        }""")
    )
    exploded = explode(model, {"a": np.zeros(2, np.float32)})
    fed = {exploded.inputs["a"].name: np.zeros(2, np.float32)}
    for condition, expected in ((True, [1, 1]), (False, [0, 0])):
        feeds = {"x": np.float32([3, 4]), "c": np.array(condition), **fed}
        assert HostSession(exploded.model).run(feeds)["y"].tolist() == expected


def test_equal_constants_stay_and_wrong_ones_are_cut():
    model = model_of(
        parse("""m (float[2] x) => (float[2] y) {
            two = Constant<value_float = 2.0>()
            y = Mul(x, two)
        }""")
    )
    assert explode(model, {"two": np.float32(2.0)}).inputs == {}
    assert list(explode(model, {"two": np.float32(3.0)}).inputs) == ["two"]


def test_dims_that_differ_from_golden_are_open():
    model = model_of(mlp())
    model.graph.node("MatMul_0").outputs[0].shape = ir.Shape(["N", 16])
    model.graph.node("Relu_2").outputs[0].shape = ir.Shape([9, 16])
    fed = {"h": np.zeros((3, 16), np.float32), "a": np.zeros((3, 16), np.float32)}
    inputs = explode(model, fed).inputs
    for name in ("h", "a"):
        assert inputs[name].shape is not None
        assert [d if isinstance(d, int) else None for d in inputs[name].shape] == [None, 16]


def test_regions_end_at_chosen_values():
    found = regions(model_of(mlp()), {"a", "y"})
    assert {v: [n.name for n in r.nodes] for v, r in found.items()} == {
        "a": ["Relu_2", "Add_1", "MatMul_0"],
        "y": ["Add_4", "MatMul_3"],
    }
    assert found["y"].stands_for == ("MatMul_3", "Add_4")


def test_grades_flow_down_and_stop_at_cuts():
    model = model_of(
        parse(
            """m (float[2, 2] x) => (float[2, 2] y) {
                h = Cast<to = 10>(x)
                h2 = MatMul(h, wh)
                f = Cast<to = 1>(h2)
                q = Cast<to = 1>(wq)
                z = MatMul(f, q)
                y = Relu(z)
            }""",
            wh=np.ones((2, 2), np.float16),
            wq=np.ones((2, 2), np.int8),
        )
    )
    half, fine, coarse = Grade.FLOAT16, Grade.FLOAT32, Grade.INT8
    assert grades(model) == {
        "h": half,
        "h2": half,
        "f": half,
        "q": coarse,
        "z": coarse,
        "y": coarse,
    }
    cut = grades(model, {"f", "z"})
    assert (cut["f"], cut["z"], cut["y"]) == (half, coarse, fine)
