"""The packages of the loggers: `make test-loggers`, in an environment that has them."""

import importlib.util

from turngym.training.runs.loggers import SINKS

if any(importlib.util.find_spec(name) is None for name in SINKS):
    collect_ignore_glob = ["test_*.py"]
