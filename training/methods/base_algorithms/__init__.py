"""Base algorithms: each decides the advantage, and is named first.

- `reinforce`: REINFORCE (Williams 1992; for language models Ahmadian et al., arXiv 2402.14740)
- `rloo`: REINFORCE leave-one-out (RLOO, Ahmadian et al., arXiv 2402.14740; Kool et al. 2019)
- `reinforce_pp`: REINFORCE++ (Hu et al., arXiv 2501.03262)
- `grpo`: Group Relative Policy Optimization (Shao et al., arXiv 2402.03300)
- `dr_grpo`: GRPO done right (Dr. GRPO, Liu et al., arXiv 2503.20783)
- `dapo`: Decoupled clip and dynamic sampling (DAPO, Yu et al., arXiv 2503.14476)
- `ppo`: Proximal Policy Optimization with a value head (Schulman et al., arXiv 1707.06347; GAE, arXiv 1506.02438)
"""
