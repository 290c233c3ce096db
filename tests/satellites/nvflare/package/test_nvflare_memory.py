"""The component that keeps the memory of FLARE's server flat."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("nvflare", reason="optional: nvflare is not installed")

import tensorpull.nvflare  # noqa: E402


def run(program: str) -> str:
    """What it prints, in a process of its own: what the component does is for a whole process."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAD = """
    import ctypes, gc, weakref
    from nvflare.apis.event_type import EventType
    from nvflare.app_common.app_event_type import AppEventType
    from tensorpull.nvflare import Memory

    class Counts(ctypes.Structure):
        _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Counts
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

    def own_pages(size):
        '''Whether a block has pages of its own, after one of 24 MiB was freed.'''
        libc.free(libc.malloc(24 << 20))
        before = libc.mallinfo2().hblkhd
        block = libc.malloc(size)
        after = libc.mallinfo2().hblkhd
        libc.free(block)
        return after - before >= size

    class Model:
        '''One that is in a cycle, as FLARE's tasks are.'''
        def __init__(self):
            self.task = self

    def old():
        '''One that only a collection of the oldest generation finds, once nobody refers to it.'''
        model = Model()
        gc.collect(1), gc.collect(1)
        return weakref.ref(model), model
"""


def test_blocks_that_are_freed_go_back_to_the_system():
    said = run("""
        memory = Memory()
        memory.handle_event(EventType.START_RUN, None)
        print(own_pages(4 << 20), own_pages(1 << 20), own_pages(100_000))
        memory.handle_event(AppEventType.ROUND_STARTED, None)
        print(own_pages(4 << 20))
    """)
    assert said.split() == ["True", "True", "False", "True"]


def test_a_malloc_is_left_as_it_is_on_request():
    assert run("Memory(own_pages=0).handle_event(EventType.START_RUN, None); print(own_pages(4 << 20))").split() == ["False"]


def test_cycles_of_each_round_are_collected():
    said = run("""
        gc.disable()
        memory = Memory()
        memory.handle_event(EventType.START_RUN, None)
        frozen = gc.get_freeze_count()
        seen = []
        for event in (AppEventType.ROUND_STARTED, AppEventType.ROUND_STARTED, AppEventType.AFTER_LEARNABLE_PERSIST, EventType.BEFORE_TASK_EXECUTION):
            where, model = old()
            del model
            seen.append(where() is not None)
            memory.handle_event(event, None)
            seen.append(where() is None)
        print(all(seen), frozen > 10_000, gc.get_freeze_count() == frozen)
    """)
    assert said.split() == ["True", "True", "True"]


def test_an_update_that_was_processed_is_let_go():
    """FLARE has it in the context of the submission, which the workflow keeps, and in that of the site."""
    said = run("""
        from nvflare.apis.fl_constant import FLContextKey
        from nvflare.apis.fl_context import FLContext
        from nvflare.apis.shareable import Shareable

        gc.disable()

        class Update(Shareable):
            pass

        def submitted():
            update = Update()
            context, site = FLContext(), FLContext()
            site.set_prop(FLContextKey.SHAREABLE, update, private=True, sticky=True)
            context.set_peer_context(site)
            context.set_prop(FLContextKey.TASK_RESULT, update, private=True, sticky=False)
            return context, weakref.ref(update)

        memory, seen = Memory(), []
        for component, event in ((memory, EventType.BEFORE_PROCESS_SUBMISSION), (Memory(collect=False), EventType.AFTER_PROCESS_SUBMISSION), (memory, EventType.AFTER_PROCESS_SUBMISSION)):
            context, there = submitted()
            component.handle_event(event, context)
            seen.append(there() is None)
        memory.handle_event(EventType.AFTER_PROCESS_SUBMISSION, FLContext())  # nothing was submitted
        print(*seen)
    """)
    assert said.split() == ["False", "False", "True"]


def test_nothing_is_collected_on_request_or_by_other_events():
    said = run("""
        gc.disable()
        where, model = old()
        del model
        quiet = Memory(collect=False)
        for event in (EventType.START_RUN, AppEventType.ROUND_STARTED):
            quiet.handle_event(event, None)
        Memory().handle_event(EventType.END_RUN, None)
        print(where() is not None, gc.get_freeze_count())
    """)
    assert said.split() == ["True", "0"]


def test_the_report_shows_what_it_says():
    program = pathlib.Path(__file__).resolve().parents[4] / "examples/jobs/nvflare/upstream.py"
    done = subprocess.run([sys.executable, program, "--rounds", "3"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    alive = [int(n) for n in re.findall(r"(\d+) models alive", done.stdout)]
    assert alive == [1, 2, 3, 1, 1, 1], "FLARE frees a task that is done; say so in upstream.md"
    resident = [int(n) for n in re.findall(r"(\d+) MiB resident when", done.stdout)]
    assert min(resident[:3]) > max(resident[3:]) + 20, resident


def test_what_passes_is_not_changed():
    thing = object()
    assert tensorpull.nvflare.Memory().process(thing, None) is thing


@pytest.mark.parametrize(("wrong", "error"), [({"own_pages": -1}, ValueError), ({"own_pages": 1 << 30}, ValueError), ({"own_pages": True}, ValueError), ({"own_pages": 0.5}, ValueError), ({"collect": 1}, TypeError)])
def test_arguments_that_are_none(wrong, error):
    with pytest.raises(error):
        tensorpull.nvflare.Memory(**wrong)


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="Memmory"):
        tensorpull.nvflare.Memmory  # noqa: B018


@pytest.mark.parametrize("how", ["recipe", "job"])
def test_a_job_has_it_as_a_component_of_its_server(how, tmp_path):
    from nvflare.job_config.api import FedJob

    if how == "recipe":
        from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

        pytest.importorskip("torch", reason="optional: torch is not installed")
        (tmp_path / "client.py").write_text("")
        model = {"class_path": "torch.nn.Linear", "args": {"in_features": 2, "out_features": 2}}  # of an object FLARE reads all of torch
        recipe = FedAvgRecipe(name="job", min_clients=1, num_rounds=1, model=model, train_script=str(tmp_path / "client.py"))
        recipe.add_server_output_filter(tensorpull.nvflare.Memory(own_pages=2 << 20))
        recipe._job.export_job(str(tmp_path / "out"))
    else:
        from nvflare.app_common.workflows.fedavg import FedAvg

        job = FedJob("job")
        job.to_server(FedAvg(num_clients=1, num_rounds=1))
        job.to_server(tensorpull.nvflare.Memory(own_pages=2 << 20))
        job.export_job(str(tmp_path / "out"))
    text = "".join(path.read_text() for path in tmp_path.rglob("config_fed_server.*"))
    assert "tensorpull.nvflare.memory.Memory" in text and "2097152" in text, text
