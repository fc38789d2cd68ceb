"""What the README says is true: its recipe is valid, its commands and names exist."""

import re
import shlex
from pathlib import Path

import pytest

import cannc
from cannc.compiler.cli.main import main
from cannc.compiler.recipe import Recipe, load_recipe

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    lines = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("cannc ")]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_commands_and_options_exist(command, capsys):
    assert main([command[1], "--help"]) == 0
    text = capsys.readouterr().out
    for word in command[2:]:
        if word.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(word.rstrip('0123456789'))}\b", text), word


def test_the_recipe_is_valid_and_shows_every_section(tmp_path):
    (text,) = blocks("yaml")
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(cannc.CanncError, match="exactly one"):
        load_recipe(path, {"source.hf": "folder"})
    load_recipe(path)
    shown = set(re.findall(r"^(\w+):", text, re.MULTILINE))
    assert shown | {"description"} == set(Recipe.model_fields)


def test_python_names_exist():
    for block in blocks("python"):
        for name in re.findall(r"cannc\.(\w+)", block):
            assert getattr(cannc, name) is not None


def test_linked_files_exist():
    for name in re.findall(r"`([\w./]+\.(?:py|yaml))`", README):
        found = [*Path(__file__).parents[1].glob(name), *Path(__file__).parents[1].rglob(name)]
        assert found, name
