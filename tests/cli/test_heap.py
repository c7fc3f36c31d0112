"""Freed memory is kept: the second use of a large block takes no new pages from the system."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from abomed.cli.heap import keep_freed_memory

def pages() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

told = keep_freed_memory() if sys.argv[1] == "keep" else False
for _ in range(2):
    before = pages()
    block = bytearray(100_000_000)
    for place in range(0, len(block), 4096):
        block[place] = 1
    del block
print(int(told), pages() - before)
"""
GLIBC = sys.platform.startswith("linux") and "CS_GNU_LIBC_VERSION" in os.confstr_names


def second_use(argument: str, **environment: str) -> tuple[bool, int]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, argument],
        capture_output=True, text=True, check=True, env={**inherited, **environment},
    )  # fmt: skip
    told, faults = map(int, done.stdout.split())
    return bool(told), faults


@pytest.mark.skipif(not GLIBC, reason="needs glibc")
def test_a_freed_block_is_used_again() -> None:
    told, faults = second_use("keep")
    untold, fresh = second_use("leave")
    assert told
    assert not untold
    assert fresh > 20_000, "100 MB in pages of 4 kB, unless the system hands out large ones"
    assert faults < 1000


def test_who_has_decided_is_left_alone() -> None:
    assert second_use("keep", MALLOC_ARENA_MAX="2")[0] is False
