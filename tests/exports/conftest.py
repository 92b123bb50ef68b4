"""The packages that read what is exported: `make test-exports`, in an environment that has them."""

import importlib.util

if any(
    importlib.util.find_spec(name) is None
    for name in ("inspect_ai", "jsonschema", "pyarrow", "statsmodels")
):
    collect_ignore_glob = ["test_*.py"]
