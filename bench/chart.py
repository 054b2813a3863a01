"""Bar charts as SVG, drawn without a plotting library, because they only have a few panels of bars. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from bench.mirrors import FRANZ_GO, MM2PY
from bench.runs import MEASURES
from bench.summary import Summary, shown
from bench.workloads import WORKLOADS

WIDTH: Final = 920
LABELS: Final = 270
VALUES: Final = 90
BAR: Final = 15
GAP: Final = 12
MM2_BETTER: Final = "MirrorMaker 2, the better of tasks.max 1 and 4"
COLOURS: Final[Mapping[str, str]] = {"mm2py": "#1f6feb", MM2_BETTER: "#c2571a", "franz-go loop": "#7d8590"}
SHOWN: Final = ("uncompressed", "zstd", "single", "one_partition")


@dataclass(frozen=True, slots=True)
class Bar:
    series: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars under one title, in labelled groups, all on one scale from zero."""

    title: str
    groups: Sequence[tuple[str, Sequence[Bar]]]

    @property
    def height(self) -> int:
        return 40 + sum(len(bars) * BAR + GAP for _, bars in self.groups)


def panel(summary: Summary, measure: str) -> Panel:
    """Return the bars of one measure: mm2py, the better MirrorMaker 2, franz-go where it was measured."""
    better = "more is better" if MEASURES[measure].higher_is_better else "less is better"
    groups = []
    for workload in SHOWN:
        mirrors = {
            "mm2py": MM2PY,
            MM2_BETTER: summary.better_mm2(workload, measure),
            "franz-go loop": FRANZ_GO,
        }
        bars = []
        for series, mirror in mirrors.items():
            spread = None if mirror is None else summary.spread(workload, mirror, measure)
            if spread is not None:
                bars.append(Bar(series, spread.median, shown(measure, spread.median, ours=series == "mm2py")))
        if bars:
            groups.append((WORKLOADS[workload].title, bars))
    return Panel(f"{MEASURES[measure].title} ({better})", groups)


def chart(summary: Summary, caption: str) -> str:
    """Return the picture: throughput and CPU while records flow, for each copy workload."""
    return picture([panel(summary, measure) for measure in ("records_per_s", "cpu_s_per_million_steady")], caption)


def picture(panels: Sequence[Panel], caption: str, colours: Mapping[str, str] = COLOURS) -> str:
    """Return panels of bars, one above the other. ``colours`` has one for each series."""
    height = 70 + sum(each.height for each in panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12" fill="#1f2328">',
        f"<title>{escape(caption)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    x = 16
    for series, colour in colours.items():
        parts.append(f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, 24, series))
        x += 40 + 7 * len(series)
    top = 36
    for each in panels:
        parts += _panel(each, top, colours)
        top += each.height
    parts.append(_text(16, height - 14, caption, extra=' fill="#59636e" font-size="11"'))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _panel(panel: Panel, top: int, colours: Mapping[str, str]) -> list[str]:
    parts = [_text(16, top + 22, panel.title, extra=' font-weight="bold" font-size="14"')]
    most = max((bar.value for _, bars in panel.groups for bar in bars), default=1.0) or 1.0
    y = top + 36
    for label, bars in panel.groups:
        parts.append(_text(LABELS - 8, y + len(bars) * BAR / 2 + 4, label, extra=' text-anchor="end"'))
        for bar in bars:
            width = bar.value / most * (WIDTH - LABELS - VALUES)
            colour = colours[bar.series]
            parts.append(f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            parts.append(_text(LABELS + width + 5, y + BAR - 4, bar.text, extra=' font-size="11"'))
            y += BAR
        y += GAP
    return parts


def _text(x: float, y: float, text: str, *, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(text)}</text>'
