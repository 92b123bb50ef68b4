"""Models on disk, before torch is imported.

- `resolve`: where a policy comes from: a run, a model folder, a GGUF file, a hub name
- `folder`: the files of a model folder, read within limits
- `gguf`: GGUF files, converted
- `memory`: what a model needs in memory
- `architecture`: whether a model can be evaluated and trained here
"""
