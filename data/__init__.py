"""Sources -> documents -> windows with document bounds -> batches; position plans."""

from ..errors import DataError as DataError  # parent-relative on purpose: a bare `import data` must fail
