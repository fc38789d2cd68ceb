"""ATC's options: every row of the table, and what ATC would refuse is refused with its code."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.support.models import mlp, parse, save

import cannc
from cannc.compiler.backends.atc.arguments import normalize, parse_arguments
from cannc.compiler.backends.atc.resolve import resolve
from cannc.compiler.backends.atc.shapes import format_shapes, parse_shapes
from cannc.compiler.backends.atc.table import Option, error_table, option_table
from cannc.compiler.backends.atc.values import check_value
from cannc.compiler.backends.base import CompileOptions
from cannc.compiler.cli.main import main
from cannc.compiler.core.errors import CanncError, UsageError
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.runtime.artifact import load_artifact

SHARED = Path(__file__).parents[2].parent / "shared"
TARGET = Target("Ascend310P3")
A2 = Target("Ascend910B4")
IMAGE = """g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { [relu] y = Relu(x) }"""
CACHE = """g (float[1, P, 4] past, float[1, S, 4] k, float[1, T, 4] bias) => (float[1, A, 4] y) {
    [join] all = Concat<axis = 1>(past, k)
    [add] y = Add(all, bias)
}"""


def resolved(target=TARGET, model=IMAGE, gears=None, **options):
    unit = load(parse(model) if isinstance(model, str) else model)
    asked = CompileOptions(atc_options=options, gears=gears or {})
    return resolve(asked, unit.model, target)


def refused(code, atc="", target=TARGET, model=IMAGE, gears=None, **options):
    """Expect our code, with ATC's code named; return the text of the error."""
    with pytest.raises(UsageError) as error:
        resolved(target, model, gears, **options)
    assert error.value.code == code, str(error.value)
    if atc:
        assert f"ATC refuses it as {atc}" in error.value.why
    return str(error.value)


# -- the table -----------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the fact sheets")
def test_every_row_of_the_fact_sheet_is_in_the_table():
    text = (SHARED / "facts" / "atc-cli.md").read_text(encoding="utf-8")
    section = text[text.index("## 2. Options") : text.index("## 3. Files written")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `--")]
    listed = {flag for row in rows for flag in re.findall(r"--(\w+)", row)}
    # An option that its row only mentions in the remarks.
    listed |= {"raw_ge_options_ignore_unsupported", "compress_weight_conf", "mode"}
    known = {option.flag for option in option_table().options}
    assert len(rows) > 70
    assert listed == known


def samples(option: Option, folder: Path) -> tuple[list[str], list[str]]:
    """Return good and bad values of an option for an Ascend310P3."""
    file = folder / "file.txt"
    file.touch()
    if option.kind == "choice":
        return [*option.values, *option.chips.get("ascend310p", ())], ["no_such_word"]
    if option.kind == "integer":
        beyond = [] if option.most is None else [str(option.most + 1)]
        return [str(option.least)], [str((option.least or 0) - 1), "many", *beyond]
    if option.kind == "bit":
        return ["0", "1"], ["2", "true"]
    if option.kind == "truth":
        return ["true", "false"], ["1", "yes"]
    if option.kind == "list":
        return ["true", "false"], ["true,maybe"]
    return {
        "file": ([str(file)], [str(folder / "none"), f"{folder}/a b"]),
        "folder": ([str(folder)], [str(folder / "none")]),
        "path": ([str(folder / "new")], [f"{folder}/a(1)", f"{folder}/é"]),
        "text": (["anything"], []),
    }[option.kind]


@pytest.mark.parametrize("option", option_table().options, ids=lambda option: option.flag)
def test_every_row_is_modelled_or_passes_through(option, tmp_path):
    good, bad = samples(option, tmp_path)
    if option.role == "refused" or (option.role == "other" and not option.values):
        good, bad = [], good or bad
    for value in good:
        check_value(option, value, TARGET)
    for value in bad:
        with pytest.raises(UsageError) as error:
            check_value(option, value, TARGET)
        assert f"--{option.flag}" in error.value.what
        assert option.role == "other" or re.search(r"as E\d{5}", error.value.why)


def test_what_passes_through_reaches_atc_as_it_is():
    texts = [o.flag for o in option_table().options if o.kind == "text" and o.role == "free"]
    special = {
        "multi_stream_parallel_mode": "cv",
        "aicore_num": "4|4",
        "optimization_switch": "A:on;B:off",
        "optypelist_for_implmode": "Pooling",
    }
    given = {flag: special.get(flag, "some text") for flag in texts}
    given |= {"op_select_implmode": "high_precision", "brand_new": "x=y"}
    unit = load(parse(IMAGE))
    found = resolve(CompileOptions(atc_options=given), unit.model, TARGET)
    assert {flag: found.options[flag] for flag in given} == given
    assert any("--brand_new is passed to ATC unchecked" in note for note in found.notes)


def test_near_misses_of_flags_are_pointed_out():
    (note,) = (n for n in resolved(input_shap="x:1,3,8,8").notes if "unchecked" in n)
    assert "did you mean 'input_shape'" in note


def test_codes_explained_once_and_for_all_families():
    table = error_table()
    for code in ("E10001", "E13010", "E16002", "EZ3003", "E20001", "E40020", "EE1013", "E19999"):
        row = table.explain(code)
        assert row is not None, code
        assert row.means
        assert row.cure
    assert table.explain("E13010") == table.explain("E19010") == table.explain("E16002")
    assert table.is_follow_up("EZ9999")
    assert not table.is_follow_up("E13010")
    assert table.explain("X1") is None


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the fact sheets")
def test_every_error_code_of_the_fact_sheet_is_explained():
    text = (SHARED / "facts" / "atc-cli.md").read_text(encoding="utf-8")
    section = text[text.index("## 5. Error codes") : text.index("### 5.3")]
    codes = set(re.findall(r"\bE[A-Z0-9]\d{4}\b", section))
    assert len(codes) > 90
    assert [code for code in sorted(codes) if error_table().explain(code) is None] == []


# -- how options are written ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["--log=info", "-log=info", " --log=info ", "--log info"])
def test_forms_of_an_argument(text):
    assert parse_arguments([text]) == {"log": "info"}


@pytest.mark.parametrize("text", ["log=info", "--log", "--=x", ""])
def test_other_forms_are_refused(text):
    with pytest.raises(UsageError) as error:
        parse_arguments([text])
    assert error.value.code == "ATC001"


def test_library_values_become_texts():
    given = {"--log": "info", "sparsity": True, "allow_hf32": False, "dynamic_batch_size": [1, 2]}
    assert normalize(given) == {
        "log": "info",
        "sparsity": "1",
        "allow_hf32": "false",
        "dynamic_batch_size": "1,2",
    }


def test_one_flag_with_two_values_is_refused():
    with pytest.raises(UsageError) as error:
        parse_arguments(["--log=info", "--log=debug"])
    assert error.value.code == "ATC002"
    assert parse_arguments(["--log=info", "--log=info"]) == {"log": "info"}


@pytest.mark.parametrize(("flag", "atc"), [("soc_version", "E10054"), ("log", "E10004")])
def test_empty_values(flag, atc):
    refused("ATC003", atc, **{flag: " "})


# -- values and rules ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "atc", "options"),
    [
        ("ATC010", "E10010", {"log": "loud"}),
        ("ATC010", "E10005", {"enable_single_stream": "1"}),
        ("ATC010", "E10006", {"sparsity": "true"}),
        ("ATC010", "E10001", {"deterministic_level": "4"}),
        ("ATC010", "E10001", {"input_format": "NHWC"}),
        ("ATC010", "E10001", {"optimization_switch": "A=off"}),
        ("ATC011", "E10001", {"precision_mode": "allow_mix_precision_bf16"}),
        ("ATC011", "E10001", {"precision_mode_v2": "mixed_hif8"}),
        ("ATC012", "E10001", {"op_compiler_cache_dir": "my cache"}),
        ("ATC012", "E10052", {"insert_op_conf": "none.cfg"}),
        ("ATC013", "E10001", {"auto_tune_mode": "RL,GA"}),
        ("ATC014", "", {"mode": "1"}),
        ("ATC014", "", {"singleop": "op.json"}),
        ("ATC014", "", {"weight": "a.caffemodel"}),
        ("ATC004", "E10007", {"framework": "3"}),
        ("ATC004", "", {"soc_version": "Ascend910B4"}),
        ("ATC004", "", {"output": "elsewhere"}),
        ("ATC020", "E10056", {"precision_mode": "force_fp16", "precision_mode_v2": "fp16"}),
        ("ATC020", "E10056", {"enable_single_stream": "true", "multi_stream_parallel_mode": "cv"}),
        ("ATC020", "E10056", {"deterministic": "0", "deterministic_level": "2"}),
        (
            "ATC020",
            "E10056",
            {"optypelist_for_implmode": "A", "op_select_implmode": "high_precision_for_all"},
        ),
        ("ATC021", "E10057", {"optypelist_for_implmode": "Pooling"}),
        ("ATC021", "E10057", {"is_input_adjust_hw_layout": "true"}),
        ("ATC021", "E10057", {"debug_dir": "."}),
        ("ATC021", "E10057", {"debug_dir": ".", "op_debug_level": "0"}),
        (
            "ATC022",
            "E10057",
            {"is_input_adjust_hw_layout": "true,false", "input_fp16_nodes": "x"},
        ),
        ("ATC022", "E10001", {"multi_stream_parallel_mode": "MainStream:65"}),
        ("ATC022", "E10055", {"sparsity": "1"}),
        ("ATC022", "E20101", {"aicore_num": "9"}),
        ("ATC022", "E20101", {"aicore_num": "8|8"}),
        ("ATC022", "E10001", {"dynamic_image_size": "8,8;9,9", "input_format": "ND"}),
    ],
)
def test_refused_before_atc_starts(code, atc, options):
    text = refused(code, atc, **options)
    assert any(flag in text for flag in options)


@pytest.mark.parametrize(
    "options",
    [
        {"precision_mode": "allow_mix_precision_bf16"},
        {"precision_mode_v2": "mixed_bfloat16"},
        {"sparsity": "1"},
        {"aicore_num": "20|40"},
        {"aicore_num": "20"},
        {"multi_stream_parallel_mode": "LoadBalance:64", "enable_single_stream": "false"},
        {"debug_dir": ".", "op_debug_level": "1"},
        {"is_input_adjust_hw_layout": "true", "input_fp16_nodes": "x"},
        {"soc_version": "Ascend910B4", "framework": 5, "mode": 0},
    ],
)
def test_accepted_on_an_a2_chip(options):
    found = resolved(A2, **options)
    assert not {"soc_version", "framework", "mode"} & found.options.keys()


def test_precision_of_ours_against_atcs(tmp_path):
    model = mlp()
    arguments = {"soc": "Ascend310P3", "backend": "host"}
    with pytest.raises(UsageError, match="contradicts --precision=keep") as error:
        cannc.compile(
            model,
            tmp_path / "m.om",
            precision="keep",
            atc_options={"precision_mode": "force_fp16"},
            **arguments,
        )
    assert error.value.code == "ATC005"


def test_fp16_asked_in_atcs_words_acts_on_the_host(tmp_path):
    out = tmp_path / "m.om"
    options = {"precision_mode_v2": "fp16", "soc_version": "Ascend310P3"}
    cannc.compile(mlp(), out, backend="host", atc_options=options)
    graph = load_artifact(out).model.graph
    dtypes = {tensor.const_value.dtype.name for tensor in graph.initializers.values()}
    assert "FLOAT16" in dtypes


@pytest.mark.parametrize("name", ["910B4", "ascend910b4", "Ascend910B5", "310P", "Ascend310P", ""])
def test_near_misses_of_soc_names(name):
    if not name:
        refused("ATC003", "E10054", soc_version="")
        return
    with pytest.raises(UsageError) as error:
        Target.parse(name)
    assert error.value.code == "SOC001"
    assert "E10001" in error.value.why
    assert "Ascend910B4" in str(error.value) or "Ascend310P3" in str(error.value)


def test_ascend910b_is_no_a2_chip(tmp_path, capsys):
    model = save(mlp(), tmp_path / "m.onnx")
    out = str(tmp_path / "m.om")
    assert main(["compile", str(model), "-o", out, "--soc", "Ascend910B"]) == 0
    assert "A2 chips" in capsys.readouterr().out


# -- shapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (" x : 1, 3 ,8,8 ; ", {"x": (1, 3, 8, 8)}),
        ("a:b:1,2", {"a:b": (1, 2)}),
        ("s:;x:-1,3", {"s": (), "x": (-1, 3)}),
        ("x:1~4,3;y:2~-1", {"x": ((1, 4), 3), "y": ((2, -1),)}),
    ],
)
def test_reading_shapes(text, shapes):
    assert parse_shapes(text) == shapes
    assert parse_shapes(format_shapes(shapes)) == shapes


@pytest.mark.parametrize(
    ("text", "code", "atc"),
    [
        ("x", "ATC030", "E10002"),
        ("x:1,a", "ATC030", "E10002"),
        (":1,2", "ATC030", "E10002"),
        ("x:1;x:2", "ATC030", "E10002"),
        (";", "ATC030", "E10002"),
        ("x:4~2,3", "ATC030", "E10048"),
        ("x:0,3,8,8", "ATC031", "E10011"),
        ("x:-2,3,8,8", "ATC031", "E10011"),
        ("z:1,3,8,8", "ATC032", "E10016"),
        ("y:1,3,8,8", "ATC032", "E10017"),
        ("x:1,3,8", "ATC033", "E10049"),
        ("x:1,4,8,8", "ATC034", ""),
        ("x:1,4~5,8,8", "ATC034", ""),
    ],
)
def test_shapes_that_atc_or_the_model_refuses(text, code, atc):
    refused(code, atc, input_shape=text)


def test_ranges_depend_on_the_chip():
    assert resolved(input_shape="x:1~4,3,8,8").options["input_shape"] == "x:1~4,3,8,8"
    refused("ATC035", "E10055", Target("Ascend310B4"), input_shape="x:1~4,3,8,8")


def test_an_initializer_is_no_input():
    model = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", w=np.ones(2, "f"))
    refused("ATC032", "E10017", model=model, input_shape="w:2")


def test_open_dimensions_are_said():
    assert any("dynamic-shape" in note for note in resolved().notes)
    assert resolved(input_shape="x:1,3,8,8").notes == []


# -- gears ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "atc", "options"),
    [
        ("ATC040", "E10014", {"dynamic_batch_size": "1,two"}),
        ("ATC041", "E10035", {"dynamic_batch_size": "4"}),
        ("ATC041", "E10036", {"dynamic_batch_size": ",".join(map(str, range(1, 102)))}),
        ("ATC041", "E10037", {"dynamic_image_size": "8,8;9"}),
        ("ATC041", "E10038", {"dynamic_batch_size": "0,1"}),
        ("ATC041", "E10039", {"dynamic_batch_size": "2,2"}),
        ("ATC042", "E10040", {"dynamic_batch_size": "1,2", "input_shape": "x:1~2,3,8,8"}),
        ("ATC042", "E10040", {"dynamic_batch_size": "1,2", "input_shape": "x:1,3,8,8"}),
        ("ATC043", "E10018", {"dynamic_batch_size": "1,2", "input_shape": "x:-1,3,-1,8"}),
        ("ATC043", "E10019", {"dynamic_image_size": "8,8;9,9", "input_shape": "x:-1,3,-1,-1"}),
        ("ATC044", "E10045", {"dynamic_dims": "1,8;2,8", "input_shape": "x:-1,3,-1,-1"}),
        ("ATC044", "E10045", {"dynamic_image_size": "8;9", "input_shape": "x:1,3,-1,-1"}),
        ("ATC020", "E10009", {"dynamic_batch_size": "1,2", "dynamic_image_size": "8,8;9,9"}),
        ("ATC020", "E10009", {"dynamic_dims": "1;2", "input_shape_range": "x:[1~2]"}),
        ("ATC020", "E10056", {"dynamic_dims": "1;2", "insert_op_conf": __file__}),
        ("ATC022", "E10001", {"dynamic_dims": "1;2", "input_format": "NCHW"}),
    ],
)
def test_gears_that_atc_refuses(code, atc, options):
    refused(code, atc, **options)


def test_gears_that_are_right():
    found = resolved(dynamic_batch_size="1, 2,4", input_shape="x:-1,3,8,8")
    assert found.gears is not None
    assert found.gears.rows == ((1,), (2,), (4,))
    assert [*found.gears.shapes(found.shapes)][2] == {"x": (4, 3, 8, 8)}
    image = resolved(dynamic_image_size="8,8;16,32", input_shape="x:1,3,-1,-1")
    assert [*image.gears.shapes(image.shapes)][1] == {"x": (1, 3, 16, 32)}
    dims = resolved(dynamic_dims="1,8,8;2,16,16", input_shape="x:-1,3,-1,-1")
    assert dims.options["input_format"] == "ND"
    many = ",".join(map(str, range(1, 257)))
    resolved(Target("Ascend950PR_9599"), dynamic_batch_size=many, input_shape="x:-1,3,8,8")


def test_shapes_are_completed_from_the_model():
    found = resolved(model=CACHE, dynamic_dims="3,1,4;3,2,5")
    assert found.options["input_shape"] == "past:1,-1,4;k:1,-1,4;bias:1,-1,4"
    assert not any("order" in note for note in found.notes)
    half = resolved(
        model=CACHE, dynamic_dims="1,4;2,5", input_shape="k:1,-1,4;bias:1,-1,4;past:1,3,4"
    )
    assert half.options["input_shape"] == "k:1,-1,4;bias:1,-1,4;past:1,3,4"


def test_without_a_shape_the_order_that_fits_is_taken():
    found = resolved(model=CACHE, dynamic_dims="4,3,1;5,3,2")
    assert found.options["input_shape"].startswith("bias:")
    assert any("order taken is bias" in note for note in found.notes)


def test_inconsistent_gears_are_refused():
    shape = "past:1,-1,4;k:1,-1,4;bias:1,-1,4"
    text = refused("ATC048", model=CACHE, dynamic_dims="3,1,4;3,2,4", input_shape=shape)
    assert "k:1,2,4" in text
    assert "add" in text
    refused("ATC048", model=CACHE, dynamic_dims="3,1,9;3,2,9")
    same = "g (float[N, 2] a, float[N, 2] b) => (float[M, 2] y) { y = Concat<axis = 0>(a, b) }"
    text = refused("ATC048", model=same, dynamic_dims="1,2;2,3")
    assert "dimension 'N' would be 1 and 2" in text


def test_gears_by_name():
    assert resolved(gears={"N": [1, 2]}, input_shape="x:-1,3,8,8").options == {
        "input_shape": "x:-1,3,8,8",
        "dynamic_batch_size": "1,2",
    }
    found = resolved(gears={"N": [1, 2], "H": [8, 16], "W": [8, 16]}).options
    assert found["dynamic_dims"] == "1,8,8;2,16,16"
    cache = resolved(model=CACHE, gears={"P": [3, 3], "S": [1, 2], "T": [4, 5]}).options
    assert cache["dynamic_dims"] == "3,1,4;3,2,5"


@pytest.mark.parametrize(
    ("code", "gears"),
    [
        ("ATC045", {"n": [1, 2]}),
        ("ATC046", {"N": [1, 2], "H": [8, 16, 32], "W": [8, 16]}),
        ("ATC047", {"N": [1, 2]}),
    ],
)
def test_gears_by_name_that_do_not_fit(code, gears):
    refused(code, gears=gears)


def test_gears_twice():
    refused("ATC006", gears={"N": [1, 2]}, dynamic_batch_size="1,2")


# -- names and files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "atc", "options"),
    [
        ("ATC032", "E10016", {"input_fp16_nodes": "z"}),
        ("ATC050", "E10016", {"out_nodes": "relu:1"}),
        ("ATC050", "E10016", {"out_nodes": "z"}),
        ("ATC051", "E10001", {"out_nodes": "relu:0;y"}),
        ("ATC052", "E10001", {"output_type": "FP64"}),
        ("ATC052", "E10001", {"output_type": "HIF8"}),
        ("ATC052", "E10001", {"output_type": "relu:0:FP16"}),
    ],
)
def test_names_and_output_types_that_are_refused(code, atc, options):
    refused(code, atc, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"out_nodes": "relu:0", "output_type": "relu:0:FP16"},
        {"out_nodes": "y"},
        {"output_type": "FP16", "input_fp16_nodes": "x"},
    ],
)
def test_names_and_output_types_that_are_right(options):
    assert resolved(**options).options == options


FILES = {
    "fusion_switch_file": (
        ["A:off\nB:on\n", '{"Switch": {"GraphFusion": {"ALL": "off", "B": "on"}}}'],
        ["A=off", '{"Switch": {"Fusion": {}}}', '{"Switch": {"UBFusion": {"A": "no"}}}', "{", "{}"],
    ),
    "op_precision_mode": (
        ["[ByOpType]\nSqrt=high_precision\n[ByNodeName]\na/b=keep_fp16\n"],
        ["[ByType]\nA=high_precision\n", "[ByOpType]\nA=best\n", "A=high_precision", ""],
    ),
    "keep_dtype": (["a/b\nOpType::Exp\n"], ["a, b\n"]),
    "customize_dtypes": (
        ["a::InputDtype:float16,float16,OutputDtype:float16\n"],
        ["a::float16\n"],
    ),
    "op_debug_config": (
        ["op_debug_config=oom,dump_cce\nop_debug_list=Add\n"],
        ["op_debug_config=x", "oom"],
    ),
    "raw_ge_options": (
        ['{"compile options": {"global": {"a": "b"}}}'],
        ['{"x": {"model": "m"}}', "[]"],
    ),
}


@pytest.mark.parametrize("flag", FILES)
def test_files_that_options_name(flag, tmp_path):
    file = tmp_path / "file.cfg"
    good, bad = FILES[flag]
    for text in good:
        file.write_text(text)
        assert resolved(**{flag: str(file)}).options[flag] == str(file)
    for text in bad:
        file.write_text(text)
        assert "file.cfg" in refused("ATC060", "E", **{flag: str(file)})


def test_a_mixlist_needs_a_mixed_mode_and_its_form(tmp_path):
    file = tmp_path / "mix.json"
    file.write_text(json.dumps({"black-list": {"to-add": ["MatMulV2"]}, "gray-list": {}}))
    options = {"modify_mixlist": str(file)}
    refused("ATC021", "E10057", **options)
    refused("ATC021", "E10057", **options, precision_mode_v2="fp16")
    resolved(**options, precision_mode_v2="mixed_float16")
    resolved(**options, precision_mode="allow_mix_precision")
    for bad in ({"blacklist": {}}, {"black-list": {"add": []}}, {"black-list": {"to-add": "A"}}):
        file.write_text(json.dumps(bad))
        refused("ATC060", "E10032", **options, precision_mode_v2="mixed_float16")


AIPP = """# camera
aipp_op {
    aipp_mode : static
    related_input_rank: 0
    input_format: YUV420SP_U8
    mean_chn_0: 104
    matrix_r0c0: 256
}
"""


def test_an_aipp_file(tmp_path):
    file = tmp_path / "aipp.cfg"
    file.write_text(AIPP)
    options = {"insert_op_conf": str(file)}
    resolved(**options)
    refused("ATC022", "E10001", **options, input_format="ND")
    refused("ATC063", "E10034", **options, input_fp16_nodes="x")
    for text, code in (
        (AIPP.replace("rank: 0", "rank: 1"), "ATC062"),
        (AIPP.replace("static", "fixed"), "ATC061"),
        (AIPP.replace("}", ""), "ATC061"),
        (AIPP + "}", "ATC061"),
        (AIPP.replace("aipp_op", "aipp"), "ATC061"),
        (AIPP.replace("mean_chn_0: 104", "mean_chn_0 104"), "ATC061"),
        ("", "ATC061"),
    ):
        file.write_text(text)
        refused(code, "E10052", **options)


# -- on the host, and users' cases ---------------------------------------------------------------


def test_options_that_shape_the_model_act_on_the_host(tmp_path):
    model = parse(
        """g (float[N, 4] x) => (float[N, 4] y) {
            [neg] h = Neg(x)
            [abs] a = Abs(h)
            [relu] y = Relu(a)
        }"""
    )
    out = tmp_path / "m.om"
    options = {
        "soc_version": "Ascend310P3",
        "input_shape": "x:2,4",
        "input_fp16_nodes": "x",
        "out_nodes": "abs:0;neg:0",
        "output_type": "abs:0:FP16",
    }
    cannc.compile(model, out, backend="host", atc_options=options)
    with cannc.Session(out) as session:
        x = np.array([[1, -2, 3, -4]] * 2, np.float16)
        found = session.run({"x": x})
        assert session.inputs[0].shape == (2, 4)
    assert [*found] == ["a", "h"]
    assert found["a"].dtype == np.float16
    assert found["h"].dtype == np.float32
    np.testing.assert_array_equal(found["a"], np.abs(x))
    np.testing.assert_array_equal(found["h"], -x.astype(np.float32))


def test_what_the_host_cannot_do_is_refused(tmp_path):
    file = tmp_path / "aipp.cfg"
    file.write_text(AIPP)
    for options in (
        {"insert_op_conf": str(file)},
        {"input_fp16_nodes": "x", "is_input_adjust_hw_layout": "true"},
    ):
        with pytest.raises(UsageError) as error:
            cannc.compile(
                parse(IMAGE), tmp_path / "m.om", "host", "Ascend310P3", atc_options=options
            )
        assert error.value.code == "BCK006"
    passive = {"input_fp16_nodes": "x", "is_input_adjust_hw_layout": "false"}
    cannc.compile(parse(IMAGE), tmp_path / "m.om", "host", "Ascend310P3", atc_options=passive)


def cases() -> list[dict]:
    index = SHARED / "cases" / "cases.json"
    found = json.loads(index.read_text())["cases"] if index.is_file() else []
    return [case for case in found if case["kind"] == "atc-cli" or case["id"] == "dyn-07"]


# What each kind of error must say for a user to find the place.
SAYS = {
    "error:soc_version": ("soc_version", "Ascend310P3"),
    "error:input-rank": ("'x'", "rank 4"),
    "error:dynamic_batch_size": ("dynamic_batch_size", "two different gears"),
    "error:dynamic_image_size": ("dynamic_image_size", "only H and W"),
    "error:exclusive-options": ("exclude each other",),
    "error:not-onnx": ("not a readable ONNX model",),
}


@pytest.mark.skipif(not cases(), reason="needs the users' cases")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_users_cases(case, tmp_path):
    folder, out = SHARED / "cases", tmp_path / "m.om"
    options = dict(case["options"])
    if case["kind"] == "dynamic":
        options["soc_version"] = "Ascend310P3"
    if case["expect"] != "equal":
        with pytest.raises(CanncError) as error:
            cannc.compile(folder / case["model"], out, "host", atc_options=options)
        for text in SAYS[case["expect"]]:
            assert text in str(error.value)
        assert not out.exists()
        return
    cannc.compile(folder / case["model"], out, "host", atc_options=options)
    with np.load(folder / case["inputs"]) as feeds, np.load(folder / case["outputs"]) as expected:
        with cannc.Session(out) as session:
            found = session.run(dict(feeds))
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
