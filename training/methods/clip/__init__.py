"""Methods that change the bounds of the ratio.

- `archer`: Archer (arXiv 2507.15778): uncertain tokens may move, certain ones are held by a tight clip and a reference
- `aspo`: ASPO (arXiv 2510.06062): what became unlikely and is good gets the reciprocal of the ratio as its weight
- `bapo`: BAPO (arXiv 2510.18927): clip bounds widen until what raises probabilities is not drowned by what lowers them
- `ce_gppo`: CE-GPPO (arXiv 2509.20712): tokens past the clip keep a bounded gradient
- `clip`: Clip bounds: clip-higher (DAPO, arXiv 2503.14476), clip-lower and clip-tighter (arXiv 2511.05993), clip-free
- `clip_cov`: Clip-Cov (Cui et al., arXiv 2505.22617): a few random tokens of high covariance are left out
- `dcpo`: DCPO (arXiv 2509.02333): clip bounds by the old probability, and advantages smoothed over a task's visits
- `erc`: Entropy ratio clipping (ERC, arXiv 2512.05591): tokens whose entropy has moved too far get no gradient
- `htpo`: HTPO (arXiv 2605.08283): a rule for each token by difficulty of the task, result of the path, and entropy
- `m2po`: M2PO (arXiv 2510.01161): the clip follows from a budget for the second moment of harmful log-ratios
- `rand_pos_clip`: Rand-Pos-Clip (arXiv 2511.05993): a few random positive tokens are left out, as a control of Clip-Cov
"""
