"""Whether a method did anything: its own term in the gradient, and the first step whose episodes differ.

Two methods that act differently give different numbers only once an episode differs. A coefficient may be so small that
none does, and then a table shows the same row twice. So each run of a comparison writes down its own term (see
`own_term`) and a digest of the tokens of each step's episodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path

from ...tools.files import open_plain, read_text, write_file

EFFECT = "effect.json"  # of a run of a comparison
_TOKENS = re.compile(rb'"tokens": \[[^\]]*\]')  # inside a text the quotes would be escaped


@dataclass(frozen=True)
class Effect:
    """What a run wrote down about itself, by step."""

    own_term: Mapping[int, float] = field(default_factory=dict)
    """|g - g_ref| / |g|; of no reference, or of one that needs what the run does not compute, there is none."""
    episodes: Mapping[int, str] = field(default_factory=dict)
    """A digest of the tokens of the step's episodes, once the run is over."""

    def write(self, folder: Path) -> None:
        """Write it into a run folder. Raises OSError."""
        write_file(folder / EFFECT, json.dumps(asdict(self)) + "\n")

    def differs_from(self, reference: Effect) -> int | None:
        """Return the first step whose episodes are others than the reference's; None if there is none."""
        both = sorted(self.episodes.keys() & reference.episodes.keys())
        return next(
            (step for step in both if self.episodes[step] != reference.episodes[step]), None
        )


def read_effect(folder: Path) -> Effect:
    """Return what a run wrote down; nothing of a run that has not. Raises OSError or ValueError if it is unreadable."""
    path = folder / EFFECT
    try:
        data = json.loads(read_text(path))
        own_term = {int(step): float(share) for step, share in data["own_term"].items()}
        episodes = {int(step): str(digest) for step, digest in data["episodes"].items()}
    except FileNotFoundError:
        return Effect()
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not what a comparison wrote ({error!r}); remove it") from error
    return Effect(own_term, episodes)


def digests(folder: Path) -> dict[int, str]:
    """Return a digest of the tokens of each step's episodes, from the journals of a run."""
    found = dict[int, str]()
    for path in sorted((folder / "trees").glob("step-*.jsonl")):
        digest = blake2b(digest_size=8)
        with open_plain(path) as journal:
            for tokens in _TOKENS.findall(journal.read()):
                digest.update(tokens)
        found[int(path.stem.removeprefix("step-"))] = digest.hexdigest()
    return found
