#!/usr/bin/env python3
"""What clang-format does not look for in C++: format_rules.py TREE [FILE...] names each place that breaks a rule, and fails if there is one.

- A line has at most 120 columns, unless a string reaches beyond, or ends there: a diagnostic stays whole, so that it can be searched for.
- One `? :` stands in no other: a ladder is a switch, a table or early returns.
- `return a, b;` is two statements.
- No template is written as a comparison: `name < Type >`.
- A test is TEST(SuiteInCapitals, Case_as_a_sentence): see tests/README.md.
`--test` shows that each rule finds what it is for."""
import argparse
import re
import sys
from pathlib import Path

COLUMNS = 120
FOLDERS = ("include", "examples", "tests", "bench")
# Folders (or files) in which these rules do not hold yet, each for the rules that it names.
NOT_YET = {
}
# Whether the names of tests are looked at.
TEST_NAMES = True

TOKEN = re.compile(r"""
  (?P<comment>//[^\n]*|/\*.*?\*/)
| (?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
| (?P<number>(?:\d|\.\d)(?:'?[\w.]|(?<=[eEpP])[+-])*)
| (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
| (?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
| (?P<word>[A-Za-z_]\w*)
| (?P<sign>::|->|<=>|<=|>=|&&|\|\||\?\?|[^\s\w])
""", re.VERBOSE | re.DOTALL | re.MULTILINE)
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
# What compile_fail/check.cmake reads is one line each.
PRAGMA = re.compile(r"\s*// (EXPECT|EXPECT_GCC): ")
TEST = {"TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P"}
SUITE = re.compile(r"[A-Z][A-Za-z0-9]*")
# A case: a capital letter, words with underscores between them; a fault's number may stand in front.
CASE = re.compile(r"(DISABLED_)?(([A-Z]{1,2}\d+[a-z]?_)+\w+|([A-Z][a-z0-9]*|[A-Z0-9]+[a-z]?)(_\w+)*)")


def tokens_of(text):
    """(kind, text, offset) of everything but comments and directives."""
    return [(m.lastgroup if m.lastgroup != "mark" else "string", m[0], m.start()) for m in TOKEN.finditer(text)
            if m.lastgroup not in ("comment", "directive")]


def long_lines(text, tokens):
    spans = [(m.start(), m.end()) for m in TOKEN.finditer(text) if m.lastgroup in ("string", "mark")]
    start = 0
    for line in text.split("\n"):
        edge, end = start + COLUMNS, start + len(line)
        if len(line) > COLUMNS and not PRAGMA.match(line) and not any(a < end and (b > edge or text[b:end].strip(");,") == "") for a, b in spans):
            yield edge, f"a line of {len(line)} columns"
        start = end + 1


def ladders(text, tokens):
    """A second `?` in one expression, or in parentheses that are a branch of the first."""
    levels = [0]
    branch = []  # whether the bracket that opened each level is a branch of a `? :`
    before = ""
    for kind, token, at in tokens:
        if kind == "sign":
            if token in OPEN:
                branch.append(token == "(" and before in ("?", ":") and levels[-1] > 0)
                levels.append(0)
            elif token in CLOSE and branch:
                levels.pop()
                branch.pop()
            elif token in (";", ","):
                levels[-1] = 0
            elif token == "?":
                if levels[-1] > 0 or (branch and branch[-1]):
                    yield at, "a `? :` in a branch of another"
                levels[-1] += 1
        elif token in ("return", "case", "default"):
            levels[-1] = 0
        before = token


def glued_returns(text, tokens):
    for i, (kind, token, at) in enumerate(tokens):
        if kind != "word" or token != "return":
            continue
        depth = angle = 0
        for j in range(i + 1, len(tokens)):
            t = tokens[j][1] if tokens[j][0] == "sign" else None
            if t in OPEN:
                depth += 1
            elif t in CLOSE:
                depth -= 1
            elif t == "<" and depth == 0 and closes(tokens, j):
                angle += 1
            elif t == ">" and angle > 0:
                angle -= 1
            elif t == "," and depth == 0 and angle == 0:
                yield at, "`return a, b;`"
                break
            if depth < 0 or (t == ";" and depth == 0):
                break


def closes(tokens, i):
    """Whether the `<` at i opens arguments of a template: it follows a name, and its `>` comes before anything that a list of arguments has not."""
    if i == 0 or tokens[i - 1][0] != "word":
        return False
    depth = 0
    for kind, token, _ in tokens[i:]:
        if token == "<":
            depth += 1
        elif token == ">":
            depth -= 1
            if depth == 0:
                return True
        elif token in (";", "{", "}", "&&", "||", "?", "return"):
            return False
    return False


def comparisons(text, tokens):
    for m in re.finditer(r"\w < [A-Z]\w* >(?!=)", text):
        yield m.start(), f"a template as a comparison: {m[0]}"


def names(text, tokens):
    for i, (kind, token, at) in enumerate(tokens[:-4]):
        if kind == "word" and token in TEST and tokens[i + 1][1] == "(" and tokens[i + 3][1] == ",":
            suite, case = tokens[i + 2][1], tokens[i + 4][1]
            if not SUITE.fullmatch(suite):
                yield at, f"the name of a suite is in capitals, without underscores: {suite}"
            if not CASE.fullmatch(case):
                yield at, f"the name of a case is a sentence with underscores and a capital: {case}"


RULES = {"columns": long_lines, "ladders": ladders, "returns": glued_returns, "comparisons": comparisons, "names": names}


def broken(text, rules):
    tokens = tokens_of(text)
    return sorted((text.count("\n", 0, at) + 1, what) for rule in rules for at, what in RULES[rule](text, tokens))


def rules_for(path):
    off = {rule for folder, rules in NOT_YET.items() if path == folder or path.startswith(folder.rstrip("/") + "/") for rule in rules}
    return [rule for rule in RULES if rule not in off and (rule != "names" or TEST_NAMES)]


def test():
    long = "x" * 130
    wrong = {
        "columns": [f"int {long};", f"f(\"short\", {long});", f"// {long}"],
        "ladders": ["a = b ? 1 : c ? 2 : 3;", "return b\n    ? 1\n    : c ? 2\n        : 3;", "a = b ? c ? 1 : 2 : 3;", "a = b ? 1 : (c ? 2 : 3);"],
        "returns": ["return a, b;", "return f(1), b;", "return a < b, c;"],
        "comparisons": ["f(sizeof(checks < Consumer >) != 0);"],
        "names": ["TEST(snake, Says_it) {}", "TEST_F(Suite, SaysIt) {}", "TEST(Suite, says_it) {}"],
    }
    right = {
        "columns": [f"f(\"{long}\");", f"// EXPECT: {long}", f"  \"{long}\", 1);", f"  \"{'x' * 117}\");"],
        "ladders": ["a = b ? 1 : 2; c = d ? 1 : 2;", "f(a ? 1 : 2, b ? 3 : 4);", "a = b ? [] { return c ? 1 : 2; } : d;", "a = (b ? 1 : 2) + (c ? 3 : 4);",
                    "// a ? b : c ? d : e", "s = \"a ? b : c ? d : e\";", "case a: return b ? 1 : 2; case c: return d ? 3 : 4;", "a = b ? f(c ? 1 : 2) : 3;"],
        "returns": ["return f(a, b);", "return {a, b};", "return x<a, b>();", "return std::pair<a, b<c>>{};", "return [a, b] { return a + b; }();",
                    "return a < b;", "for (;;) return; f(a, b);"],
        "comparisons": ["f(a < B);", "checks<Consumer> c;"],
        "names": ["TEST(Suite, Says_it) {}", "TEST_F(Suite, F6_is_cut) {}", "TEST(CRC32C, A_known_value) {}", "TEST(Suite, R7_S2_at_16_MiB) {}"],
    }
    for rule in RULES:
        for text in wrong[rule]:
            assert broken(text + "\n", [rule]), f"{rule} does not find: {text}"
        for text in right[rule]:
            assert not broken(text + "\n", [rule]), f"{rule} takes for wrong: {text}: {broken(text, [rule])}"
    print("each rule finds what it is for")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", default=".")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--all", action="store_true", help="as if NOT_YET were empty and TEST_NAMES true")
    args = parser.parse_args()
    if args.test:
        return test()
    root = Path(args.tree)
    files = [root / f for f in args.files] or sorted(f for folder in FOLDERS for f in (root / folder).rglob("*.[hc]pp"))
    wrong = 0
    for file in files:
        path = file.relative_to(root).as_posix()
        for line, what in broken(file.read_text(), list(RULES) if args.all else rules_for(path)):
            print(f"{path}:{line}: {what}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
