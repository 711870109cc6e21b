"""Scores -> report.json, report.html and figures. Imports neither torch nor transformers."""

from ..errors import RopewalkError as RopewalkError  # parent-relative on purpose: a bare `import report` must fail
