"""The training loop.

- `trainer`: roll out, learn, write down; every step is repeatable to the bit
- `rollouts`: the trees of a step
- `learner`: one optimizer step
- `task_order`: which tasks come when
- `optimizer_state`: what is saved of the optimizer
- `modules`: modules that learn beside the policy
- `distributed`: the processes that train together
"""
