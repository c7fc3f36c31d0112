"""Asking before something leaves or enters the machine."""

import sys

from abomed.errors import ConfigError


def confirm(notice: str, yes: bool) -> None:
    """Show a notice and go on only with consent; without a terminal there is nobody to ask."""
    sys.stderr.write(notice + "\n")
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "the licence was not accepted", found="no terminal to ask at", right="read it, then give --yes"
        )
    sys.stderr.write("download? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("the licence was not accepted", right="answer y, or give --yes")
