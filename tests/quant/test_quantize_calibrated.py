"""``cannc quantize --calib``: from data on disk to a quantized file, or nothing at all."""

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from tests.support.models import mlp, save

import cannc
from cannc.compiler.cli.main import cli
from cannc.compiler.core.errors import UsageError
from cannc.quant.report import QuantReport


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "calib.npz", x=rng.normal(size=(40, 8)).astype(np.float32))
    return save(mlp(), tmp_path / "mlp.onnx")


@pytest.mark.parametrize("algo", ["mse", "awq", "gptq"])
def test_from_file_to_file(model, algo):
    out = model.with_name("q.onnx")
    arguments = ["quantize", str(model), "-o", str(out), "--algo", algo, "--scheme", "w4a16"]
    arguments += ["--calib", str(model.with_name("calib.npz")), "--num-samples", "36"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    onnx.checker.check_model(out)
    report = QuantReport.of(cannc.load(out))
    assert [row.output_error is not None for row in report.quantized] == [True, True]


@pytest.mark.parametrize(
    ("feeds", "code"),
    [
        ({"x": np.full((3, 8), np.nan, np.float32)}, "INP006"),
        ({"x": np.ones((3, 7), np.float32)}, "INP004"),
        ({"z": np.ones((3, 8), np.float32)}, "INP002"),
        ({"x": np.ones((0, 8), np.float32)}, "CAL002"),
        (None, "CAL002"),
    ],
)
def test_bad_data_writes_nothing(model, feeds, code):
    data = model.with_name("bad.npz" if feeds else "bad")
    if feeds:
        np.savez(data, **feeds)
    else:
        data.mkdir()
    before = sorted(model.parent.iterdir())
    arguments = ["quantize", str(model), "-o", str(model.with_name("q.onnx")), "--algo", "gptq"]
    result = CliRunner().invoke(cli, [*arguments, "--calib", str(data)])
    assert isinstance(result.exception, UsageError)
    assert result.exception.code == code
    assert sorted(model.parent.iterdir()) == before


def test_a_function_may_give_the_samples(model):
    script = model.with_name("data.py")
    script.write_text(
        "import numpy as np\n"
        "def samples():\n"
        "    while True:\n"
        "        yield np.ones((1, 8), np.float32)\n"
    )
    quantizer = cannc.Quantizer(algo="gptq")
    unit = quantizer.quantize(model, calib=f"{script}:samples", num_samples=3)
    notes = unit.log[-1].notes
    assert any("2 of 3 samples repeat" in note for note in notes)


def test_float16_activations_are_simulated(model):
    unit = cannc.optimize(model, precision="fp16")
    calib = [{"x": np.random.default_rng(i).normal(size=(4, 8))} for i in range(4)]
    quantized = cannc.quantize(unit, calib=calib, algo="awq")
    feeds = {"x": np.ones((1, 8), np.float32)}
    report = cannc.compare(unit, quantized, inputs=feeds, mode="accumulated")
    assert report.verdict == "pass"
