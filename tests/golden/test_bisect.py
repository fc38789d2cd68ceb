"""Delta debugging on its own: builds are sets of numbers here, or models with planted faults."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.faults import candidate_of, node_of, set_weight
from tests.support.golden_models import cnn, inputs, transformer

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.unit import load
from cannc.golden.bisect import Choice, Judge, bisect
from cannc.golden.compare import compare
from cannc.golden.extract import minimal_pair

CHOICES = [Choice("pass", f"p{i}") for i in range(5)] + [Choice("fp16", f"n{i}") for i in range(60)]


def search(*guilty, choices=CHOICES, **options):
    """Bisect where a build fails exactly if it has all of `guilty`."""
    return bisect(choices, lambda chosen: chosen, lambda b: set(guilty) <= b, **options)


@pytest.mark.parametrize("index", [0, 4, 5, 37, 64])
def test_one_guilty_choice_is_found_in_few_trials(index):
    found = search(CHOICES[index])
    assert found.choices == (CHOICES[index],)
    assert found.complete
    assert found.trials < 20


def test_choices_that_only_fail_together():
    guilty = CHOICES[1], CHOICES[30], CHOICES[64]
    found = search(*guilty)
    assert found.choices == guilty
    assert found.complete


def test_one_of_several_culprits_is_enough():
    found = bisect(CHOICES, lambda c: c, lambda b: bool({CHOICES[3], CHOICES[50]} & b))
    assert found.choices == (CHOICES[3],)


def test_nothing_fails_and_everything_fails():
    assert bisect(CHOICES, lambda c: c, lambda _b: False).choices == ()
    with pytest.raises(UsageError, match="BIS001"):
        bisect(CHOICES, lambda c: c, lambda _b: True)


def test_sets_that_cannot_be_built_count_as_passing():
    def rebuild(chosen):
        if len(chosen) == 1:
            raise ModelError("X001", "cannot be built")
        return chosen

    found = bisect(CHOICES, rebuild, lambda b: CHOICES[7] in b)
    assert CHOICES[7] in found.choices
    assert len(found.choices) == 2
    assert found.unusable
    assert "cannot be built" in found.unusable[0]


def test_the_search_ends_at_its_limit():
    found = search(CHOICES[0], CHOICES[20], CHOICES[64], max_trials=12)
    assert not found.complete
    assert found.trials <= 12
    assert {CHOICES[0], CHOICES[20], CHOICES[64]} <= set(found.choices)


def plant(unit, name):
    if name == "epsilon":
        node_of(unit, "LayerNormalization").attributes.pop("epsilon")
        set_weight(node_of(unit, "LayerNormalization"), 1, lambda w: w * 1.2)
    elif name == "weight":
        set_weight(node_of(unit, "MatMul", 0), 1, lambda w: w.T)
    elif name == "axis":  # its input holds mask constants that float16 clips
        node_of(unit, "Softmax").attributes["axis"] = ir.AttrInt64("axis", 1)
    return unit


@pytest.mark.parametrize(
    ("fault", "layer"),
    [("epsilon", "LayerNormalization_26"), ("weight", "MatMul_0"), ("axis", "Softmax_20")],
)
def test_a_planted_fault_gets_a_minimal_pair(fault, layer, tmp_path):
    model, samples = load(transformer()), [inputs(transformer())]
    good = candidate_of(transformer(), "fp16")
    names = ["fold-constants", "dead-code", fault, "fuse-gelu"]

    def rebuild(chosen):
        unit = good.copy()
        for choice in chosen:
            plant(unit, choice.name)
        return unit

    judge = Judge(model, samples)
    found = bisect([Choice("pass", name) for name in names], rebuild, judge.fails)
    assert [choice.name for choice in found.choices] == [fault]
    minimal = minimal_pair(model, rebuild(frozenset(found.choices)), samples)
    assert minimal.layer == layer
    assert len(minimal.golden.graph) == 1
    assert minimal.save(tmp_path) < 2**20
    report = compare(
        tmp_path / "golden.onnx", tmp_path / "candidate.onnx", inputs=tmp_path / "inputs.npz"
    )
    assert report.verdict == "fail"
    # The same pair without the fault passes, so that the fault is what it shows.
    sound = minimal_pair(model, good, samples)
    assert sound.layer == ""


def test_the_argument_models_stay_as_they_are():
    unit, golden = candidate_of(cnn(), "fp16"), load(cnn())
    set_weight(node_of(unit, "Gemm"), 2, lambda b: -b)
    before = [len(u.model.graph) for u in (golden, unit)]
    assert minimal_pair(golden, unit, [inputs(cnn())]).layer == "Gemm_10"
    assert [len(u.model.graph) for u in (golden, unit)] == before


def test_the_judge_looks_at_outputs_only():
    model = cnn()
    judge = Judge(load(model), [inputs(model)])
    unit = candidate_of(model, "fp16")
    assert not judge.fails(unit)
    set_weight(node_of(unit, "Gemm"), 2, lambda b: np.full_like(b, np.nan))
    assert judge.fails(unit)
