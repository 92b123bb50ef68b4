"""The splits of tasks: their names, and to which one a generated problem belongs.

A generated problem belongs to a split by its text, so that no text is in two of them.
"""

import hashlib

SPLITS = ("train", "valid", "test")
ALL = "all"  # in place of one of `SPLITS`: all tasks, if they can be listed
SPLIT_SHARES = {
    "valid": (0.0, 0.1),
    "test": (0.1, 0.2),
    "train": (0.2, 1.0),
}  # of generated problems, by `text_share`


def check_split(split: str, listed: bool = False) -> str:
    """Return `split` if it is one of `SPLITS`, or `ALL` and the tasks are `listed`; raise ValueError otherwise."""
    if split in SPLITS or (split == ALL and listed):
        return split
    if split == ALL:
        raise ValueError(
            f"split is 'all', which is for tasks of a list or a file; choose {', '.join(SPLITS)}"
        )
    splits = (*SPLITS, ALL) if listed else SPLITS
    raise ValueError(f"split is {split!r}; the splits are {', '.join(splits)}")


def text_share(text: str) -> float:
    """Return a number in [0, 1) that depends on `text` alone: below 0.1 lies a tenth of all texts."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def in_split(text: str, split: str) -> bool:
    """Return whether a generated problem with this text belongs to `split`: every text is in one of the three."""
    low, high = SPLIT_SHARES[split]
    return low <= text_share(text) < high
