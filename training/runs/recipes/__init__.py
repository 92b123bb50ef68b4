"""Recipes of environments: TOML files whose keys are fields of `TrainConfig`. Methods have theirs in `METHODS`.

household.toml: chores in small houses, from a warmed-up policy
household-smollm2.toml: the same from SmolLM2-135M-Instruct and a short warm-up
math-python.toml: sums with a Python tool, from the tiny policy; the default
math-python-smollm2.toml: sums with a Python tool, from SmolLM2-135M-Instruct and a short warm-up
sums-smollm2.toml: sums without a tool, from SmolLM2-135M-Instruct and one worked example
search.toml: questions about an invented world, from a warmed-up policy

For GPUs, one of each joined by `+`, as in `gsm8k-python+qwen2.5-1.5b`:
gsm8k-python.toml, hotpotqa.toml, alfworld.toml: public tasks
qwen2.5-0.5b.toml, qwen2.5-1.5b.toml (24 GB), qwen2.5-7b.toml, qwen3-8b.toml (80 GB): models
"""
