#!/usr/bin/env python3
"""bench/compile_time/measure.py charges a program's parts with what they cost, and answers what it cannot measure in a sentence: measure_test.py COMPILER"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "compile_time"))
sys.dont_write_bytecode = True
import compilers
import parts

DEAR = """template <int N> struct chain { using next = chain<N - 1>; static constexpr int depth = next::depth + 1; };
template <> struct chain<0> { static constexpr int depth = 0; };
namespace other { template <class T> struct plain { T value; template <class U> T plus(U u) { return value + u; } }; }
static_assert(chain<300>::depth == 300);
"""
CHEAP = "inline int cheap() { return 1; }\n"
PROGRAM = """#include "che ap.hpp"
#include "dear.hpp"
#ifdef ASKED
namespace mine {
template <class... T> struct policies {};
template <class T> struct policy { template <class U> int f(U u) { return other::plain<T>{1}.plus(u); } };
struct idle {};
}
template struct mine::policies<mine::policy<int>, mine::idle>;
struct own { int run() { return 2; } };
int main() { return mine::policy<int>().f(cheap()) + own().run(); }
#endif
"""


class Measure(unittest.TestCase):
    compiler = "g++"

    def measured(self, *options, program=PROGRAM, flags=("-DASKED",), headers={"che ap.hpp": CHEAP, "dear.hpp": DEAR}):
        """(status, what was printed, rows by kind and name)"""
        with tempfile.TemporaryDirectory(suffix=" a b") as name:
            folder = pathlib.Path(name)
            for file, text in {"pro gram.cpp": program, **headers}.items():
                (folder / file).write_text(text, errors="surrogateescape")
            told = subprocess.run([sys.executable, ROOT / "bench/compile_time/measure.py", folder / "pro gram.cpp", "--compilers", self.compiler, "--rounds", "1", "--json",
                                   folder / "figures", "--picture", folder / "picture", *(str(o).replace("FOLDER", name) for o in options), "--", *flags],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=name, timeout=240)
            self.assertLessEqual({path.name for path in folder.iterdir()}, {"pro gram.cpp", "figures", "picture", *headers})
            rows = json.loads((folder / "figures").read_text())["rows"] if (folder / "figures").exists() else []
            self.picture = (folder / "picture").read_text() if (folder / "picture").exists() else ""
        return told.returncode, told.stdout, {(row["kind"], row["name"]): row for row in rows}

    def test_a_header_a_template_and_a_policy_are_charged_with_what_they_cost(self):
        status, told, rows = self.measured("--policies-of", "mine::policies")
        self.assertEqual(status, 0, told)
        dear, cheap = rows["include", '#include "dear.hpp"'], rows["include", '#include "che ap.hpp"']
        self.assertGreaterEqual(dear["instantiations"], 300)
        self.assertLess(cheap["instantiations"], 10)
        self.assertGreater(dear["memory"], 0)
        self.assertGreater(rows["include", "the program"]["object"], 0)
        self.assertEqual(sum(row["object"] for (kind, _), row in rows.items() if kind == "include"), rows["whole", "pro gram.cpp"]["object"])
        self.assertIn(rows["template", "chain"]["instantiations"], (300, 301))  # with g++ also the one that was written
        self.assertGreaterEqual(rows["template", "other::plain"]["instantiations"], 2)
        self.assertGreater(rows["template", "other::plain"]["object"], 0)
        self.assertGreater(rows["policy", "mine::policy"]["object"], 0)
        self.assertGreaterEqual(rows["library", "other"]["instantiations"], 2)
        self.assertGreaterEqual(rows["library", "the program"]["instantiations"], 300)
        if "clang" in compilers.Compiler(self.compiler).kind:
            self.assertGreaterEqual(rows["header", "dear.hpp"]["instantiations"], 302)
            self.assertEqual(rows["header", "che ap.hpp"]["instantiations"], 0)
            self.assertGreaterEqual(rows["policy", "mine::policy"]["instantiations"], 4)  # with what it instantiates
            for kind in parts.KINDS:
                self.assertEqual(sum(row["instantiations"] or 0 for (k, _), row in rows.items() if k == kind), rows["whole", "pro gram.cpp"]["instantiations"])
        else:
            self.assertIsNone(rows["template", "chain"]["seconds"])
            self.assertIn("No clang was asked", told)
        self.assertNotIn(("library", "own"), rows)
        self.assertIn("dear.hpp", self.picture)

    def test_a_change_is_told_with_its_differences(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as before:
            _, _, rows = self.measured()
            before.write(json.dumps({"rows": list(rows.values())}))
            before.flush()
            status, told, _ = self.measured("--against", before.name, headers={"che ap.hpp": CHEAP, "dear.hpp": DEAR.replace("300", "100")})
        self.assertEqual(status, 0, told)
        self.assertRegex(told, r"\| chain \|.* 10[01] \(-200\)")

    def test_a_file_that_is_no_text_and_has_no_class_is_measured(self):
        status, told, rows = self.measured(program="// \udcfe\nint main() {}\n", headers={})
        self.assertEqual(status, 0, told)
        self.assertGreater(rows["whole", "pro gram.cpp"]["object"], 0)

    def test_what_cannot_be_measured_is_a_sentence_and_a_status(self):
        for options, wrong, sentence in (
                ((), {"program": "int main() { return nothing; }\n"}, r"pro gram\.cpp was refused by (g\+\+|clang) [\d.]+: .*nothing"),
                ((), {"flags": ("-fno-such-flag",)}, r"was refused by .*-fno-such-flag"),
                ((), {"flags": ("-fsyntax-only",)}, r"was refused by .*there is no object"),
                (("--compilers", "false"), {}, r"was refused by .*status 1"),
                (("--compilers", "c++-that-is-not-here"), {}, r"^measure\.py: none of these compilers is here: c\+\+-that-is-not-here$"),
                (("--against", "FOLDER/nothing"), {}, r"^measure\.py: .*/nothing: No such file or directory$"),
                (("--against", "FOLDER/dear.hpp"), {}, r"^measure\.py: .*dear\.hpp is no JSON of measure\.py$"),
                (("--json", "FOLDER/no/figures"), {}, r"measure\.py: .*/no/figures: No such file or directory\n$")):
            with self.subTest(options=options, wrong=wrong):
                status, told, rows = self.measured(*options, **wrong)
                self.assertEqual(status, 1, told)
                self.assertRegex(told, sentence)
                self.assertNotIn("Traceback", told)


class Charges(unittest.TestCase):
    def events(self, newer):
        """A header of 50 with another of 20 in it, which defines `dear`; 40 at the end of the file in its body, of which 10 in `std::helper`."""
        def source(name, begin, time):
            if newer:
                return [{"ph": "b", "ts": begin, "name": "Source", "args": {"detail": name}}, {"ph": "e", "ts": begin + time, "name": "Source"}]
            return [span("Source", name, begin, time)]

        def span(event, name, begin, time):
            return {"ph": "X", "ts": begin, "dur": time, "name": event, "args": {"detail": name}}

        return [span("ParseClass", "b::dear", 12, 4), *source("/include/b/b.hpp", 10, 20), *source("/include/a/a.hpp", 5, 50), span("InstantiateClass", "std::helper<int>", 70, 10),
                span("InstantiateFunction", "b::dear<int, a::policy<std::x> >::run<char>", 60, 40), span("Backend", "", 110, 80), span("ExecuteCompiler", "", 0, 200),
                span("InstantiateClass", "a::all<a::policy<int>, 3>", 56, 1), span("InstantiateFunction", "a::policy<int>::deep::f", 58, 1)]

    def test_each_moment_belongs_to_one_part_of_each_kind(self):
        for newer in (False, True):
            sums, total, policies, _ = parts.charged(self.events(newer), ["/include"], "a::all")
            self.assertEqual(total, 200)
            for kind in parts.KINDS:
                self.assertEqual(sum(own for (k, _), (own, *_) in sums.items() if k == kind), 120)  # without the machine code
            self.assertEqual(sums["header", "a/a.hpp"], [30, 50, 0])
            self.assertEqual(sums["header", "b/b.hpp"], [60, 60, 2])  # its text, the template that it defines, and one that this needs, whose header is not told
            self.assertEqual(sums["library", "a"], [32, 52, 2])
            self.assertEqual(sums["template", "b::dear"], [30, 40, 1])
            self.assertEqual(sums["template", "std::helper"], [10, 10, 1])
            self.assertEqual(sums["library", "std"], [10, 10, 1])
            self.assertEqual(sums["policy", "a::policy"][2], 1)
            self.assertEqual(policies, {"a::policy", "3"})

    def test_names(self):
        for name, template, has_arguments in (
                ("std::__cxx11::basic_string<char>::append", "std::basic_string", True), ("(anonymous namespace)::a<1>", "a", True), ("{anonymous}::a<1>", "a", True),
                ("std::operator<< <std::char_traits<char> >", "std::operator", False), ("a::f(b<int>)::(anonymous class)::operator()<int>", "a::f", False),
                ("vtable for a::b<int>", "a::b", True), ("VTT for a::b", "a::b", False), ("guard variable for f()::x", "f", False), ("tcphdr::<unnamed union>", "tcphdr::<unnamed union>", False),
                ("a::b", "a::b", False), ("", "", False)):
            self.assertEqual(parts.template_in(name), (template, has_arguments), name)
        for path, name, library in (("/usr/include/c++/12/bits/x.h", "bits/x.h", "std"), ("/usr/include/sys/x.h", "sys/x.h", "the system"), ("/usr/include/x.h", "x.h", "the system"),
                                    ("/usr/include/boost/hana.hpp", "boost/hana.hpp", "boost::hana"), ("/usr/include/boost/hana/x.hpp", "boost/hana/x.hpp", "boost::hana"),
                                    ("/usr/include/capnp/x.h", "capnp/x.h", "capnp"), ("/of/mine/x.hpp", "x.hpp", "the program")):
            self.assertEqual(parts.name_and_library(path, ["/usr/include/c++/12", "/usr/include"]), (name, library))
        self.assertEqual(parts.library_of("boost::hana::detail::x"), "boost::hana")
        self.assertEqual(parts.library_of("main"), "the program")
        self.assertEqual(parts.arguments("a<b<c, d>, e::f, 3>::g<h>"), ["b", "e::f", "3"])

    def test_a_trace_is_read_in_blocks(self):
        events = self.events(False)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write('{"traceEvents":[' + ",".join(json.dumps({"pid": 1, **e}, separators=(",", ":")) for e in events) + '],"beginningOfTime":1}')
            file.flush()
            for block in (7, 100, 1 << 24):
                self.assertEqual([{"pid": 1, **e} for e in events if e["name"] == "InstantiateClass"], list(compilers.events(file.name, ("InstantiateClass",), block)))


if __name__ == "__main__":
    Measure.compiler = sys.argv.pop(1)
    unittest.main()
