"""What to know about a data set before trusting a result on it: counts, copies, groups, shortcuts, fits."""

from abomed.audit.report import Audit, audit
from abomed.audit.section import Section, Table, Weighed

__all__ = ["Audit", "Section", "Table", "Weighed", "audit"]
