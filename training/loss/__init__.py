"""The loss, as equations over the slots of a batch.

- `objective`: the one loss, and the check of an update
- `surrogates`: its policy terms
- `kl`: estimators of the KL divergence
- `credit`: advantages from scores; `gae`: generalised advantage estimation
- `aggregation`: sums and means over slots
"""
