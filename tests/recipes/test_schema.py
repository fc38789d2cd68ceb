"""Recipes are checked before anything runs."""

from pathlib import Path

import pytest

from cannc.compiler.core.errors import UsageError
from cannc.compiler.recipe import load_recipe

FOLDER = Path(__file__).parents[2] / "recipes"
GOOD = "name: x\nsource: {onnx: a.onnx}\n"


def write(tmp_path, text):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_recipes_are_valid(path):
    assert load_recipe(path).name == path.stem


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("optimise: {level: O2}\n", "unknown key 'optimise', did you mean 'optimize'?"),
        ("optimize: {levl: O2}\n", "unknown key 'optimize.levl', did you mean 'level'?"),
        ("quantize: {schema: w8a16}\n", "unknown key 'quantize.schema', did you mean 'scheme'?"),
        ("optimize: {level: O9}\n", "optimize.level"),
        ("compile: {backend: gpu}\n", "compile.backend"),
        ("compile: {ranges: {N: 1-4}}\n", "compile.ranges.N"),
        ("compile: {gears: {N: [1]}, ranges: {N: 1~4}}\n", "gears or ranges, not both"),
    ],
)
def test_mistakes_are_named(extra, said, tmp_path):
    with pytest.raises(UsageError) as caught:
        load_recipe(write(tmp_path, GOOD + extra))
    assert caught.value.code == "RCP002"
    assert said in caught.value.why


def test_all_mistakes_are_named_at_once(tmp_path):
    with pytest.raises(UsageError) as caught:
        load_recipe(write(tmp_path, "name: x y\nsource: {}\nfoo: 1\n"))
    assert "3 mistakes" in caught.value.what


@pytest.mark.parametrize("source", ["{}", "{onnx: a, hf: b}"])
def test_exactly_one_source(source, tmp_path):
    with pytest.raises(UsageError) as caught:
        load_recipe(write(tmp_path, f"name: x\nsource: {source}\n"))
    assert "exactly one" in caught.value.why


@pytest.mark.parametrize("text", ["a: [1", "\tx: 1"])
def test_not_yaml(text, tmp_path):
    with pytest.raises(UsageError) as caught:
        load_recipe(write(tmp_path, text))
    assert caught.value.code == "RCP001"


@pytest.mark.parametrize("text", ["", "5", "[1, 2]"])
def test_not_a_mapping(text, tmp_path):
    with pytest.raises(UsageError) as caught:
        load_recipe(write(tmp_path, text))
    assert caught.value.code == "RCP002"


def test_overrides(tmp_path):
    path = write(tmp_path, GOOD)
    recipe = load_recipe(path, {"optimize.level": "O1", "quantize.scheme": "w8a16"})
    assert recipe.optimize.level == "O1"
    assert recipe.quantize is not None
    with pytest.raises(UsageError) as caught:
        load_recipe(path, {"name.deep": "1"})
    assert caught.value.code == "RCP003"
