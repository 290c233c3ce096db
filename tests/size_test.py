#!/usr/bin/env python3
"""The gate of bench/size notices what it is there for, and names it; and the stack is followed along every kind of call."""

import copy
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench" / "size"))
import gate
import report as reporting
import stack

ROW = {"row": "recipient", "title": "recipient, lands in memory", "main": True, "optimisation": "-Os", "library": 5000, "ram": 500, "stack": 600, "painted": 590,
       "painted_bound": 600, "stack_notes": [], "parts": {"framing": 1000, "line": 700, "recipient": 3300}, "headers": {"embedded/recipient.hpp": 3300},
       "symbols": ["pipeline", "_ZN10tensorpull18embedded_recipientE"], "included": ["/usr/include/span", "include/tensorpull/embedded/recipient.hpp"]}
BOUNDS = {"compiler": "12.2.1", "tolerance": {"percent": 2, "bytes": 64}, "rows": {"recipient": {
    "library": {"at_most": 8192, "measured": 5000}, "ram": {"at_most": 1024, "measured": 500}, "stack": {"at_most": 1024, "measured": 600}, "parts": dict(ROW["parts"])}}}


def report(version="12.2.1", **changed):
    return {"version": version, "rows": [{**copy.deepcopy(ROW), **changed}]}


class Gate(unittest.TestCase):
    def test_what_was_measured_is_well(self):
        self.assertEqual(gate.judge(report(), BOUNDS), [])

    def test_growth_within_the_tolerance_is_well(self):
        self.assertEqual(gate.judge(report(library=5100), BOUNDS), [])

    def test_growth_names_the_row_the_part_and_by_how_much(self):
        wrong = gate.judge(report(library=5180, parts={"framing": 1200, "line": 700, "recipient": 3280}), BOUNDS)
        self.assertEqual(wrong, ["recipient, lands in memory: text of the library grew by 180 bytes, from 5,000 to 5,180, above the tolerance of 100; "
                                 "framing grew most, by 200 bytes."])

    def test_the_bound_holds_with_another_compiler_and_growth_does_not(self):
        self.assertEqual(gate.judge(report("14.2.0", library=5180), BOUNDS), [])
        self.assertEqual(gate.judge(report("14.2.0", library=9000, parts={"recipient": 7300}), BOUNDS),
                         ["recipient, lands in memory: text of the library is 9,000 bytes, above the bound of 8,192; recipient grew most, by 4,000 bytes."])

    def test_ram_and_stack_are_held(self):
        self.assertIn("static RAM beyond the model and one chunk is 1,100 bytes, above the bound of 1,024", gate.judge(report(ram=1100), BOUNDS)[0])
        self.assertIn("stack grew by 70 bytes, from 600 to 670", gate.judge(report(stack=670), BOUNDS)[0])

    def test_more_paint_is_gone_than_the_calls_can_use(self):
        self.assertIn("used 700 bytes of stack, above the 600", gate.judge(report(painted=700), BOUNDS)[0])

    def test_a_stack_without_a_bound_is_told(self):
        self.assertIn("has no bound, since there is recursion: a calls a", gate.judge(report(stack_notes=["recursion: a calls a"]), BOUNDS)[0])

    def test_a_row_that_is_not_measured_is_told(self):
        self.assertEqual(gate.judge({"version": "12.2.1", "rows": []}, BOUNDS), ["recipient: it was not measured."])

    def test_code_that_a_recipient_does_not_use(self):
        self.assertEqual(gate.unused_code(report()), [])
        for symbol, what in (("_ZN10tensorpull14embedded_ownerI3mlpLj512EE6answerE", "an owner"), ("malloc", "the heap"), ("_Znwj", "the heap"),
                             ("__cxa_throw", "exceptions"), ("_ZTI5thing", "types at run time"), ("_ZNSt13random_device9_M_getvalEv", "random_device"),
                             ("_ZN10tensorpull6detail14control_readerE", "lists"),
                             ("_ZN10tensorpull6detail17schema_comparison4takeE", "schema pages"), ("_ZN10tensorpull13send_messageE", "messages")):
            self.assertEqual(gate.unused_code(report(symbols=["pipeline", symbol])), [f"recipient, lands in memory: it has code for {what}: {symbol}."])
        self.assertIn("bytes are of protocol/recipient/transfer.hpp", gate.unused_code(report(headers={"protocol/recipient/transfer.hpp": 8}))[0])
        self.assertIn("bytes are of the part endpoint", gate.unused_code(report(parts={"endpoint": 8}))[0])
        self.assertIn("it includes /usr/include/thread", gate.unused_code(report(included=["/usr/include/thread", *ROW["included"]]))[0])
        self.assertIn("does not know what it includes", gate.unused_code(report(included=[]))[0])

    def test_the_readme_is_compared(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "README.md"
            page.write_text("\n".join(reporting.readme(report())))
            self.assertEqual(gate.stale(report(), BOUNDS, page), [])
            self.assertIn("says 5,000 for 'recipient, lands in memory' where 5,300 was measured", gate.stale(report(library=5300), BOUNDS, page)[0])
            page.write_text("")
            self.assertIn("has no row", gate.stale(report(), BOUNDS, page)[0])


class Calls(unittest.TestCase):
    def graph(self, **functions):
        found = stack.Graph.__new__(stack.Graph)
        found.leaf, found.taken, found.differing = "board", ["pointed"], []
        found.functions = {name: stack.Function(name, **fields) for name, fields in functions.items()}
        return found

    def test_the_deepest_path(self):
        deepest = self.graph(a=dict(frame=8, calls={"b", "c"}), b=dict(frame=16), c=dict(frame=8, calls={"d"}), d=dict(frame=24)).deepest("a")
        self.assertEqual((deepest.bytes, deepest.path, deepest.notes), (40, [("a", 8), ("c", 8), ("d", 24)], []))

    def test_what_the_disassembly_tells(self):
        text = """
00000100 <spread>:
 100:	sub	sp, #8
 102:	push	{r4, r5, lr}
 104:	sub	sp, #12
 106:	bl	00000120 <falls>
 108:	pop	{r4, r5, pc}
 10a:	nop

00000120 <falls>:
 120:	eor.w	r3, r3, #1
 122:	nop

00000124 <behind>:
 124:	push	{r4, r5, lr}
 126:	sub	sp, #8
 128:	ldmia.w	sp!, {r4, r5, pc}
"""
        held, stack.run = stack.run, lambda *command: text
        try:
            functions, _ = stack.disassembled(type("Firmware", (), {"path": ""}))
        finally:
            stack.run = held
        self.assertEqual({f.name: (f.frame, f.untold, f.falls) for f in functions.values()}, {"spread": (32, 8, None), "falls": (0, 0, "behind"), "behind": (20, 0, None)})

    def test_arguments_that_the_compiler_does_not_tell_and_a_function_that_goes_on_in_the_next_count(self):
        self.assertEqual(self.graph(a=dict(frame=40, told=32, untold=8)).deepest("a").bytes, 40)
        self.assertEqual(self.graph(a=dict(frame=8, falls="b"), b=dict(frame=16)).deepest("a").bytes, 16)
        self.assertEqual(self.graph(a=dict(frame=8, told=8, falls="b"), b=dict(frame=16)).deepest("a").bytes, 8, "behind a call that does not return")

    def test_what_the_compiler_tells_counts(self):
        self.assertEqual(self.graph(a=dict(frame=8, told=32)).deepest("a").bytes, 32)

    def test_a_jump_at_the_end_has_no_frame_below_it_and_a_cold_part_has(self):
        self.assertEqual(self.graph(a=dict(frame=8, jumps={"b"}), b=dict(frame=16)).deepest("a").bytes, 16)
        self.assertEqual(self.graph(**{"a": dict(frame=8, jumps={"a.cold"}), "a.cold": dict(frame=16)}).deepest("a").bytes, 24)

    def test_recursion_is_told(self):
        self.assertEqual(self.graph(a=dict(frame=8, calls={"b"}), b=dict(frame=16, calls={"a"})).deepest("a").notes, ["recursion: a calls b calls a"])

    def test_a_call_through_a_pointer_is_followed_and_told(self):
        deepest = self.graph(a=dict(frame=8, pointers=1), pointed=dict(frame=100)).deepest("a")
        self.assertEqual((deepest.bytes, deepest.notes), (108, ["a calls through a pointer: any of pointed"]))

    def test_a_frame_of_unknown_size_and_a_function_that_is_not_there_are_told(self):
        notes = self.graph(a=dict(frame=8, dynamic=True, calls={"gone"})).deepest("a").notes
        self.assertEqual(notes, ["gone is called and is not in the firmware", "the frame of a is computed at run time"])


if __name__ == "__main__":
    unittest.main()
