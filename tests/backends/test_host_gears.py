"""Gears and ranges through a compile: options in, artifact out, the same numbers as the model."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.models import mlp, parse

import cannc
from cannc.compiler.backends.base import CompileOptions
from cannc.compiler.backends.select import select_backend
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.om.gears import GearKind
from cannc.compiler.om.memory import ARENA, OUTSIDE, memory_of
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.artifact import load_artifact
from cannc.compiler.runtime.session import Session

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
TARGET = Target("Ascend910B4", "8.0.0")
HEADER = '<ir_version: 10, opset_import: ["": 18]>'
CONV = (
    f"{HEADER} g (float[N,3,H,W] x) => (float[N,4,H,W] y)"
    " { y = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w) }"
)


def compile_(model, out, **options):
    unit = load(model)
    unit.target = TARGET
    return select_backend("host").compile(unit, out, CompileOptions(**options))


def conv():
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    return parse(CONV, w=weight)


def numbers(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def fails(code, call):
    with pytest.raises(UsageError) as error:
        call()
    assert error.value.code == code, error.value
    return error.value


@pytest.mark.parametrize(
    ("options", "kind", "shapes"),
    [
        (
            {"gears": {"N": [1, 4]}, "atc_options": {"input_shape": "x:-1,3,8,8"}},
            GearKind.BATCH,
            [(1, 3, 8, 8), (4, 3, 8, 8)],
        ),
        (
            {"atc_options": {"input_shape": "x:1,3,-1,-1", "dynamic_image_size": "8,8;12,16"}},
            GearKind.IMAGE,
            [(1, 3, 8, 8), (1, 3, 12, 16)],
        ),
        (
            {"gears": {"N": [1, 2], "H": [8, 10], "W": [8, 6]}},
            GearKind.DIMS,
            [(1, 3, 8, 8), (2, 3, 10, 6)],
        ),
    ],
)
def test_every_kind_of_gears_runs_at_its_sizes(tmp_path, options, kind, shapes):
    compile_(conv(), tmp_path / "m.om", **options)
    compile_(conv(), tmp_path / "plain.om")
    om = OmFile.open(tmp_path / "m.om")
    assert om.gears.kind == kind
    with Session(om.path) as session, Session(tmp_path / "plain.om") as plain:
        assert [gear.inputs["x"] for gear in session.gears] == shapes
        for shape in shapes:
            x = numbers(*shape)
            np.testing.assert_array_equal(session.run({"x": x})["y"], plain.run({"x": x})["y"])


def test_the_same_options_give_the_same_bytes(tmp_path):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        compile_(mlp(), folder / "m.om", gears={"N": [1, 2, 4]})
    assert (tmp_path / "m.om").read_bytes() == (tmp_path / "other" / "m.om").read_bytes()


def test_an_artifact_with_gears_can_be_compiled_again(tmp_path):
    compile_(mlp(), tmp_path / "a.om", name="m", gears={"N": [1, 2]})
    compile_(load_artifact(tmp_path / "a.om"), tmp_path / "b.om", name="m", gears={"N": [1, 2]})
    assert (tmp_path / "a.om").read_bytes() == (tmp_path / "b.om").read_bytes()


def test_the_memory_plan_serves_every_gear(tmp_path):
    compile_(mlp(), tmp_path / "m.om", gears={"N": [1, 256]})
    om = OmFile.open(tmp_path / "m.om")
    arena = om.model_attributes[ARENA]
    assert arena >= 256 * 16 * 4
    for number in (0, 1):
        graph = next(
            g for g in om.definition.graph if g.name.endswith(f"_ascend_mbatch_batch_{number}")
        )
        placed = [
            (offset, desc.size)
            for op in graph.op
            for offset, desc in zip(memory_of(op).offsets, op.output_desc, strict=True)
            if offset != OUTSIDE
        ]
        assert placed
        assert all(offset + size <= arena for offset, size in placed)


def test_shapes_that_depend_on_data_are_noted(tmp_path):
    text = f"{HEADER} g (float[N] x) => (int64[1,M] y) {{ a = Neg (x) y = NonZero (a) }}"
    result = compile_(parse(text), tmp_path / "m.om", gears={"N": [2, 4]})
    assert any("no fixed shape even within a gear: 'y'" in note for note in result.notes)
    with Session(tmp_path / "m.om") as session:
        assert session.run({"x": np.float32([1, 0])})["y"].tolist() == [[0]]


def test_weights_do_not_multiply(tmp_path):
    weight = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    model = parse(
        f"{HEADER} g (float[N,512] x) => (float[N,512] y) {{ y = MatMul (x, w) }}", w=weight
    )
    plain = compile_(model, tmp_path / "plain.om")
    result = compile_(model, tmp_path / "m.om", gears={"N": list(range(1, 101))})
    assert result.weight_bytes - plain.weight_bytes <= 1024
    assert result.size_bytes - plain.size_bytes < 700_000  # of graph, for 100 gears


def test_a_batch_that_a_node_fixes_is_refused(tmp_path):
    body = "a = Neg (x) r = Reshape (a, shape) y = Exp (r)"
    text = f"{HEADER} g (float[N,4] x) => (float[N,M] y) {{ {body} }}"
    model = parse(text, shape=np.array([1, -1], np.int64))
    error = fails("BCK007", lambda: compile_(model, tmp_path / "m.om", gears={"N": [1, 2]}))
    assert "x[2,4]" in error.what
    assert error.where == "node Reshape_1 (Reshape)"
    assert "'N'" in error.why
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(not CASES.is_dir(), reason="the users' cases are not beside the checkout")
def test_a_growing_cache_has_consistent_gears(tmp_path):
    case = next(
        c for c in json.loads((CASES / "cases.json").read_text())["cases"] if c["id"] == "dyn-07"
    )
    model = CASES / case["model"]
    feeds, expected = (dict(np.load(CASES / case[key])) for key in ("inputs", "outputs"))
    # The order of the sizes fits no order of the inputs but one, which is found.
    options = {"dynamic_dims": case["options"]["dynamic_dims"]}
    result = compile_(model, tmp_path / "m.om", atc_options=options)
    assert any("the order taken is" in note for note in result.notes)
    with Session(tmp_path / "m.om") as session:
        assert len(session.gears) == 2
        found = session.run(feeds)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
        one = {n: a[:, :1] if n in ("k", "q") else a for n, a in feeds.items()}
        one["mask"] = feeds["mask"][:, :4]
        assert session.run(one)["y"].shape == (1, 2, 1, 4)
        wrong = {**feeds, "mask": feeds["mask"][:, :4]}
        fails("RUN015", lambda: session.run(wrong))
    bad = {"dynamic_dims": "1,4,1,9;2,5,2,9"}
    assert fails("ATC048", lambda: compile_(model, tmp_path / "n.om", atc_options=bad))


def test_ranges_are_kept_and_hold(tmp_path):
    compile_(mlp(), tmp_path / "m.om", atc_options={"input_shape": "x:1~4,8"})
    om = OmFile.open(tmp_path / "m.om")
    assert om.ranges == {"x": ((1, 4), (8, 8))}
    assert om.interface.inputs[0].ranges == ((1, 4), (8, 8))
    assert om.interface.inputs[0].dims == (-1, 8)
    with Session(om.path) as session:
        assert session.run({"x": numbers(3, 8)})["y"].shape == (3, 4)
        fails("INP008", lambda: session.run({"x": numbers(5, 8)}))


MODES = [
    ("fixed", {"atc_options": {"input_shape": "x:2,8"}}, True),
    ("fixed", {}, False),
    ("fixed", {"gears": {"N": [1, 2]}}, False),
    ("fixed", {"atc_options": {"input_shape": "x:1~4,8"}}, False),
    ("range", {}, True),
    ("range", {"atc_options": {"input_shape": "x:1~4,8"}}, True),
    ("range", {"atc_options": {"input_shape": "x:2,8"}}, False),
    ("range", {"gears": {"N": [1, 2]}}, False),
    ("gears", {"gears": {"N": [1, 2]}}, True),
    ("gears", {"atc_options": {"input_shape": "x:-1,8", "dynamic_batch_size": "1,2"}}, True),
    ("gears", {}, False),
    ("gears", {"atc_options": {"input_shape": "x:2,8"}}, False),
]


@pytest.mark.parametrize(("mode", "options", "agrees"), MODES)
def test_shapes_must_come_to_what_is_asked(tmp_path, mode, options, agrees):
    def compile_it():
        return cannc.compile(
            mlp(), tmp_path / "m.om", "host", "Ascend910B4", shapes=mode, **options
        )

    if agrees:
        assert compile_it().is_file()
        return
    error = fails("ATC049", compile_it)
    assert f"--shapes {mode}" in error.what
    assert not (tmp_path / "m.om").exists()
