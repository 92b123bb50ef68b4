"""Methods that change the advantage.

- `bilevel_gae`: Bi-level generalised advantage estimation of RAGEN (Wang et al., arXiv 2504.20073)
- `canon`: CANON (arXiv 2509.23962): a path is compared with the other half of its group, sorted by entropy or length
- `cw_grpo`: CW-GRPO (arXiv 2605.11538): tokens of extreme covariance weigh less, by a Gaussian kernel
- `dart`: DART-GUI: training on the more uncertain steps of long trajectories (arXiv 2509.23866)
- `edge_grpo`: EDGE-GRPO (arXiv 2507.21848): an advantage counts more the more certain its path was
- `empg`: Entropy-Modulated Policy Gradients (EMPG, arXiv 2509.09265)
- `entropy_adv`: Entropy advantage (Reasoning with Exploration, arXiv 2506.14758): a bonus for uncertain tokens that flips no sign
- `gigpo`: Group-in-Group Policy Optimization (GiGPO, arXiv 2505.10978)
- `gtpo`: GTPO and GRPO-S (arXiv 2508.04349): a right path's tokens share its reward by entropy, a wrong one's by certainty
- `less`: LESS (arXiv 2512.00908): certain passages that right and wrong paths share are silenced, those of one side kept
- `mt_grpo`: Multi-Turn GRPO: credit for the turn before the first tool result (MT-GRPO, Zeng et al., arXiv 2505.11821)
- `qae`: QAE (arXiv 2509.22611): the baseline is a quantile of the group, not its mean
- `rl_zvp`: RL-ZVP (arXiv 2509.21880): tasks whose paths all scored the same are learned from, too, weighed by entropy
- `ucas`: UCAS (arXiv 2510.10649): certain paths count less if right, more if wrong; certain tokens pay
"""
