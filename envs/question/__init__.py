"""Questions with tools: `QuestionEnv = tasks x tools x grader`.

- `env`: the environment
- `toolbox`: the tools of an episode
- `task_sets`: tasks as authors give them: rows, pairs, a file
- `graders`: graders from plain functions
"""
