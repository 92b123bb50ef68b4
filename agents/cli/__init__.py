"""Commands that do not train, one a file, and what all commands share.

- `evaluate`, `play`, `check`, `replay`, `warmup`, `envs`, `doctor`, `serve_search`: the commands
- `settings`: settings that several commands take; `repeated_options`: options that stand several times
- `terminal`: the console, mistakes in one line, progress, and the signals that end a command
"""
