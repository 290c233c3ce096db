#!/usr/bin/env python3
"""Firmware with the single header has the text, data and bss of firmware with the folder of headers. usage: same_size.py HEADER FOLDER

Compiles the pipeline `resuming` of bench/size both ways; with the single header nothing of include/ is in sight. Status: 0 equal, 1 not.
"""

import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "size"))
import elf
import report


def sizes(include, folder):
    row = next(r for r in report.ROWS if r.key == "resuming")
    program = report.Builder(folder, include).firmware(row, "-Os", host=False)[0]
    return {name: program.size(name) for name in (*elf.IN_FLASH, ".data", ".bss")}


def main():
    header, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    many = sizes(ROOT / "include", folder / "many")
    alone, sources = folder / "include", folder / "firmware"
    for place in (alone, sources):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    shutil.copy(header, alone)
    for file in report.FIRMWARE.iterdir():
        (sources / file.name).write_text(re.sub(r"#include <tensorpull/.*>", "#include <tensorpull_embedded.hpp>", file.read_text()))
    report.FIRMWARE = sources
    one = sizes(alone, folder / "one")
    for name in many:
        if many[name] != one[name]:
            print(f"{name}: {many[name]:,} bytes with the folder of headers, {one[name]:,} with the single header")
    return 0 if one == many else 1


if __name__ == "__main__":
    sys.exit(main())
