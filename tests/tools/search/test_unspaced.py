"""Text without blanks between words is found by any part of it, stop words find titles, and English scores stay."""

import hashlib
import json
import logging
import struct
import unicodedata

import pytest

from turngym.tests.tools.search.test_bm25 import METALS, corpus_file, ids, random_corpus
from turngym.tools.search import bm25 as index
from turngym.tools.search.bm25 import BM25, open_index
from turngym.tools.search.retriever import Passage
from turngym.tools.search.unspaced import has_unspaced, split_passage

CITIES = [
    Passage("pku", "北京大学", "北京大学是位于北京的一所大学。"),
    Passage("tokyo", "東京", "東京は日本の首都です。"),
    Passage("bangkok", "กรุงเทพ", "กรุงเทพเป็นเมืองหลวงของประเทศไทย"),
    Passage("seoul", "서울", "서울은 대한민국의 수도이다."),
    Passage("vientiane", "ວຽງຈັນ", "ວຽງຈັນເປັນນະຄອນຫຼວງຂອງລາວ"),
    Passage("phnom", "ភ្នំពេញ", "ភ្នំពេញជារាជធានីនៃប្រទេសកម្ពុជា"),
    Passage("yangon", "ရန်ကုန်", "ရန်ကုန်သည်မြန်မာနိုင်ငံ၏မြို့ဖြစ်သည်"),
    Passage("games", "奥运会", "2008年夏季奥运会在中国举行，使用AI技术。"),
    Passage("cat", "ねこ", "吾輩は猫である。ガイドブックではﾃﾚﾋﾞと書く。"),
    Passage("paris", "Paris", "Paris is the capital of France."),
]
FOUND = [
    ("北京", "pku"),
    ("北京大学", "pku"),
    ("北京大学在哪里", "pku"),
    ("大学", "pku"),
    ("一所", "pku"),
    ("首都", "tokyo"),
    ("日本の首都", "tokyo"),
    ("日本の首都はどこですか？", "tokyo"),
    ("東京", "tokyo"),
    ("เมืองหลวง", "bangkok"),
    ("ประเทศไทย", "bangkok"),
    ("대한민국", "seoul"),
    ("수도", "seoul"),
    ("서울", "seoul"),
    ("서울에", "seoul"),
    ("ນະຄອນຫຼວງ", "vientiane"),
    ("រាជធានី", "phnom"),
    ("မြန်မာ", "yangon"),
    ("2008年", "games"),
    ("2008 年 奥运会", "games"),
    ("2008", "games"),
    ("ai", "games"),
    ("AI 技术", "games"),
    ("猫", "cat"),
    ("テレビ", "cat"),
    ("ﾃﾚﾋﾞ", "cat"),
    ("ガイド", "cat"),
    ("France 首都", "tokyo"),
    ("capital of France", "paris"),
]


@pytest.mark.parametrize(("query", "wanted"), FOUND)
def test_a_part_of_a_sentence_finds_it(query, wanted):
    assert ids(BM25(CITIES).search(query, 3))[0] == wanted


@pytest.mark.parametrize("query", ["上海", "狗", "京東", "火车", "หมา", "부산"])
def test_what_stands_in_no_text_finds_nothing(query):
    assert BM25(CITIES).search(query, 3) == []


def test_words_in_english_and_in_chinese_count_together():
    both = [
        *CITIES,
        Passage("both", "", "Peking University, 北京大学, is a university."),
        Passage("en", "", "A university."),
    ]
    found = ids(BM25(both).search("university 北京大学", 9))
    assert found[0] == "both" and {"pku", "en"} <= set(found)


def test_pieces_are_pairs_and_single_characters():
    assert split_passage("東京は12月、a 猫") == (
        ["東", "東京", "京", "京は", "は", "月", "猫"],
        ["12"],
    )
    assert split_passage("Curaçao, 1901") == ([], []) and not has_unspaced(
        "naïve Łódź Москва θ ½ 🍎"
    )
    assert (
        has_unspaced("ﾃ")
        and has_unspaced("각")
        and has_unspaced("เ")
        and not has_unspaced("。「」・　１２")
    )
    # Signs whose normal form is of such a script count before they have it.
    assert (
        has_unspaced("㈱")
        and has_unspaced("㌔")
        and has_unspaced("🈯")
        and split_passage("㍿")[0][:2] == ["株", "株式"]
    )
    # Latin letters with an accent are folded as everywhere.
    assert split_passage("café咖啡") == (["咖", "咖啡", "啡"], ["cafe"])


BANDS = [
    Passage("who", "The Who", "The Who are a band formed in 1964."),
    Passage("doctor", "Doctor Who", "Doctor Who is a series."),
    Passage("are", "Who Are You", "Who Are You is an album of 1978."),
    Passage("it", "It (novel)", "It is a novel by Stephen King."),
    Passage("one", "It Happened One Night", "It is a film."),
    Passage("her", "Her", "Her is a film of 2013."),
    Passage("them", "Them!", "Them! is a film of 1954."),
    Passage("dont", "Don't", "Don't is a song by Ed Sheeran."),
    Passage("again", "It", "It again."),
]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("The Who", "who"),
        ("the who", "who"),
        ("THE WHO?", "who"),
        ("who are The Who", "who"),
        ("It", "again"),
        ("Her", "her"),
        ("them", "them"),
        ("don't", "dont"),
        ("don’t", "dont"),
        ("who are you", "are"),
        ("It novel", "it"),
        ("Her film 2013", "her"),
        ("The Who band", "who"),
    ],
)
def test_a_query_of_stop_words_finds_its_title(query, wanted):
    found = BM25(BANDS).search(query, 3)
    assert found[0].id == wanted and all(passage.score > 0 for passage in found)


@pytest.mark.parametrize("query", ["", " ", "of", "between those", "?!", "\0", "\ud800"])
def test_stop_words_of_no_title_find_nothing(query):
    assert BM25(BANDS).search(query, 3) == BM25(METALS).search(query, 3) == []


def test_titles_that_fit_alike_stand_in_the_order_of_the_corpus():
    chapters = [Passage(f"it-{i}", "It", f"Chapter {i}.") for i in range(5)]
    assert ids(BM25(chapters).search("it", 3)) == ["it-0", "it-1", "it-2"]


# --- English: these digests are of version 1 of the index, which knew words between blanks alone


def digest(searched, queries):
    """One number for all that is found, to the last bit."""
    made = hashlib.sha256()
    for query in queries:
        for passage in searched.search(query, 20):
            made.update(json.dumps(passage.id).encode() + struct.pack("<d", passage.score))
        made.update(b"\n")
    return made.hexdigest()


MIXED = [
    *METALS,
    Passage(
        "sony",
        "Sony",
        "Sony Corporation (ソニー株式会社, Sonī Kabushiki Gaisha) makes metal of São Paulo; Sony株式会社.",
    ),
    Passage(
        "qing",
        "Qing dynasty",
        "The Qing (清朝) was a dynasty of China; its last emperor forged iron in 北京.",
    ),
    Passage(
        "won",
        "South Korean won",
        "The won (원) is the currency of South Korea, 대한민국, grey as lead.",
    ),
    *CITIES,
    *BANDS,
]
ENGLISH = [
    "roman metals",
    "grey metal",
    "Sony corporation",
    "São Paulo",
    "last emperor of the dynasty",
    "the capital",
]
ENGLISH += [
    "currency of South Korea",
    "iron gold lead oak",
    "Stephen King novel",
    "a band formed in 1964",
    "film 2013",
]


def test_english_scores_are_those_of_version_1_to_the_bit():
    passages, text = random_corpus(300)
    assert digest(BM25(passages), [text(4) for _ in range(100)]) == (
        "df4de7b3ab4eca469ae9e7070853496fc20046c186124a9d2965841779933745"
    )
    assert (
        digest(BM25(MIXED), ENGLISH)
        == "f940c310a27698e06b63ebf39511aa337541c1c2bb7c54260b516137fee280e3"
    )
    assert (
        digest(BM25(MIXED, k1=0.9, b=0.4), ENGLISH)
        == "f706997f7d6505f26e85e5391169b94b802d4d84d7de7a9cfd72b043cd5d3427"
    )


@pytest.mark.slow
def test_english_scores_of_real_questions_are_those_of_version_1_to_the_bit(shared_data, tmp_path):
    folder = shared_data / "search_qa"
    rows = map(json.loads, (folder / "questions_with_gold.jsonl").read_text("utf-8").splitlines())
    asked = [row["question"] for row in rows if row["gold_passages"]]
    assert digest(open_index(folder / "corpus.jsonl.gz", tmp_path), asked) == (
        "14e7913b8df83c2d61762d3a8a6ed0073adee9234b0b77eda6ef525d946204e1"
    )


# --- the cache


def test_a_cached_index_finds_what_one_in_memory_does(tmp_path):
    path = corpus_file(tmp_path / "c.jsonl", MIXED)
    queries = [query for query, _ in FOUND] + ENGLISH + ["The Who", "It"]
    made = open_index(path, tmp_path / "cache")
    opened = open_index(path, tmp_path / "cache")
    assert digest(made, queries) == digest(opened, queries) == digest(BM25(MIXED), queries)


def test_an_index_of_an_earlier_version_is_made_anew_and_says_so(tmp_path, caplog, monkeypatch):
    path, cache = corpus_file(tmp_path / "c.jsonl", CITIES), tmp_path / "cache"
    with monkeypatch.context() as patched:
        patched.setattr(index, "_INDEX_VERSION", 1)
        open_index(path, cache)
    with caplog.at_level(logging.WARNING):
        assert ids(open_index(path, cache).search("北京", 1)) == ["pku"]
        assert (
            len(caplog.messages) == 1
            and "is of version 1" in caplog.text
            and "made anew" in caplog.text
        )
        open_index(path, cache)
        assert len(caplog.messages) == 1


def test_a_character_is_looked_for_if_its_normal_form_is_of_such_a_script():
    missed = []
    for point in (*range(0x80, 0xD800), *range(0xE000, 0x20000)):
        character = chr(point)
        if has_unspaced(unicodedata.normalize("NFKC", character)) and not has_unspaced(character):
            missed.append(character)
    assert missed == []
