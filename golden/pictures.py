"""Small pictures of a culprit as SVG: its histograms, and the nodes around it."""

from __future__ import annotations

from markupsafe import Markup

from cannc.golden.details import Histogram, Neighbour
from cannc.golden.report import GoldenReport, Layer

_WIDTH, _HEIGHT = 240, 70
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _SPACE = 210, 30, 60, 8
_SHOWN = 5
_MOST_LETTERS = 32


def picture(layer: Layer, report: GoldenReport) -> Markup:
    """Return the pictures of one row that has details."""
    detail = report.details[layer.name]
    parts = []
    if detail.histograms is not None:
        parts = [
            _histogram("golden", detail.histograms.golden),
            _histogram("candidate", detail.histograms.candidate),
            _histogram("difference", detail.histograms.difference),
        ]
    parts.append(_neighbourhood(layer, detail.before, detail.after))
    return Markup("").join(parts)


def _histogram(label: str, histogram: Histogram) -> Markup:
    top = max(histogram.counts) or 1
    width = _WIDTH / len(histogram.counts)
    bars = Markup("").join(
        Markup(
            '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
        ).format(
            i * width, _HEIGHT * (1 - count / top), max(width - 1, 1), _HEIGHT * count / top, count
        )
        for i, count in enumerate(histogram.counts)
        if count
    )
    return Markup(
        '<figure class="picture"><svg class="bars" viewBox="0 0 {} {}" width="{}" height="{}"'
        ' role="img" aria-label="{}">{}</svg><figcaption>{}: {:.3g} to {:.3g}</figcaption></figure>'
    ).format(_WIDTH, _HEIGHT, _WIDTH, _HEIGHT, label, bars, label, histogram.low, histogram.high)


def _neighbourhood(
    layer: Layer, before: tuple[Neighbour, ...], after: tuple[Neighbour, ...]
) -> Markup:
    """Draw what feeds a node on the left and what reads it on the right."""
    rows = max(1, min(len(before), _SHOWN), min(len(after), _SHOWN))
    height = rows * (_BOX_HEIGHT + _SPACE) + _SPACE
    middle = (height - _BOX_HEIGHT) / 2
    column = _BOX_WIDTH + _GAP
    parts = [_box(column, middle, layer.candidate_node, layer.op_type, "culprit")]
    for place, (near, x) in enumerate(((before, 0), (after, 2 * column))):
        for index, neighbour in enumerate(near[:_SHOWN]):
            y = _SPACE + index * (_BOX_HEIGHT + _SPACE)
            parts.append(_box(x, y, neighbour.node, neighbour.op_type, "near"))
            ends = (
                (x + _BOX_WIDTH, y, column, middle)
                if place == 0
                else (
                    column + _BOX_WIDTH,
                    middle,
                    x,
                    y,
                )
            )
            parts.append(_edge(*ends))
    hidden = max(0, len(before) - _SHOWN) + max(0, len(after) - _SHOWN)
    caption = f"what feeds it, and what reads it{f'; {hidden} more' if hidden else ''}"
    width = 2 * column + _BOX_WIDTH
    return Markup(
        '<figure class="picture"><svg class="near" viewBox="0 0 {} {}" width="{}" height="{}"'
        ' role="img" aria-label="neighbourhood">{}</svg><figcaption>{}</figcaption></figure>'
    ).format(width, height, width, height, Markup("").join(parts), caption)


def _box(x: float, y: float, name: str, op_type: str, kind: str) -> Markup:
    short = name if len(name) <= _MOST_LETTERS else f"…{name[1 - _MOST_LETTERS :]}"
    return Markup(
        '<g class="{}"><title>{}</title><rect x="{:.0f}" y="{:.0f}" width="{}" height="{}" rx="4"/>'
        '<text x="{:.0f}" y="{:.0f}">{}</text><text class="op" x="{:.0f}" y="{:.0f}">{}</text></g>'
    ).format(
        kind, name, x, y, _BOX_WIDTH, _BOX_HEIGHT, x + 6, y + 13, short, x + 6, y + 25, op_type
    )


def _edge(x1: float, y1: float, x2: float, y2: float) -> Markup:
    half = _BOX_HEIGHT / 2
    return Markup('<line x1="{:.0f}" y1="{:.0f}" x2="{:.0f}" y2="{:.0f}"/>').format(
        x1, y1 + half, x2, y2 + half
    )
