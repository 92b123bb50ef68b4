"""Who acts: policies, rollouts and evaluation.

eval_command: `turngym eval`, and suites by name
commands: `turngym play | check | replay | warmup | envs | doctor | serve-search`
terminal: the console of the commands, mistakes in one line, what is shown of long work, and signals
settings: options that several commands share; repeated_options: those that stand twice on a command line
endpoint/: a model behind a URL
engine: what every engine offers and what they share; engines/ holds them
policy: a model with LoRA weights
source: where a policy comes from, GGUF files too, and the settings that fit it; memory: what its model needs
model_folder: the files of a model, found and checked before anything is loaded
architecture: which models are evaluated and trained, by family and by what their config says
chat/: conversations as tokens
rollout/: paths and trees that a policy grows in copies of an environment
trajectory: trees, turns, leaves and branches; one step of an environment
players: episodes of experts and scripts, without a policy, and of who sits at the terminal
journal: trees on disk, incidents, and writes that survive a crash
replay: the episodes of a journal played again
evaluate: a policy or player on an environment; episodes: its folder and its result, also for other programs
scores: avg@k, pass@k, pass^k and maj@k with intervals
votes: which answers of a task's samples are the same
significance: means with intervals, tests of differences, and how many seeds it takes to see one
checkpoint: checkpoints that are complete or absent
warmup/: learning from demonstrations, of new small policies and of LoRA weights
check/: the contract of environments; pytest_plugin: its clauses as tests
doctor: what works on this machine
"""

import os

# Without it MKL picks, on some processors, another order of summation for another number of rows, and a rollout would
# depend on what else is in flight. It is read at the process's first matrix product; what is set already stays.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
