"""The HTML report in a real browser: what a script in the page sees after using it."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cannc.golden.metrics import measure
from cannc.golden.render_html import to_html
from cannc.golden.report import Facts, GoldenReport, Layer, Tally
from cannc.golden.verdict import Grade

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")

ODD_NAME = """a</script><b>"quoted" & 'odd' <!-- \u2028"""
ROWS = 5000


def finding(error):
    golden = np.linspace(1, 2, 16)
    metrics = measure(golden, golden * (1 + error))
    tally = Tally(Grade.FLOAT16)
    tally.add(metrics)
    return tally.finding()


@pytest.fixture(scope="module")
def page():
    small, large = finding(1e-4), finding(0.5)
    layers = [
        Layer(
            name=ODD_NAME if i == 7 else f"/layer.{i // 10}/value_{i}",
            kind="inside" if i % 10 == 3 else "compared",
            op_type="MatMul" if i % 2 else "Add",
            node=f"node_{i}",
            candidate_node=f"fused_{i}",
            module=f"encoder.{i // 10}",
            dtype="float16",
            shape=(2, 8),
            owned=True,
            arriving=None if i % 10 == 3 else large if i >= 4000 else small,
            added=None if i % 10 == 3 else large if i == 4000 else small,
        )
        for i in range(ROWS)
    ]
    facts = Facts("host (simulated float16)", "golden.onnx", ODD_NAME)
    return to_html(GoldenReport(tuple(layers), (layers[-1].name,), facts))


USE = Path(__file__).with_name("use_report.js").read_text()


def used(page, folder, *flags):
    """Open the page, use it, and return what the script saw."""
    path = folder / "report.html"
    guard = "<script>addEventListener('error', (e) => { document.title = e.message; });</script>"
    scripted = page.replace("<head>", f"<head>{guard}").replace(
        "</body>", f"<script>{USE}</script></body>"
    )
    path.write_text(scripted, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *flags]
    command += [f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert '<pre id="result">' in done.stdout, done.stdout[:500] + done.stderr[-500:]
    encoded = done.stdout.split('<pre id="result">')[1].split("<")[0]
    return json.loads(base64.b64decode(encoded))


@pytest.fixture(scope="module")
def seen(page, tmp_path_factory):
    return used(page, tmp_path_factory.mktemp("light"), "--window-size=1300,1000")


def test_nothing_broke(seen):
    assert seen["title"].startswith("fail:")
    assert ODD_NAME in seen["title"]


def test_only_rows_in_sight_exist_but_printing_has_all(seen):
    assert 20 < seen["drawn"] < 100
    assert seen["filled"]
    assert seen["printed"] == ROWS


def test_names_are_shown_as_they_are(seen):
    assert seen["odd"] == seen["dialogTitle"] == ODD_NAME


def test_filtering_is_right_and_quick(seen):
    assert seen["filtered"] == "55 of 5000"  # encoder.12 and encoder.120 to 129, five each
    assert seen["filteredNames"] == ["/layer.12/value_121", "/layer.12/value_123"]
    assert seen["inside"] == "500 of 5000"
    assert seen["failed"] == "900 of 5000"
    assert seen["filterMs"] < 1000


def test_sorting_by_isolated_error(seen):
    assert seen["worst"] == "/layer.400/value_4000"
    assert seen["sorted"] == "descending"
    assert seen["best"] == "0"


def test_a_layer_opens_and_closes(seen):
    assert seen["dialog"]
    assert "node_7 (MatMul)" in seen["dialogText"]
    assert "1.00e-4" in seen["dialogText"]
    assert seen["closed"]


def test_hovering_over_the_plot_names_the_layer(seen):
    assert "/layer.400/value_4000" in seen["tip"]
    assert "isolated 0.5" in seen["tip"]


def test_dark_and_narrow(page, seen, tmp_path):
    dark = used(page, tmp_path, "--window-size=500,900", "--blink-settings=preferredColorScheme=0")
    assert seen["background"] == "rgb(246, 247, 249)"
    assert dark["background"] == "rgb(18, 21, 27)"
    assert seen["wide"]
    assert dark["wide"]
