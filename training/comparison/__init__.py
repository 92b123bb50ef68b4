"""Comparing methods: the same tasks, seeds and budget, a run each.

plan: what is compared, checked before the first rollout
exact: seeds that were solved, compared by an exact test, and how many it takes to see a difference
results: the results of each method, read from the run folders
report: tables in the terminal and in compare.md, all numbers in compare.json, a picture in compare.png
"""
