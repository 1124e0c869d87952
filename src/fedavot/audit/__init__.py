"""Audit a federation from its participation log: what it optimises, what it could, what to do.

    read_log  ->  federation_of  ->  audit  ->  write_audit

`fedavot audit` on the command line does the same. Only a task of the user's own needs JAX.
"""

from fedavot._checks import require

require("audit", "polars", "matplotlib", "jinja2", by="fedavot.audit")

from fedavot.audit.auditing import ReplayOptions, audit
from fedavot.audit.federation import Federation, federation_of
from fedavot.audit.findings import Findings
from fedavot.audit.participation import Participation
from fedavot.audit.reading.log import read_log
from fedavot.audit.report.outputs import write_audit
from fedavot.audit.sample import write_sample

__all__ = [
    "Federation",
    "Findings",
    "Participation",
    "ReplayOptions",
    "audit",
    "federation_of",
    "read_log",
    "write_audit",
    "write_sample",
]
