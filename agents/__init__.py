"""Who acts: policies, rollouts and evaluation.

- `trajectory`: rollouts as trees: turns, leaves and branches; one step of an environment
- `policy`: a model with LoRA weights; `models` finds and checks what it is made of
- `engine`: what every engine offers; `engines` holds them
- `chat`: conversations as tokens
- `rollout`: paths and trees that a policy grows in copies of an environment
- `players`: episodes of experts, scripts and of who sits at the terminal
- `endpoint`: a model behind a URL
- `evaluation`: a policy or player on an environment, scores and their statistics
- `journal`: trees on disk, replay, checkpoints
- `warmup`: learning from demonstrations
- `check`: the contract of environments, and what works on this machine
- `cli`: the commands that do not train
"""

import os

# Without it MKL picks, on some processors, another order of summation for another number of rows, and a rollout would
# depend on what else is in flight. It is read at the process's first matrix product; what is set already stays.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
