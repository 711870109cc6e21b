"""Scores -> report.json, report.html and figures. No torch or transformers; matplotlib only to draw."""

from ..errors import RopewalkError as RopewalkError  # parent-relative on purpose: a bare `import report` must fail
from .build import build_report
from .schema import Report, ReportNotes

__all__ = ["Report", "ReportNotes", "build_report"]
