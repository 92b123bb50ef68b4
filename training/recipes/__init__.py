"""Recipes: TOML files whose keys are fields of `TrainConfig`."""
