"""The Conan 2 recipe: `conan create cmake/conan`, from the root of the source tree. Boost and, for messages, Cap'n Proto are the system's."""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.system.package_manager import Apt

required_conan_version = ">=2.0"


class Tensorpull(ConanFile):
    name = "tensorpull"
    version = "0.1.0"
    description = "Moves a model's tensors by pull, one chunk at a time"
    license = "Apache-2.0"
    topics = ("federated-learning", "tensors", "header-only")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"messages": [True, False]}
    default_options = {"messages": False}
    no_copy_source = True

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "README.md", "cmake/*.cmake", "cmake/*.in", "cmake/README.md", "include/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        packages = ["libboost-dev"] + (["capnproto", "libcapnp-dev"] if self.options.messages else [])
        Apt(self).install(packages, check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        components = ["freestanding", "tensorpull", "testing"] + (["capnp", "messages"] if self.options.messages else [])
        toolchain.cache_variables["TENSORPULL_COMPONENTS"] = ";".join(components)
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_id(self):
        self.info.settings.clear()

    def package_info(self):
        # find_package finds the package's own files, with its components
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/tensorpull"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
