"""Python imports this when a process of an external trainer begins: once the trainer has NVIDIA FLARE's client, its models come by tensorpull. The job process puts this folder first.

It does nothing in other processes, and then imports the `sitecustomize` that it has hidden.
"""

import importlib.machinery
import importlib.util
import os
import sys

_CLIENT = "nvflare.client.cell.api"


class _Finder:
    """Finds FLARE's client as everybody does, and joins in when it has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != _CLIENT:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run is not None:
            spec.loader.exec_module = lambda module: (run(module), _join())
        return spec


def _join():
    try:
        from tensorpull.nvflare import _trainer

        _trainer.join()
    except Exception as e:  # noqa: BLE001: an installation that is broken is as good as none
        if os.environ.get("NVFLARE_TENSORPULL_KEYS"):  # but for a site that takes signed models alone
            raise
        import logging

        logging.getLogger("tensorpull").warning(f"tensorpull: models travel by FLARE's chunks in this trainer: {type(e).__name__}: {e}")


def _hidden():
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or os.getcwd()) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TENSORPULL_NVFLARE_TRAINER") and os.environ.get("NVFLARE_CLIENT_API_BOOTSTRAP"):
    sys.meta_path.insert(0, _Finder())
_hidden()
