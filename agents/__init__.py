"""Who acts: chat format, engines, the LoRA policy, rollouts and evaluation."""

import os

# Without it MKL picks, on some processors, another order of summation for another number of rows, and a rollout would
# depend on what else is in flight. It is read at the process's first matrix product; what is set already stays.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
