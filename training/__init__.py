"""How it learns: methods that control entropy turn by turn, the loss, the training loop, and what a run writes.

- `runs`: a run: its settings, recipes, folder, beginning and end
- `loop`: rollout, optimizer step, the controls' new state; checkpoints and validations in between
- `data`: from trees to slots and turns as flat columns
- `loss`: the loss, its policy terms, advantages
- `model`: attention over shared tokens, log-probability and entropy in chunks, LoRA layers
- `control`: a method as transformations of rollout and loss, chains of them, branching
- `methods`: one file a method, in folders by what they change
- `metrics`: statistics of rollouts and updates, alarms, accounting
- `comparison`: methods on the same tasks, seeds and budget, also in small worlds and for claims of papers
- `report`: the page and the pictures of runs, evaluations and comparisons
- `cli`: the commands that train or show training
"""
