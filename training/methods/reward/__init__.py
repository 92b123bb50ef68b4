"""Methods that change or make the reward.

- `adathink_med`: AdaThink-Med (arXiv 2509.24560): right answers to easy tasks earn more if short, wrong ones to hard tasks if long
- `dler`: DLER (arXiv 2510.15110): what is cut at the limit earns nothing, under a plain and stable recipe
- `empo`: EMPO (arXiv 2504.05812): a path is worth what share of its group agrees with its answer
- `ettrl`: ETTRL (arXiv 2508.11356): labels by vote, and advantages that are smaller for uncertain paths
- `pear`: PEAR (arXiv 2510.08026): right answers lose what their thoughts were more uncertain than their answers
"""
