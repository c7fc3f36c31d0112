"""`abomed doctor`: what is installed, on which devices it would compute, and what is missing.

- What belongs to abomed and to its extras is written here: the metadata of a development install lag behind the
  sources until it is installed again.
- Packages are imported, not only looked up: the usual fault is one that is installed and does not load.
- A missing extra is no fault. The one thing nothing works without is PyTorch: only then is the exit code 1.
- Nothing is fetched, and no folder is searched.
"""

import importlib
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from abomed import __version__
from abomed.cli import console
from abomed.cli.packages import CORE, EXTRAS
from abomed.config.models import BACKBONES
from abomed.config.run import PRESETS
from abomed.errors import AbomedError
from abomed.types import Finding, Level

TOOLS = frozenset({"docs", "dev"})  # programs of their own, which abomed never loads
MODULES = {"pillow": "PIL", "scikit-learn": "sklearn"}  # where the module has another name
DATA = (
    "data: commands read the files and folders that they are given; no folder is searched for data sets\n"
    "      (abomed data list: the sets known by name)"
)
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
_OTHER_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


@dataclass(frozen=True)
class Package:
    """One distribution: its version where it is installed, and why it does not load where it does not."""

    name: str
    version: str | None
    fault: str | None = None

    @property
    def works(self) -> bool:
        return self.version is not None and self.fault is None

    @property
    def state(self) -> str:
        if self.version is None:
            return "not installed"
        return self.version if self.fault is None else f"{self.version}, but does not load: {self.fault}"


@dataclass(frozen=True)
class Extra:
    """An optional part of abomed and the packages it stands on."""

    name: str
    brings: str
    packages: tuple[Package, ...]

    @property
    def works(self) -> bool:
        return all(package.works for package in self.packages)

    @property
    def names(self) -> str:
        return ", ".join(package.name for package in self.packages)

    @property
    def command(self) -> str:
        return f'pip install "abomed[{self.name}]"'

    @property
    def state(self) -> str:
        """`installed`, what does not load, or how to install it."""
        if self.works:
            return "installed"
        broken = [f"{package.name} {package.state}" for package in self.packages if package.fault is not None]
        return "; ".join(broken) or self.command


@dataclass(frozen=True)
class Device:
    """Something to compute on."""

    name: str  # as --device takes it
    model: str
    remark: str
    memory_bytes: int | None = None
    free_bytes: int | None = None
    bf16: bool | None = None  # None: not used there


def doctor(*, json: bool = False) -> int:
    """What is installed, on which devices abomed would compute, and what is missing.

    Parameters
    ----------
    json
        Print one JSON text instead of tables.
    """
    torch_fault = _import_fault("torch")
    core, extras = tuple(map(examine, CORE)), list_extras()
    devices = list_devices() if torch_fault is None else ()
    methods = _list_methods()
    findings = (*_faults(core), *_advise_allocator(devices))
    if json:
        console.print_json(_to_json(core, extras, devices, methods, findings))
    else:
        _print(core, extras, devices, methods)
        console.print_findings(findings)
    return 0 if torch_fault is None else AbomedError.exit_code


def list_extras() -> tuple[Extra, ...]:
    """The optional parts of abomed."""
    return tuple(
        Extra(name, brings, tuple(examine(package, load=name not in TOOLS) for package in packages))
        for name, (brings, packages) in EXTRAS.items()
    )


def examine(name: str, *, load: bool = True) -> Package:
    """Look at one distribution, and load it."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return Package(name, None)
    return Package(name, found, _import_fault(MODULES.get(name, name)) if load else None)


def list_devices() -> tuple[Device, ...]:
    """The processor, and every graphics processor that PyTorch can use."""
    import torch

    from abomed.engine.environment import describe_environment

    about = describe_environment("cpu")
    devices = [
        Device("cpu", str(about["device_name"]), f"{about['cores']} cores, {about['threads']} threads")
    ]
    if torch.cuda.is_available():
        devices += [_examine_cuda(number) for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append(Device("mps", "Apple GPU", "memory shared with the processor"))
    return tuple(devices)


def _examine_cuda(number: int) -> Device:
    import torch

    name = f"cuda:{number}"
    try:
        traits = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
    except RuntimeError as error:  # taken by another process, or a driver that does not fit
        return Device(name, "a GPU that cannot be used", _first_line(error))
    remark = f"CUDA {torch.version.cuda}, compute capability {traits.major}.{traits.minor}"
    # Compute capability 8.0 is where bfloat16 begins; PyTorch's own question is about the current device only.
    return Device(name, traits.name, remark, total, free, bf16=traits.major >= 8)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _import_fault(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever a broken installation raises is the answer
        return f"{type(error).__name__}: {_first_line(error)}"
    return None


def _list_methods() -> tuple[str, ...]:
    if _import_fault("abomed.methods.registry") is not None:  # a package it stands on is missing, and is told
        return ()
    from abomed.methods.registry import METHODS

    return tuple(METHODS)


def _faults(core: tuple[Package, ...]) -> tuple[Finding, ...]:
    return tuple(
        Finding(Level.WARN, "package", package.name, package.state, "install it again: pip install abomed")
        for package in core
        if not package.works
    )


def _advise_allocator(devices: tuple[Device, ...]) -> tuple[Finding, ...]:
    """On a processor, glibc hands freed activations back to the system and gets them again, page by page."""
    alone = len(devices) == 1
    other = any(name in os.environ.get("LD_PRELOAD", "") for name in _OTHER_ALLOCATORS)
    if not alone or other or platform.libc_ver()[0] != "glibc":
        return ()
    missing = [name for name in ALLOCATOR if name not in os.environ]
    if not missing:
        return ()
    return (
        Finding(
            Level.NOTE,
            "allocator",
            "",
            "abomed's own commands keep freed memory: training on two cores ran 1.2 to 2.7 times faster. For a "
            "program of yours that imports abomed, in the same shell, before it:\n    "
            + "\n    ".join(f"export {name}={ALLOCATOR[name]}" for name in missing),
            data={name: ALLOCATOR[name] for name in missing},
        ),
    )


def _print(
    core: tuple[Package, ...],
    extras: tuple[Extra, ...],
    devices: tuple[Device, ...],
    methods: tuple[str, ...],
) -> None:
    console.say(f"abomed {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
    console.print_table("packages", ("name", "version"), [(package.name, package.state) for package in core])
    console.say("")
    rows = [(f"{extra.name}: {extra.brings} ({extra.names})", extra.state) for extra in extras]
    console.print_table("extras", ("name", "state"), rows)
    console.say("")
    if devices:
        places = [
            (f"{device.name}: {device.model}, {device.remark}", _memory(device), _yes_or_no(device.bf16))
            for device in devices
        ]
        console.print_table("devices", ("name", "memory (free)", "bf16"), places)
        console.say("")
    console.say(f"backbones: {', '.join(BACKBONES)}, and timm:NAME with the extra [pretrained]")
    console.say(f"methods: {', '.join(methods) or 'not known while a package is missing'}")
    console.say(f"presets: {', '.join(PRESETS)}")
    console.say(DATA)


def _memory(device: Device) -> str:
    if device.memory_bytes is None or device.free_bytes is None:
        return "-"
    return f"{device.memory_bytes / 2**30:.1f} ({device.free_bytes / 2**30:.1f}) GiB"


def _yes_or_no(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _to_json(
    core: tuple[Package, ...],
    extras: tuple[Extra, ...],
    devices: tuple[Device, ...],
    methods: tuple[str, ...],
    findings: tuple[Finding, ...],
) -> dict[str, Any]:
    def tell(packages: tuple[Package, ...]) -> dict[str, dict[str, str | None]]:
        return {package.name: {"version": package.version, "fault": package.fault} for package in packages}

    return {
        "abomed": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": tell(core),
        "extras": {
            extra.name: {
                "brings": extra.brings,
                "packages": tell(extra.packages),
                "installed": extra.works,
                "command": extra.command,
            }
            for extra in extras
        },
        "devices": [vars(device) for device in devices],
        "backbones": list(BACKBONES),
        "methods": list(methods),
        "presets": list(PRESETS),
        "findings": [console.finding_to_json(finding) for finding in findings],
    }
