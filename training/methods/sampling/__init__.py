"""Methods that change what is drawn and what is trained on: forks, temperature, selection, replay.

- `aepo`: Agentic Entropy-Balanced Policy Optimisation (AEPO, Dong et al., arXiv 2510.14545)
- `aepo_branching`: Branching of Agentic Entropy-Balanced Policy Optimisation (AEPO, Dong et al., arXiv 2510.14545)
- `arpo`: Agentic Reinforced Policy Optimisation (ARPO, arXiv 2507.19849)
- `cure`: CURE (arXiv 2508.11016), the first stage: answers are begun again just before one of their most uncertain tokens
- `dynamic_sampling`: Dynamic sampling (DAPO, Yu et al., arXiv 2503.14476, Sec. 3.2) as a part of its own
- `em_inf`: Adaptive temperature (EM-INF, arXiv 2505.15134): tokens are drawn at the temperature that leaves little doubt
- `spear`: Self-imitation with entropy management (SPEAR, arXiv 2509.22601)
- `starpo_s`: StarPO-S of RAGEN (Wang et al., arXiv 2504.20073)
- `treerl`: TreeRL (arXiv 2506.11902): trees forked at the least certain tokens, and rewards for each part of a path
"""
