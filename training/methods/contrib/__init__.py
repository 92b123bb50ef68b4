"""Methods whose formula is our own reading of a paper that leaves it open (grade C).

- `acpo`: ACPO (arXiv 2510.08899): parts of a path count by how much uncertainty they remove
- `actfocus`: ActFocus: gradient moved from what is thought to what is done (arXiv 2605.14558)
- `adr`: ADR (EHPO, arXiv 2510.10207): paths fork where a path turns from easy to hard, and answer by the task's difficulty
- `aem`: AEM (arXiv 2605.00425): the surprisal of a whole response rescales its advantage
- `aepo_he`: AEPO of He et al. (arXiv 2511.06380): in a second stage, what reflects on itself may stay uncertain
- `aer`: AER (arXiv 2510.10959): an entropy bonus by difficulty of the task, under a coefficient that seeks a target
- `ces`: Conditional entropy shaping (CES, arXiv 2605.19358): forks cost something on right paths and pay on wrong ones
- `d3s`: D3S (arXiv 2509.22115): the extreme paths of a group, and of these the tokens that matter
- `data_subset`: Subsets of the tasks (data diversity, arXiv 2511.05993): fewer tasks, at random or of few kinds
- `deng`: Shaping by perplexity and position (Deng et al., arXiv 2508.02260)
- `dmpo`: DMPO (known from a survey; akin to FlowRL, arXiv 2509.15207): shares within a group that follow the rewards
- `eag_rl`: EAG-RL (arXiv 2508.13579): the upper clip is wider for paths of higher entropy
- `em_rl`: EM-RL (arXiv 2505.15134): the reward is the policy's own certainty; no labels
- `entrocraft`: Entrocraft (arXiv 2604.26326): paths are rejected by the sign of their advantage so that entropy keeps to a schedule
- `espo`: ESPO (arXiv 2512.00499): tokens of a path are grouped by entropy, each group with its own ratio and its own clip
- `evol_rl`: EVOL-RL (arXiv 2509.15194): learning without labels, by the majority's answer and by being unlike others
- `fr3e`: FR3E (arXiv 2507.07017): rollouts from the uncertain places of a first path, each group judged by itself
- `opefo`: OPEFO and PAPO (arXiv 2605.11491, 2605.11775): weights by the sign of each token's first-order change of entropy
- `prorl`: ProRL (arXiv 2505.24864): the reference becomes the policy now and then, and the optimizer begins anew
- `repo`: REPO and ADAPO (Entropy-Preserving Reinforcement Learning, arXiv 2603.11682): entropy kept where it began
- `seed_grpo`: SEED-GRPO (arXiv 2505.12346): a task whose answers are semantically spread moves the policy less
"""
