"""The report as one self-contained HTML page."""

from __future__ import annotations

import jinja2

from cannc.op_support.report import SupportReport
from cannc.op_support.text import rows, summary


def to_html(report: SupportReport, artifact: str) -> str:
    """Return the page; `artifact` is the model's name, without its folder."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cannc.op_support"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    template = environment.get_template("check.html.j2")
    return template.render(
        report=report, artifact=artifact, rows=rows(report), summary=summary(report)
    )
