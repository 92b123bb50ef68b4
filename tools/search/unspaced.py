"""Text of scripts without spaces between words.

These are Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese and others. A sentence of such a
script is one run of characters, and nothing here knows its words. So it is searched by pairs of
neighbouring characters, as Lucene's CJKAnalyzer does; a single character is searched only if a
query has no pair. Korean does have spaces, but its words carry endings that a query lacks.
Simplified and traditional Chinese characters are not matched with each other.

`has_unspaced` tells whether a text has such a script, `split_passage` and `split_query` give the
pieces that are indexed and searched.
"""

import re
import unicodedata

# First and last code points of these scripts' letters after NFKC normalization, without digits and
# punctuation.
_RANGES = (
    (0x0E01, 0x0E3A),  # Thai
    (0x0E40, 0x0E4E),
    (0x0E81, 0x0ECE),  # Lao
    (0x0EDC, 0x0EDF),
    (0x0F00, 0x0F00),  # Tibetan, whose dots separate syllables
    (0x0F35, 0x0F39),
    (0x0F3E, 0x0FBC),
    (0x1000, 0x103F),  # Burmese
    (0x1050, 0x108F),
    (0x109A, 0x109D),
    (0x1100, 0x11FF),  # Korean, components of syllables
    (0x1780, 0x17D3),  # Khmer
    (0x17DC, 0x17DD),
    (0x1950, 0x19CF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1A7C),  # Tai Tham
    (0x1B00, 0x1B4C),  # Balinese
    (0x2E80, 0x2FD5),  # Chinese radicals
    (0x3005, 0x3007),  # Chinese iteration marks and zero
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3041, 0x309F),  # Hiragana
    (0x30A1, 0x30FA),  # Katakana, before and after its middle dot
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
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
# In text that is not normalized. It also has the compatibility characters that NFKC turns into
# characters of these scripts, such as "㈱" and "ﾃ".
_UNSPACED_BEFORE_NFKC = re.compile(
    f"[{_UNSPACED}\u3190-\u319f\u3200-\u33ff\uff65-\uffdc\U0001f200-\U0001f265]"
)
# Runs without a space, in which words of other scripts may be enclosed: "AI技术", "2008年".
_MIXED_RUN = re.compile(rf"(?:[{_UNSPACED}]|[^\W_])+")
_WORD = re.compile(r"[^\W_]+")


def has_unspaced(text: str) -> bool:
    """Return whether `text` has a character of a script without spaces between words."""
    return not text.isascii() and _UNSPACED_BEFORE_NFKC.search(text) is not None


def split_passage(text: str) -> tuple[list[str], list[str]]:
    """Return the terms by which the text in scripts without spaces is indexed.

    `"AI技术 ok"` -> `(["技", "技术", "术"], ["ai"])`

    Args:
        text: The title or text of a passage.

    Returns:
        Two lists, empty if there is no such text:

        - Every character of such a script, and every pair of neighbours.
        - The words of other scripts with no space between them and such a character, in lower case
          and without accents.
    """
    if text.isascii():
        return [], []
    normalized = unicodedata.normalize("NFKC", text)
    characters: list[str] = []
    for run in _UNSPACED_RUN.findall(normalized):
        for i, character in enumerate(run):
            characters.append(character)
            is_last = i + 1 == len(run)
            if not is_last:
                characters.append(run[i : i + 2])
    if not characters:
        return [], []
    enclosed_words: list[str] = []
    for mixed_run in _MIXED_RUN.findall(normalized):
        if _UNSPACED_RUN.search(mixed_run):
            enclosed_words += fold_words(_UNSPACED_RUN.sub(" ", mixed_run))
    return characters, enclosed_words


def split_query(text: str) -> list[str]:
    """Return the terms by which the text in scripts without spaces is searched.

    These are the pairs of neighbouring characters, and the characters without a neighbour:
    `"北京市 AI 人"` -> `["北京", "京市", "人"]`.
    """
    pieces: list[str] = []
    for run in _UNSPACED_RUN.findall(unicodedata.normalize("NFKC", text)):
        if len(run) == 1:
            pieces.append(run)
        else:
            pieces += [run[i : i + 2] for i in range(len(run) - 1)]
    return pieces


def remove_unspaced(text: str) -> str:
    """Return `text` with a space in place of each run in a script without spaces between words."""
    return _UNSPACED_RUN.sub(" ", unicodedata.normalize("NFKC", text))


def fold_words(text: str) -> list[str]:
    """Return the words of `text`, runs of letters and digits, in lower case and without accents."""
    if not text.isascii():
        # NFKD splits "é" into "e" and a combining accent.
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(
            character for character in decomposed if not unicodedata.combining(character)
        )
    return _WORD.findall(text.lower())
