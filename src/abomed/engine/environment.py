"""What a run was computed with: versions, device, cores, and the commit of abomed itself."""

import os
import platform
import subprocess
from pathlib import Path

import torch

import abomed

_GIT_SECONDS = 10


def describe_environment(device: torch.device | str = "cpu") -> dict[str, str | int | None]:
    """Everything that may change the bits of a result, as JSON values. The host's name is not among them."""
    device = torch.device(device)
    return {
        "abomed": abomed.__version__,
        "commit": find_commit(Path(abomed.__file__)),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "platform": platform.platform(),
        "device": device.type,
        "device_name": _device_name(device),
        "cores": _cores(),
        "threads": torch.get_num_threads(),
    }


def find_commit(module: Path) -> str | None:
    """The commit that `module` belongs to, `-dirty` with uncommitted changes; None outside version control.

    An installed package may lie inside somebody's repository (a `.venv` there): only a file that git tracks
    belongs to the commit.
    """
    if _git(module, "ls-files", "--error-unmatch", "--", module.name) is None:
        return None
    return _git(module, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(module: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=module.parent,
            # Reading must not refresh the index under a commit that runs at the same time.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> int:
    # A container may own fewer cores than the machine has; macOS and Windows cannot tell.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
