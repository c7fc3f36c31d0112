"""Memory that was freed is kept for the next allocation, where the C library is glibc.

Decisions a reader would question:

- glibc takes every block of more than 32 MB from the system, gives it back when it is freed, and takes it anew a
  moment later; the system clears it page by page, at 1 µs each. A meta-iteration on a processor does so with every
  map of activations: half of its processor time went there (docs/LOG.md). Kept, the process holds about a quarter
  more memory at its peak, and gives it back when it ends.
- A command owns its process, so this is a matter of the command line. Imported as a library abomed leaves the
  allocator as it finds it; `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184` in the environment does the same.
- Who has set one of glibc's `MALLOC_…` variables or another allocator has decided, and is left alone.
"""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of parameters in glibc's malloc.h
_NEVER = -1


def keep_freed_memory() -> bool:
    """Tell the allocator to keep what is freed; whether it was told."""
    decided = any(
        name.startswith("MALLOC_") or name in ("GLIBC_TUNABLES", "LD_PRELOAD") for name in os.environ
    )
    if decided or not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(_MMAP_MAX, 0)) and bool(library.mallopt(_TRIM_THRESHOLD, _NEVER))
