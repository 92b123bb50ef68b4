"""Recipes of environments: TOML files whose keys are fields of `TrainConfig`. Methods have theirs in `METHODS`.

household.toml: chores in small houses, from a warmed-up policy
math-python.toml: sums with a Python tool, from the tiny policy; the default
search.toml: questions about an invented world, from a warmed-up policy
"""
