"""Revenue by half hour and store as a picture: `python halfhours_chart.py halfhours.csv > halfhours.svg`."""

import csv
import sys
from collections import defaultdict

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 760, 300, 64, 44, 40, 76
COLORS = {"berlin": "#3f82d6", "lisbon": "#d9541e", "oslo": "#12937f"}
# Mid-tones that read on white and on black.
STYLE = """<style>.ink { fill: #737b85 } .soft { fill: #737b85 }
@media (prefers-color-scheme: light) { .ink { fill: #1d2530 } .soft { fill: #59636e } }
@media (prefers-color-scheme: dark) { .ink { fill: #e6edf3 } .soft { fill: #9198a1 } }</style>"""


def main(path: str) -> None:
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            # Stragglers of the day before are windows of their own; the picture is of the day.
            if row["half_hour"].startswith("2026-03-02"):
                hour = int(row["half_hour"][11:13]) + int(row["half_hour"][14:16]) / 60
                lines[row["store"]].append((hour, float(row["revenue"] or 0)))
    top = max(revenue for line in lines.values() for _, revenue in line)
    step = 10 ** (len(str(int(top))) - 1) / 5
    top = -(-top // step) * step

    def x(hour: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * hour / 24

    def y(revenue: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * revenue / top

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" '
        'font-size="12">',
        "<title>Revenue by half hour and store</title>",
        STYLE,
        f'<text class="ink" x="{LEFT}" y="24" font-size="14">Revenue by half hour, 2 March 2026</text>',
    ]
    for number in range(int(top // step) + 1):
        if number % max(1, int(top // step) // 3) == 0:
            at = y(number * step)
            place = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"'
            out.append(f'<line {place} stroke="#737b85" stroke-opacity="0.25"/>')
            label = f"{int(number * step):,}"
            out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" class="soft">{label}</text>')
    for hour in range(0, 25, 4):
        place = f'x="{x(hour):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" class="soft"'
        out.append(f"<text {place}>{hour:02d}:00</text>")
    labels: list[float] = []
    for store in sorted(lines, key=lambda store: y(max(lines[store])[1])):
        line = sorted(lines[store])
        points = " ".join(f"{x(hour):.1f},{y(revenue):.1f}" for hour, revenue in line)
        color = COLORS[store]
        out.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"/>'
        )
        at = y(line[-1][1]) + 4
        while any(abs(at - other) < 14 for other in labels):
            at += 2
        labels.append(at)
        out.append(f'<text x="{x(line[-1][0]) + 8:.1f}" y="{at:.1f}" fill="{color}">{store}</text>')
    out.append("</svg>")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
