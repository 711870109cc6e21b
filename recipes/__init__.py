"""Recipes: one YAML a run."""
