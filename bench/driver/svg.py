"""Line and bar plots as SVG, without a library: readable axes, and nothing that a viewer could not show."""

import math
from html import escape

COLOURS = ["#0b5fa5", "#d1495b", "#2e933c", "#8d6a9f", "#e08e1b", "#4a4a4a", "#17a2a2", "#a0522d", "#6b8e23"]
FONT = 'font-family="Helvetica, Arial, sans-serif"'


def number(value):
    if value == 0:
        return "0"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def byte_count(value):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"


def linear_ticks(top):
    if top <= 0:
        return [0, 1]
    step = 10 ** math.floor(math.log10(top))
    for divisor in (5, 2, 1):
        if top / (step / divisor) <= 6:
            step /= divisor
            break
    return [i * step for i in range(int(math.ceil(top / step - 1e-9)) + 1)]


def log_ticks(low, high, base=10):
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    return [float(base) ** k for k in range(first, max(last, first + 1) + 1)]


class Canvas:
    def __init__(self, width, height, title):
        self.width, self.height = width, height
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">']
        self.parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
        self.text(16, 26, title, size=15, weight="bold")

    def text(self, x, y, text, size=12, anchor="start", weight="normal", colour="#222", turn=None):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn is not None else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" font-weight="{weight}" fill="{colour}" '
            f'text-anchor="{anchor}"{turned}>{escape(text)}</text>'
        )

    def line(self, x1, y1, x2, y2, colour="#ddd", width=1):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def save(self, path):
        with open(path, "w") as file:
            file.write("\n".join(self.parts) + "\n</svg>\n")


def lines(path, title, x_label, y_label, series, x_log=None, y_log=False, x_text=number, y_text=number):
    """`series`: {name: [(x, y), ...] or [(x, low, y, high), ...]}; `x_log`: 2 or 10, the base, None for a linear axis."""
    series = {name: [(p[0], p[-2] if len(p) == 4 else p[1], p) for p in sorted(points)] for name, points in series.items() if points}
    if not series:
        return False
    c = Canvas(940, 440, title)
    left, right, top, bottom = 84, 270, 48, 64
    w, h = c.width - left - right, c.height - top - bottom
    xs = [p[0] for points in series.values() for p in points]
    ys = [v for points in series.values() for p in points for v in (p[2][1:] if len(p[2]) == 4 else p[2][1:2])]
    if x_log:
        xt = sorted(set(xs)) if len(set(xs)) <= 12 else log_ticks(min(xs), max(xs), x_log)
        lo, hi = math.log(min(xs)), math.log(max(xs))
        at_x = lambda v: left + w * ((math.log(v) - lo) / (hi - lo) if hi > lo else 0.5)
    else:
        xt = linear_ticks(max(xs))
        at_x = lambda v: left + w * v / xt[-1]
    if y_log:
        yt = log_ticks(min(ys), max(ys))
        lo_y, hi_y = math.log(yt[0]), math.log(yt[-1])
        at_y = lambda v: top + h - h * (math.log(v) - lo_y) / (hi_y - lo_y)
    else:
        yt = linear_ticks(max(ys))
        at_y = lambda v: top + h - h * v / yt[-1]
    for t in yt:
        c.line(left, at_y(t), left + w, at_y(t))
        c.text(left - 8, at_y(t) + 4, y_text(t), anchor="end")
    for t in xt:
        c.line(at_x(t), top + h, at_x(t), top + h + 5, "#222")
        c.text(at_x(t), top + h + 20, x_text(t), anchor="middle", size=11)
    c.line(left, top + h, left + w, top + h, "#222")
    c.line(left, top, left, top + h, "#222")
    c.text(left + w / 2, c.height - 14, x_label, anchor="middle", size=13)
    c.text(20, top + h / 2, y_label, anchor="middle", size=13, turn=-90)
    ends = []
    for i, (name, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        c.parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="{2.5 if i < 2 else 1.5}" points="'
            + " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y, _ in points)
            + '"/>'
        )
        for x, y, p in points:
            if len(p) == 4:
                c.line(at_x(x), at_y(p[1]), at_x(x), at_y(p[3]), colour)
            if len(points) <= 60:
                c.parts.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>')
        ends.append([at_y(points[-1][1]), name, colour, at_x(points[-1][0])])
    ends.sort()
    for before, now in zip(ends, ends[1:]):  # names beside the ends of their lines, not on top of each other
        now[0] = max(now[0], before[0] + 16)
    over = max(0, ends[-1][0] - (top + h + 8))
    for y, name, colour, _ in ends:
        c.text(left + w + 12, y - over + 4, name, colour=colour)
    c.save(path)
    return True


def bars(path, title, label, rows, text=number):
    """`rows`: [(name, low, median, high), ...], the first one emphasised."""
    c = Canvas(860, 90 + 30 * len(rows), title)
    left, right, top = 300, 90, 44
    w, bottom = c.width - left - right, c.height - 44
    ticks = linear_ticks(max(r[3] for r in rows))
    at = lambda v: left + w * v / ticks[-1]
    for t in ticks:
        c.line(at(t), top, at(t), bottom)
        c.text(at(t), bottom + 16, text(t), anchor="middle", size=11)
    for i, (name, low, median, high) in enumerate(rows):
        y = top + 6 + 30 * i
        colour = COLOURS[0] if name.startswith("tensorpull") else "#9db4c7"
        c.parts.append(f'<rect x="{left}" y="{y}" width="{max(1, at(median) - left):.1f}" height="18" fill="{colour}"/>')
        c.line(at(low), y + 9, at(high), y + 9, "#222")
        for v in (low, high):
            c.line(at(v), y + 5, at(v), y + 13, "#222")
        c.text(left - 8, y + 13, name, anchor="end")
        c.text(at(high) + 6, y + 13, text(median), size=11)
    c.line(left, top, left, bottom, "#222")
    c.text(left + w / 2, c.height - 8, label, anchor="middle", size=13)
    c.save(path)
    return True
