"""What pip and `build` call: scikit-build-core, and a source distribution that has the library's headers and the tools' sources with it.

In the source tree the headers lie two folders above this project, where no source distribution may take files from. So the distribution is made of a copy
in a temporary folder, which has them under library/; the tree itself is not changed.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from typing import Any, Dict, Optional

from scikit_build_core import build as core

build_wheel = core.build_wheel
build_editable = core.build_editable
prepare_metadata_for_build_wheel = core.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = core.prepare_metadata_for_build_editable
get_requires_for_build_wheel = core.get_requires_for_build_wheel
get_requires_for_build_editable = core.get_requires_for_build_editable
get_requires_for_build_sdist = core.get_requires_for_build_sdist

NOT_SOURCES = shutil.ignore_patterns("__pycache__", ".*", "build", "dist", "*.egg-info", "*.so")


def build_sdist(sdist_directory: str, config_settings: Optional[Dict[str, Any]] = None) -> str:
    project = pathlib.Path.cwd()
    tree = project.parent.parent
    if not (tree / "cmake" / "TensorpullHeaders.cmake").is_file() or (project / "library").is_dir():
        return core.build_sdist(sdist_directory, config_settings)  # this is a source distribution already
    to = os.path.abspath(sdist_directory)
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tensorpull"
        shutil.copytree(project, copy, ignore=NOT_SOURCES)
        library = copy / "library"
        shutil.copytree(tree / "include", library / "include", ignore=shutil.ignore_patterns("*.md"))
        shutil.copytree(tree / "cmake", library / "cmake", ignore=lambda _, names: [name for name in names if not name.startswith(("Tensorpull", "FindTensorpull"))])
        for name in ("facade", "tools"):
            if (tree / "examples" / name).exists():
                shutil.copytree(tree / "examples" / name, library / "examples" / name)
        shutil.copytree(tree / "examples" / "jobs" / "federated", library / "examples" / "jobs" / "federated", ignore=shutil.ignore_patterns("*.cpp"))  # they share headers
        for name in ("CMakeLists.txt", "LICENSE"):
            shutil.copy(tree / name, library / name)
        try:
            os.chdir(copy)
            return core.build_sdist(to, config_settings)
        finally:
            os.chdir(project)
