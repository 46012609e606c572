# SPDX-License-Identifier: Apache-2.0
"""C as this tree writes it, read far enough to count: functions, their nesting, their contracts.

No preprocessor: what a macro makes is not seen, and a macro that loops (`EACH(x) {`) is a loop."""
import re

TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.]*|"|->|\S')
HEADING = re.compile(r"/\*+ *([\w/]+\.[ch]:?|-{3,}.*) *\*/$", re.S)
NAMES = re.compile(r"/\*\*[ *\n\t]*\w+(?:,[ *\n\t]*\w+)+[ *\n\t]+-\s")
CONTROL = {"if", "for", "while", "switch"}


class Function:
    def __init__(self, path, name, first, last, body=None, is_contracted=None):
        self.path, self.name, self.first, self.last = path, name, first, last
        self.nesting = nesting(body) if body is not None else 0
        self.has_body, self.is_contracted = body is not None, is_contracted  # None: not in a header

    @property
    def lines(self):
        return self.last - self.first + 1


def blank(text):
    """Comments, strings and directives replaced by blanks; lines stay.  And the comments: (first, last, text)."""
    out, comments = [], []
    part = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    at = 0
    for m in part.finditer(text):
        out.append(text[at:m.start()])
        s = m.group()
        if s[0] == "/":
            first = text.count("\n", 0, m.start()) + 1
            comments.append((first, first + s.count("\n"), s))
            out.append(re.sub(r"[^\n]", " ", s))
        else:
            out.append('"' + " " * (len(s) - 2) + '"')
        at = m.end()
    code = "".join(out) + text[at:]
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.M), comments


def tokens(code):
    line, at = 1, 0
    for m in TOKEN.finditer(code):
        line += code.count("\n", at, m.start())
        at = m.start()
        yield m.group(), line


def matching(toks, i, into):
    """The index behind the bracket that closes the one at i."""
    deep = 0
    while i < len(toks):
        if toks[i][0] in into:
            deep += 1
        elif toks[i][0] in {"(": ")", "{": "}", "[": "]"}[into]:
            deep -= 1
            if not deep:
                return i + 1
        i += 1
    return i


def nesting(body):
    """How deep statements lie in others: 0 = straight, 1 = one branch or loop, and so on."""
    deepest = 0

    def statement(i, deep):
        nonlocal deepest
        deepest = max(deepest, deep)
        t = body[i][0]
        if t == "{":
            end = matching(body, i, "{")
            i += 1
            while i < end - 1:
                i = statement(i, deep)
            return end
        if t in CONTROL:
            i = statement(matching(body, i + 1, "("), deep + 1)
            if t == "if" and i < len(body) and body[i][0] == "else":
                # "else if" goes on beside the first branch.
                i = statement(i + 1, deep if body[i + 1][0] == "if" else deep + 1)
            return i
        if t == "do":
            return statement(statement(i + 1, deep + 1), deep - 1 if deep else 0)
        if t in ("case", "default"):
            while body[i][0] != ":":
                i += 1
            return i + 1
        if re.match(r"[A-Za-z_]", t) and i + 1 < len(body):
            if body[i + 1][0] == ":" and body[i + 2:i + 3] != [":"]:
                return i + 2  # a label
            if body[i + 1][0] == "(":
                after = matching(body, i + 1, "(")
                if after < len(body) and (body[after][0] == "{" or body[after][0] in CONTROL):
                    return statement(after, deep + 1)  # a macro that loops
        while i < len(body) and body[i][0] != ";":
            i = matching(body, i, body[i][0]) if body[i][0] in "({[" else i + 1
        return i + 1

    i = 0
    while i < len(body):
        i = statement(i, 0)
    return deepest


def named(head):
    """The function that a declaration names: of `int f(int) __attribute__((x(1)))` f; None: no function."""
    if not head or head[0][0] == "typedef" or any(t in ("=", "_Static_assert") for t, _ in head):
        return None
    i = 0
    while i + 1 < len(head):
        t = head[i][0]
        if t == "__attribute__":
            i = matching(head, i + 1, "(")
            continue
        if head[i + 1][0] == "(" and re.match(r"[A-Za-z_]", t):
            # At least a type before it, and no variable that points to a function.
            return t if i and head[i + 2:i + 3] != [] and head[i + 2][0] != "*" else None
        if t in "{[(":
            i = matching(head, i, t)
            continue
        i += 1
    return None


def contracted(name, first, last, comments, code_lines):
    """A comment that is no heading (a file's name, dashes) ends on the line before; or stands behind the
    declaration on one of its lines; or heads the group (declarations without a blank line between) and
    calls the function by name; or is one above it that begins with several names, this among them."""
    word = re.compile(r"\b" + name + r"\b")
    for a, b, text in comments:
        if HEADING.match(text):
            continue
        is_behind = bool(code_lines[a - 1].strip())
        if first <= b and a <= last if is_behind else b == first - 1:
            return True
        if b >= first or not word.search(text):
            continue
        if NAMES.match(text) and word.search(NAMES.match(text).group()):
            return True
        if all(code_lines[n - 1].strip() for n in range(b + 1, first) if not any(x <= n <= y for x, y, _ in comments)):
            return True
    return False


def functions(path, text):
    """Those that are defined in the text, and in a header those that are declared."""
    code, comments = blank(text)
    lines = code.split("\n")
    toks = [t for t in tokens(code)]
    found, i, begin = [], 0, 0
    is_header = path.endswith(".h")
    while i < len(toks):
        t = toks[i][0]
        if t == "(":
            i = matching(toks, i, "(")
        elif t == "{":
            end = matching(toks, i, "{")
            head = toks[begin:i]
            name = named(head)
            if name:
                known = contracted(name, head[0][1], toks[i][1], comments, lines) if is_header else None
                found.append(Function(path, name, head[0][1], toks[end - 1][1], toks[i + 1:end - 1], known))
            elif [x for x, _ in head][:2] == ["extern", '"']:
                end = i + 1  # extern "C": what is in it counts
            else:
                i = end  # a struct, a table: up to its semicolon
                continue
            i = begin = end
        elif t in (";", "}"):
            head = toks[begin:i]
            name = named(head) if is_header and t == ";" else None
            if name:
                known = contracted(name, head[0][1], toks[i][1], comments, lines)
                found.append(Function(path, name, head[0][1], toks[i][1], None, known))
            i += 1
            begin = i
        else:
            i += 1
    return found
