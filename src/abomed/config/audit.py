"""Settings of the audit."""

from abomed.config.base import Settings


class AuditSettings(Settings):
    """What the audit looks for."""
