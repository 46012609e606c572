# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG, by hand: the same data gives the same bytes, and nothing has to be installed for them."""
import html
import math

WIDTH, HEIGHT = 760, 430
LEFT, TOP, RIGHT, BOTTOM = 66, 46, 560, 360  # of the plot; the legend is right of it
# Told apart by those who do not see red and green, too (Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK, GREY = "#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9", "#222222", "#888888"
MARKS = {"dot": '<circle cx="{x}" cy="{y}" r="3.5" fill="{fill}" stroke="{c}" stroke-width="1.5"/>',
         "square": '<rect x="{x3}" y="{y3}" width="7" height="7" fill="{fill}" stroke="{c}" stroke-width="1.5"/>',
         "diamond": '<path d="M{x} {y5}l5 5l-5 5l-5 -5z" fill="{fill}" stroke="{c}" stroke-width="1.5"/>'}


def number(v):
    return f"{v:.2f}".rstrip("0").rstrip(".")


def ticks(low, high):
    """Round numbers from low to high, five to nine of them."""
    step = 10 ** math.floor(math.log10((high - low) / 5))
    for by in (1, 2, 5, 10):
        if (high - low) / (step * by) <= 8:
            step *= by
            break
    n = math.ceil(high / step - 1e-9)
    return [k * step for k in range(round(low / step), n + 1)]


def label(v):
    return f"{v:,.0f}" if v >= 10 else number(v)


class Chart:
    """Over numbers (by their logarithm if so asked) lines; over words, which have no order, a stem for each value, the
    series of one word side by side."""

    def __init__(self, title, x_label, y_label, x, log_x=False, log_y=False, note=""):
        self.title, self.x_label, self.y_label, self.note = title, x_label, y_label, note
        self.x, self.log_x, self.log_y, self.series = list(x), log_x, log_y, []

    def add(self, name, ys, colour, dash="", mark="dot", hollow=False, line=True):
        """One value an x, or None where there is none."""
        assert len(ys) == len(self.x), (name, ys)
        self.series.append((name, list(ys), colour, dash, mark, hollow, line))

    def bound_mark(self):
        """A line needs no marks."""
        return "diamond" if self._is_words() else ""

    # ---- where things are

    def _is_words(self):
        return isinstance(self.x[0], str)

    def _place_x(self, i):
        v = self.x
        if self._is_words():
            return LEFT + (RIGHT - LEFT) * (i + 0.5) / len(v)
        f = math.log2 if self.log_x else float
        a, b = f(v[0]), f(v[-1])
        return LEFT + 18 + (RIGHT - LEFT - 36) * (f(v[i]) - a) / (b - a)

    def _scale(self):
        values = [y for s in self.series for y in s[1] if y is not None]
        if not self.log_y:
            marks = ticks(0, max(values) * 1.02)
            return marks, lambda y: BOTTOM - (BOTTOM - TOP) * y / marks[-1]
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        marks = [m * 10 ** e for e in range(low, high + 1) for m in (1, 2, 5) if m * 10 ** e <= 10 ** high]
        while len(marks) > 1 and marks[1] <= min(values):
            marks.pop(0)
        while len(marks) > 1 and marks[-2] >= max(values):
            marks.pop()
        a, b = math.log10(marks[0]), math.log10(marks[-1])
        return marks, lambda y: BOTTOM - (BOTTOM - TOP) * (math.log10(y) - a) / (b - a)

    # ---- drawing

    @staticmethod
    def _text(x, y, text, size=12, anchor="start", colour=BLACK, more=""):
        return (f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{more}>'
                f"{html.escape(text)}</text>")

    def _axes(self, marks, place):
        out = []
        for m in marks:
            y = number(place(m))
            out.append(f'<line x1="{LEFT}" y1="{y}" x2="{RIGHT}" y2="{y}" stroke="#dddddd"/>')
            out.append(self._text(LEFT - 6, float(y) + 4, label(m), 11, "end"))
        for i, x in enumerate(self.x):
            out.append(self._text(self._place_x(i), BOTTOM + 16, x if isinstance(x, str) else f"{x:g}", 11, "middle"))
        out.append(f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="{BLACK}"/>')
        out.append(self._text((LEFT + RIGHT) / 2, BOTTOM + 36, self.x_label, 12, "middle"))
        mid = (TOP + BOTTOM) / 2
        out.append(self._text(16, mid, self.y_label, 12, "middle", more=f' transform="rotate(-90 16 {number(mid)})"'))
        return out

    @staticmethod
    def _mark(kind, x, y, colour, hollow):
        return MARKS[kind].format(x=number(x), y=number(y), x3=number(x - 3.5), y3=number(y - 3.5), y5=number(y - 5), c=colour,
                                  fill="#ffffff" if hollow else colour)

    def _side(self, k):
        """Where series k is, beside the middle of a word."""
        if not self._is_words():
            return 0
        return (k - (len(self.series) - 1) / 2) * 0.8 * (RIGHT - LEFT) / len(self.x) / len(self.series)

    def _one(self, place, k, name, ys, colour, dash, mark, hollow, line):
        at = [(self._place_x(i) + self._side(k), place(y)) for i, y in enumerate(ys) if y is not None]
        out = [f"<g><title>{html.escape(name)}</title>"]
        if self._is_words():
            out += [f'<line x1="{number(x)}" y1="{BOTTOM}" x2="{number(x)}" y2="{number(y)}" stroke="{colour}" stroke-width="2"'
                    f'{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/>' for x, y in at]
        elif line and len(at) > 1:
            points = " ".join(f"{number(x)},{number(y)}" for x, y in at)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"'
                       f'{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/>')
        out += [self._mark(mark, x, y, colour, hollow) for x, y in at if mark]
        return out + ["</g>"]

    def _legend(self):
        out, y = [], TOP + 6
        for name, _, colour, dash, mark, hollow, line in self.series:
            if line:
                out.append(f'<line x1="{RIGHT + 14}" y1="{y}" x2="{RIGHT + 42}" y2="{y}" stroke="{colour}" stroke-width="2"'
                           f'{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/>')
            if mark:
                out.append(self._mark(mark, RIGHT + 28, y, colour, hollow))
            for k, part in enumerate(name.split("\n")):
                out.append(self._text(RIGHT + 48, y + 4 + 13 * k, part, 11))
            y += 20 + 13 * name.count("\n")
        return out

    def svg(self):
        marks, place = self._scale()
        body = [self._text(LEFT, 24, self.title, 15, more=' font-weight="bold"')] + self._axes(marks, place)
        for k, s in enumerate(self.series):
            body += self._one(place, k, *s)
        body += self._legend()
        for k, part in enumerate(self.note.split("\n") if self.note else []):
            body.append(self._text(LEFT, BOTTOM + 54 + 13 * k, part, 10.5, colour="#555555"))
        return ("<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
                f"<title>{html.escape(self.title)}</title>\n"
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n")
