"""Methods that change the KL term.

- `apo`: APO (arXiv 2506.21655): the KL is light where the task is hard, and long wrong answers cost more
- `kl`: KL to the reference: the estimators, their gradients, in the loss or the reward, with a fixed or adaptive weight
- `kl_cov`: KL-Cov (Cui et al., arXiv 2505.22617): the few tokens that cost the most entropy are held where they were
- `sent`: SENT (arXiv 2512.04359): certain tokens of extreme covariance are held where they were, easy tasks come first
"""
