"""The contract of environments, and what works on this machine.

- `clauses`: the list of clauses, and how they are run; Gymnasium's check, golds, seeds, processes, generators, threads
- `episodes`: the episodes that a check plays
- `steps`: what `reset` and `step` give; tasks by their index, and splits
- `copies`: forks, snapshots, journals, vector environments
- `canary`: golds are seen nowhere
- `search`: the program that looks for a canary in its own process
- `pytest_plugin`: the clauses as tests of other packages
- `machine`: what works on this machine, for `turngym doctor`
"""
