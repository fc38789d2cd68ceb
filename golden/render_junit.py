"""A report as JUnit XML: one test per graph output and per layer, for CI pages."""

from __future__ import annotations

from xml.etree import ElementTree

from cannc.golden.report import GoldenReport, Layer


def to_junit(report: GoldenReport) -> str:
    """Return the XML. Only graph outputs decide the verdict, so they are a suite of their own."""
    root = ElementTree.Element("testsuites", name=f"cannc compare {report.facts.candidate}")
    _suite(root, "outputs", report.outputs)
    _suite(root, "layers", report.layers)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, name: str, layers: tuple[Layer, ...]) -> None:
    failures = sum(layer.passed is False for layer in layers)
    skipped = sum(layer.passed is None for layer in layers)
    attributes = {"tests": len(layers), "failures": failures, "skipped": skipped}
    texts = {key: str(value) for key, value in attributes.items()}
    suite = ElementTree.SubElement(root, "testsuite", {"name": name, **texts})
    for layer in layers:
        case = {"name": _printable(layer.name), "classname": _printable(layer.op_type or "value")}
        test = ElementTree.SubElement(suite, "testcase", case)
        if layer.passed is False:
            reasons = _printable("; ".join(_reasons(layer)))
            ElementTree.SubElement(test, "failure", message=reasons)
        elif layer.passed is None:
            ElementTree.SubElement(test, "skipped", message=layer.kind)


def _reasons(layer: Layer) -> list[str]:
    finding = layer.arriving or layer.added
    if finding is None or layer.note:
        return [layer.note or layer.kind]
    return [*finding.judgement.reasons]


def _printable(text: str) -> str:
    """Replace characters that XML cannot hold, even escaped."""
    return "".join(c if c.isprintable() or c in "\t\n" else "\ufffd" for c in text)
