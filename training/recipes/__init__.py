"""Recipes of environments: TOML files whose keys are fields of `TrainConfig`. Methods have theirs in `METHODS`.

household.toml: chores in small houses, from a warmed-up policy
math-python.toml: sums with a Python tool, from the tiny policy; the default
sums-smollm2.toml: sums without a tool, from SmolLM2-135M-Instruct and one worked example
search.toml: questions about an invented world, from a warmed-up policy
"""
