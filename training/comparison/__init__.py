"""Comparing methods: the same tasks, seeds and budget, a run each.

plan: what is compared, checked before the first rollout
results: the results of each method, read from the run folders
report: the files compare.md and compare.json, and the tables of the terminal
picture: the file compare.png
"""
