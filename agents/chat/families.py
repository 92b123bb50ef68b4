"""The stock chat templates of the usual models, by hash.

What a known template writes behind a turn was compared for thoughts, calls and plain words, so that its continuation
may be laid even where it would render earlier turns otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

OWN = "a3f94bd86d03be67dcf83f4421c14311"  # of the template that turngym's own small policies speak

FAMILIES: Mapping[str, str] = {  # the first 32 hexadecimal digits of sha256, of each version
    "Qwen2.5": "55b2f4a26ac9ee719330a61a0c39d9e5",
    "Qwen3": (
        "a55ee1b1660128b7098723e0abcd92ca 87a2728cb8dc9fe424d624542f6060ec 3dd897869fdc38d301d820ce130bbf35 "
        "64f85b198065d0fba2a81f37e10ed681"
    ),
    "Llama 3": (
        "ba03a121d097859c7b5b9cd03af99aaf b48c47f6443892716176eb200bf4ef10 93c0e9aa3629bbd77e68dbc0f5621f6e "
        "d82792f95932f1c9cef5c4bd992f1712"
    ),
    "Mistral": (
        "7e995b379ec01747807246483647cd99 26a59556925c987317ce5291811ba3b7 bbc58aad99454df60138be9530c9601a "
        "cafb64e0e9e5fd2503054b3479593fae e7deee034838db2bfc7487788a3013d8 3c4ad5fa60dd8c7ccdf82fa4225864c9 "
        "d990bccdaaa20611e261434bf60bce76"
    ),
    "Gemma": "ecd6ae513fe103f0eb62e8ab5bfa8d0f 8d9e3a3c114fb2053ec500184677af4f",
    "SmolLM2": "872be49dbb638044ad01b60388f48d46 de9cde7d1b0ca0cc87459a6673e0d12f",
    "DeepSeek-R1": (
        "b6835114b7303ddd78919a82e4d9f7d8 56a1447ad31926fdc21fb07e56e5642b 563b1ce7d61d50a9b4c7439a912a1116"
    ),
}


def digest(source: str) -> str:
    """Return the sha256 of a template without the newlines at its end, which jinja leaves out, as 32 digits."""
    return hashlib.sha256(source.rstrip("\n").encode()).hexdigest()[:32]


def family_of(source: str) -> str:
    """Return the family whose stock template this is; empty where it is none of the known ones."""
    found = digest(source)
    return next((name for name, known in FAMILIES.items() if found in known.split()), "")
