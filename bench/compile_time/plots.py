"""Line and bar charts as SVG, with axes that start at 0 and carry their units."""
from html import escape

COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 80, 230, 46, 54


def ticks(most, about=5):
    """Round steps from 0 to at least `most`."""
    if most <= 0:
        return [0, 1]
    step = 10.0 ** len(str(int(most)))
    while most / step < about:
        step /= 2.5 if str(step).strip("0.").startswith("5") else 2
    count = int(most / step) + (1 if most / step > int(most / step) else 0)
    return [i * step for i in range(count + 1)]


def number(value):
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def text(x, y, words, anchor="middle", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{extra}>{escape(str(words))}</text>'


def frame(title, body, height):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" fill="#222">'
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>{text(LEFT, 24, title, "start", 15)}{"".join(body)}</svg>\n')


def line_chart(title, x_label, y_label, lines):
    """lines: {name: [(x, y)]}"""
    xs = [x for points in lines.values() for x, _ in points]
    x_ticks, y_ticks = ticks(max(xs)), ticks(max(y for points in lines.values() for _, y in points))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(x, y):
        return LEFT + (right - LEFT) * x / x_ticks[-1], bottom - (bottom - TOP) * y / y_ticks[-1]

    body = []
    for y in y_ticks:
        _, v = at(0, y)
        body.append(f'<line x1="{LEFT}" y1="{v:.1f}" x2="{right}" y2="{v:.1f}" stroke="#ddd"/>' + text(LEFT - 8, v + 4, number(y), "end"))
    for x in x_ticks:
        body.append(text(at(x, 0)[0], bottom + 18, number(x)))
    body.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#222"/>')
    body.append(text((LEFT + right) / 2, HEIGHT - 12, x_label))
    body.append(text(18, (TOP + bottom) / 2, y_label, extra=f' transform="rotate(-90 18 {(TOP + bottom) / 2})"'))
    for i, (name, points) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [at(*p) for p in sorted(points)]
        body.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = TOP + 12 + 20 * i
        body.append(f'<rect x="{right + 14}" y="{y - 9}" width="12" height="12" fill="{colour}"/>' + text(right + 32, y + 1, name, "start"))
    return frame(title, body, HEIGHT)


def bar_chart(title, x_label, bars):
    """bars: {name: {series: value}}, drawn from left to right, one row for each name."""
    series = list(dict.fromkeys(s for values in bars.values() for s in values))
    row = 9 * len(series) + 9
    left, right, bottom = 290, WIDTH - 30, TOP + 22 + row * len(bars)
    x_ticks = ticks(max(v for values in bars.values() for v in values.values()))
    body = []
    for i, s in enumerate(series):
        body.append(f'<rect x="{left + 170 * i}" y="{TOP - 10}" width="12" height="12" fill="{COLOURS[i]}"/>' + text(left + 18 + 170 * i, TOP, s, "start"))
    for x in x_ticks:
        v = left + (right - left) * x / x_ticks[-1]
        body.append(f'<line x1="{v:.1f}" y1="{TOP + 14}" x2="{v:.1f}" y2="{bottom}" stroke="#ddd"/>' + text(v, bottom + 18, number(x)))
    for k, (name, values) in enumerate(bars.items()):
        y = TOP + 20 + row * k
        body.append(text(left - 8, y + row / 2, name, "end"))
        for i, s in enumerate(series):
            if s in values:
                body.append(f'<rect x="{left}" y="{y + 9 * i}" width="{(right - left) * values[s] / x_ticks[-1]:.1f}" height="8" fill="{COLOURS[i]}"/>')
    body.append(text((left + right) / 2, bottom + 40, x_label))
    return frame(title, body, bottom + 54)
