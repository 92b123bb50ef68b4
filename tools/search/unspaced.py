"""Text of scripts that put no blanks between words: Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese and others.

A sentence of such a script is one run of characters, in which no rule of ours knows the words. So it is searched by its
pairs of characters, as Lucene's CJKAnalyzer does, and by single ones where a query has no more. Korean has blanks, but
its words carry endings that a query does not have. A simplified character is not its traditional form.
"""

import re
import unicodedata

# First and last code points, without these scripts' own digits and punctuation, behind Unicode's normal form NFKC.
_RANGES = (
    (0x0E01, 0x0E3A),  # Thai
    (0x0E40, 0x0E4E),
    (0x0E81, 0x0ECE),  # Lao
    (0x0EDC, 0x0EDF),
    (0x0F00, 0x0F00),  # Tibetan, whose dots part syllables
    (0x0F35, 0x0F39),
    (0x0F3E, 0x0FBC),
    (0x1000, 0x103F),  # Burmese
    (0x1050, 0x108F),
    (0x109A, 0x109D),
    (0x1100, 0x11FF),  # Korean, parts of syllables
    (0x1780, 0x17D3),  # Khmer
    (0x17DC, 0x17DD),
    (0x1950, 0x19CF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1A7C),  # Tai Tham
    (0x1B00, 0x1B4C),  # Balinese
    (0x2E80, 0x2FD5),  # Chinese radicals
    (0x3005, 0x3007),  # Chinese signs of repetition, and zero
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3041, 0x309F),  # Hiragana
    (0x30A1, 0x30FA),  # Katakana, and behind its dot
    (0x30FC, 0x30FF),
    (0x3105, 0x318E),  # Bopomofo, Korean letters
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Chinese characters
    (0x4E00, 0x9FFF),
    (0xA000, 0xA48C),  # Yi
    (0xA960, 0xA97C),
    (0xA980, 0xA9C0),  # Javanese
    (0xA9E0, 0xA9EF),  # Burmese
    (0xA9FA, 0xA9FE),
    (0xAA00, 0xAA4D),  # Cham
    (0xAA60, 0xAADD),  # Burmese, Tai Viet
    (0xAC00, 0xD7FB),  # Korean syllables
    (0xF900, 0xFAD9),
    (0x1AFF0, 0x1B16F),  # Kana
    (0x20000, 0x3FFFD),  # Chinese characters
)
_UNSPACED = "".join(f"{chr(first)}-{chr(last)}" for first, last in _RANGES)
_RUN = re.compile(f"[{_UNSPACED}]+")
_ANY = re.compile(
    f"[{_UNSPACED}\u3190-\u319f\u3200-\u33ff\uff65-\uffdc\U0001f200-\U0001f265]"
)  # also what NFKC makes them of
_MIXED = re.compile(
    rf"(?:[{_UNSPACED}]|[^\W_])+"
)  # runs in which words of other scripts may be enclosed
_WORD = re.compile(r"[^\W_]+")


def has_unspaced(text: str) -> bool:
    """Return whether `text` has a character of a script without blanks between words."""
    return not text.isascii() and _ANY.search(text) is not None


def pieces(text: str) -> tuple[list[str], list[str]]:
    """Return what a text of such scripts is searched by: characters and pairs, and the words enclosed by them.

    Enclosed is a word of another script with no blank in between, as `AI` and `2008` in `AI技术` and `2008年`; it is
    lower-cased and without accents. Both are empty for a text that has no such script.
    """
    if text.isascii():
        return [], []
    normal = unicodedata.normalize("NFKC", text)
    parts = list[str]()
    for run in _RUN.findall(normal):
        for at, character in enumerate(run):
            parts.append(character)
            parts += [run[at : at + 2]] if at + 1 < len(run) else []
    mixed = (run for run in _MIXED.findall(normal) if _RUN.search(run)) if parts else ()
    return parts, [word for run in mixed for word in folded(_RUN.sub(" ", run))]


def sought(text: str) -> list[str]:
    """Return the pieces that a query is searched by: pairs, and single characters where they have no neighbour."""
    found = list[str]()
    for run in _RUN.findall(unicodedata.normalize("NFKC", text)):
        found += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
    return found


def without_unspaced(text: str) -> str:
    """Return what a text has in other scripts, with a blank for each run that is left out."""
    return _RUN.sub(" ", unicodedata.normalize("NFKC", text))


def folded(text: str) -> list[str]:
    """Return the words of a text, runs of letters and digits, in lower case and without accents."""
    if not text.isascii():
        text = "".join(
            c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)
        )
    return _WORD.findall(text.lower())
