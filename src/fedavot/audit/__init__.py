"""Audit a federation from its participation log: what it optimises, what it could, what to do.

    read_log  ->  federation_of  ->  audit  ->  write_audit

`fedavot audit` on the command line does the same.
"""

from fedavot._extras import require

require("audit", "polars", "matplotlib", by="fedavot.audit")

from fedavot.audit.auditing import audit  # noqa: E402
from fedavot.audit.federation import Federation  # noqa: E402
from fedavot.audit.findings import Findings  # noqa: E402
from fedavot.audit.outputs import write_audit  # noqa: E402
from fedavot.audit.participation import Participation  # noqa: E402
from fedavot.audit.reading import read_log  # noqa: E402
from fedavot.audit.sample import write_sample  # noqa: E402
from fedavot.audit.wanted import federation_of  # noqa: E402

__all__ = [
    "Federation",
    "Findings",
    "Participation",
    "audit",
    "federation_of",
    "read_log",
    "write_audit",
    "write_sample",
]
