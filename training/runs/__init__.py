"""A training run: its settings, its folder, its beginning and its end.

- `config`: what a run is: fields, recipes, `config.toml`; `recipes` are those of environments
- `launch`: over several processes
- `dry_run`: whether a run could begin
- `run`: check everything, load, train, write down
- `folder`: the files of a run
- `loggers`: TensorBoard, Weights & Biases, trackio, MLflow
- `export`: what a run has learned, as a folder for peft, transformers and vLLM
"""
