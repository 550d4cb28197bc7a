"""A roofline picture of `kernels.py`'s figures: operations a second over operations a byte."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _MARGIN = 760, 460, 56
_X = (0.5, 5000.0)  # operations a byte
_COLOURS = {"int8": "#c0392b", "bf16": "#2471a3", "fp32": "#7d8a8c"}


def draw(path: str, peaks: Mapping[str, float], figures: Mapping[str, Mapping[str, Any]]) -> None:
    """Write an SVG: the roofs of each kind of arithmetic, and a point for each kernel."""
    top = max(peaks["fp32_gflops"], peaks["bf16_gflops"], peaks["int16_gops"]) * 1.5
    bottom = _X[0] * peaks["read_gb_per_s"] / 3

    def x(intensity: float) -> float:
        share = math.log(intensity / _X[0]) / math.log(_X[1] / _X[0])
        return _MARGIN + min(max(share, 0.0), 1.0) * (_WIDTH - 2 * _MARGIN)

    def y(rate: float) -> float:
        share = math.log(rate / bottom) / math.log(top / bottom)
        return _HEIGHT - _MARGIN - min(max(share, 0.0), 1.0) * (_HEIGHT - 2 * _MARGIN)

    body = []
    for name, colour, label in (
        ("int16_gops", _COLOURS["int8"], "16-bit products"),
        ("bf16_gflops", _COLOURS["bf16"], "bfloat16"),
        ("fp32_gflops", _COLOURS["fp32"], "float32"),
    ):
        knee = peaks[name] / peaks["read_gb_per_s"]
        corners = [
            (_X[0], _X[0] * peaks["read_gb_per_s"]),
            (knee, peaks[name]),
            (_X[1], peaks[name]),
        ]
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
        body.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        body.append(
            f'<text x="{_WIDTH - _MARGIN}" y="{y(peaks[name]) - 5:.1f}" text-anchor="end" '
            f'fill="{colour}">{label}: {peaks[name]:.0f} G/s</text>'
        )
    for name, values in figures.items():
        if not values.get("gb_per_s"):
            continue
        kind = name.split()[0]
        place = x(values["gflops"] / values["gb_per_s"]), y(values["gflops"])
        corner = 0 if "attention," in name else 3
        body.append(
            f'<rect x="{place[0] - 3:.1f}" y="{place[1] - 3:.1f}" width="6" height="6" '
            f'rx="{corner}" fill="{_COLOURS[kind]}"><title>{name}</title></rect>'
        )
    axis = _HEIGHT - _MARGIN
    for power in range(4):
        place = x(10.0**power)
        body.append(
            f'<text x="{place:.1f}" y="{axis + 16}" text-anchor="middle">{10**power}</text>'
        )
    rate = 10.0
    while rate < top:
        if rate > bottom:
            body.append(
                f'<text x="{_MARGIN - 6}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:.0f}</text>'
            )
        rate *= 3 if str(rate)[0] == "1" else 10 / 3
    legend = ", ".join(
        f'<tspan fill="{colour}">{kind}</tspan>' for kind, colour in _COLOURS.items()
    )
    body.append(
        f'<text x="{_MARGIN}" y="20">G operations a second over operations a byte; circles: matrix '
        f"products, squares: attention; {legend}</text>"
        f'<path d="M{_MARGIN} {_MARGIN}V{axis}H{_WIDTH - _MARGIN}" fill="none" stroke="black"/>'
    )
    Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(body)}</svg>\n"
    )
