"""Recipes: one YAML a run."""

from ..errors import RopewalkError as RopewalkError  # parent-relative on purpose: a bare `import recipes` must fail
