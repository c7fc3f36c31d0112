"""Every error a user can meet, in one hierarchy, with one voice.

A message answers four questions: what is wrong, where, what was found, what would be right. The command
line prints it without a traceback and ends with the class's exit code; a library user catches the class.
"""


class AbomedError(Exception):
    """Base of everything abomed raises on purpose."""

    exit_code = 1

    def __init__(
        self, what: str, *, where: str | None = None, found: str | None = None, right: str | None = None
    ) -> None:
        self.what, self.where, self.found, self.right = what, where, found, right
        parts = {"where": where, "found": found, "right": right}
        lines = [what, *(f"  {name}: {text}" for name, text in parts.items() if text is not None)]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments are lost by Exception's own pickling, and worker processes raise these.
        return _rebuild, (type(self), self.what, self.where, self.found, self.right)


def _rebuild(
    kind: type[AbomedError], what: str, where: str | None, found: str | None, right: str | None
) -> AbomedError:
    return kind(what, where=where, found=found, right=right)


class ConfigError(AbomedError):
    """A setting, flag or configuration file that cannot be used."""

    exit_code = 2


class MissingExtraError(ConfigError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str, module: str) -> None:
        super().__init__(
            f"{feature} needs the optional dependency '{module}'",
            found=f"'{module}' is not installed",
            right=f'pip install "abomed[{extra}]"',
        )
        self.feature, self.extra, self.module = feature, extra, module

    def __reduce__(self) -> tuple[object, ...]:
        return MissingExtraError, (self.feature, self.extra, self.module)


class DataError(AbomedError):
    """Images, labels, groups, packs or archives that cannot be used as they are."""

    exit_code = 3


class CheckpointError(AbomedError):
    """A run folder or weights file that cannot be read, written or resumed."""

    exit_code = 3


class NumericalError(AbomedError):
    """A computation that left the finite numbers or did not converge."""

    exit_code = 4
