"""The splits of tasks: their names, and the split that a generated problem belongs to.

A generated problem belongs to a split by the hash of its text, so no text is in two splits.
"""

import hashlib

SPLITS = ("train", "valid", "test")
ALL = "all"  # in place of one of `SPLITS`: all tasks, if they can be listed
# The range of `text_share` that each split of generated problems has.
SPLIT_SHARES = {"valid": (0.0, 0.1), "test": (0.1, 0.2), "train": (0.2, 1.0)}


def check_split(split: str, listed: bool = False) -> str:
    """Return `split`, or raise ValueError if there is none of that name.

    Args:
        split: One of `SPLITS`, or `ALL`.
        listed: Whether the tasks come from a list or a file, all of which `ALL` may ask for.
    """
    if split in SPLITS or (split == ALL and listed):
        return split
    if split == ALL:
        raise ValueError(
            f"split is 'all', which is for tasks of a list or a file; choose {', '.join(SPLITS)}"
        )
    splits = (*SPLITS, ALL) if listed else SPLITS
    raise ValueError(f"split is {split!r}; the splits are {', '.join(splits)}")


def text_share(text: str) -> float:
    """Return the hash of a text as a number that is uniform in [0, 1).

    A share of 0.1 of all texts lies below 0.1, and the same text gives the same number anywhere.
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    # A float has 53 bits of precision: more would round up to 1.0 for the largest hashes.
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def in_split(text: str, split: str) -> bool:
    """Return whether a generated problem with this text belongs to `split`."""
    low, high = SPLIT_SHARES[split]
    return low <= text_share(text) < high
