"""How it learns: methods that control entropy turn by turn, the loss, the training loop, and what a run writes.

Command line and runs:
    commands: `turngym train | compare | methods | audit`
    config: what a run is, recipes, `config.toml`
    run: a run from its config: check, load, train
    run_folder: what a run writes, and reads to continue
    progress: the display of a run or of a comparison
    launch, parallel: the processes that train together
    signals: SIGTERM and SIGINT as an exception that waits for the end of a change
    comparison/: comparing methods on the same tasks, seeds and budget
    recipes/: configs of shipped environments

The loop:
    loop: step after step, with checkpoints and validations in between
    schedule: how long a run lasts, its learning rate, the order of tasks
    rollouts: trees to learn from, and validations
    step: from a rollout to optimizer steps and the controls' new state
    learner: the gradient of an optimizer step, and the step
    optimizer: moments of AdamW and modules of controls, saved as safetensors

What is computed:
    columns: slots and turns as flat columns
    packing: from trees to columns, and to the tokens of a forward pass
    attention: attention over paths that share tokens
    head: log-probability and entropy in chunks
    control: a method as transformations of rollout and loss, and chains of them
    credit: advantages from scores, and means over slots
    objective: the loss, its policy terms, KL estimators
    methods/: one file a method
    branching, imitation: what several methods share
    branching: what rules that fork paths by entropy share
    imitation: which paths self-imitation keeps
    parameters: ranges of the methods' parameters

What is measured:
    telemetry: statistics of rollouts and updates
    alarms: signs in the metrics that a run goes wrong
    accounting: whether every step of a run adds up
"""
