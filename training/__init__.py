"""How it learns: methods that control entropy turn by turn, the loss, the training loop, and what a run writes.

Command line and runs:
    commands: `turngym train | methods | audit | eval | view`, and the display of runs
    config: what a run is, how long it lasts, recipes and what they leave to other policies, `config.toml`; which of the
        processes of a run this one is
    run: a run from its config: check, load, train; dry_run: what can be said of it before
    export: what a run has learned, as a folder for other programs
    run_folder: what a run writes, and reads to continue; alarms: signs that it goes wrong
    sinks: processes that hand what a run writes to loggers
    parallel: the processes that train together
    comparison/: comparing methods on the same tasks, seeds and budget, also in small worlds and for claims of papers
    report/: the page and the pictures of runs, evaluations and comparisons
    recipes/: configs of shipped environments

The loop:
    loop: steps of rollout, optimizer steps and the controls' new state, checkpoints and validations in between; which
        tasks come next
    learner: the gradient of an optimizer step, the step, and what is saved of it: moments, modules of controls

What is computed:
    columns: from trees to slots and turns as flat columns
    attention: the tokens of a forward pass, and attention over paths that share them
    head: log-probability and entropy in chunks; linear layers with LoRA as one step of autograd
    control: a method as transformations of rollout and loss, chains of them, and what rules that fork paths share
    credit: advantages from scores, and means over slots
    objective: the loss, its policy terms, KL estimators
    methods/: one file a method, and their names
    parameters: their parameters and ranges, also read without importing them
    floor: a controller that keeps a number above a floor, and which turns are paid for their log-probability

What is measured:
    actions: how the actions of siblings differ, and which were valid
    telemetry: statistics of rollouts and updates
    accounting: whether every step of a run adds up
    analyse: what papers on entropy measure of runs
"""
