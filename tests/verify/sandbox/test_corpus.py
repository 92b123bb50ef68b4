"""Reading a corpus: texts in full length, predicates that are known, placeholders with a value."""

import json
from pathlib import Path

import pytest

from turngym.tests.verify.sandbox.corpus import Promise, full_text, placed, promises, read_programs
from turngym.tests.verify.sandbox.predicates import KNOWN

ROW = {"id": "a", "category": "ok", "code": "print(1)", "must_hold": "U; status=ok"}
HERE = Path(__file__).parent


@pytest.fixture
def corpus(tmp_path):
    def write(*rows):
        path = tmp_path / "corpus.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
        return path

    return write


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"code": "ab"}, "ab"),
        ({"code": "ab", "repeat": 3}, "ababab"),
        ({"code": "# %s %s", "fill": 4}, "# xxxx %s"),
        ({"code": "preview", "parts": [["a", 2], ["b\n", 1]]}, "aab\n"),
    ],
)
def test_texts_are_made_in_full_length(row, text):
    assert full_text(row) == text


def test_predicates_are_read_with_their_values():
    found = promises(r"U; status=ok|error ;out_has=open []; out_eq=a\\b\n", KNOWN, "here")
    assert found == (
        Promise("U"),
        Promise("status", "ok|error"),
        Promise("out_has", "open []"),
        Promise("out_eq", "a\\b\n"),
    )


def test_an_unknown_predicate_is_named(corpus):
    with pytest.raises(ValueError, match=r"corpus.jsonl:2: the predicate 'no_magic' is unknown"):
        read_programs(corpus(ROW, {**ROW, "id": "b", "must_hold": "U; no_magic"}), KNOWN)


@pytest.mark.parametrize("rows", [(ROW, ROW), ({**ROW, "id": None}, "{"), ({"id": "a"},), ("[]",)])
def test_what_is_no_corpus_is_refused(corpus, rows):
    with pytest.raises(ValueError, match=r"corpus.jsonl:\d"):
        read_programs(corpus(*rows), KNOWN)


def test_a_missing_file_names_the_option(tmp_path):
    with pytest.raises(FileNotFoundError, match="--corpus"):
        read_programs(tmp_path / "none.jsonl", KNOWN)


def test_placeholders_are_filled_and_an_unknown_one_is_named():
    assert placed("{{HOST}}:{{HOST_PORT}} {x} {{lower}}", {"HOST": "h", "HOST_PORT": "1"}) == "h:1 {x} {{lower}}"
    with pytest.raises(ValueError, match=r"\{\{HOME\}\} has no value"):
        placed("{{HOME}}", {"HOST": "h"})


def test_our_own_programs_are_python_with_known_predicates():
    programs = read_programs(HERE / "programs.jsonl", KNOWN)
    values = dict.fromkeys(("CANARY_FILE", "OUTSIDE_DIR", "HOST_PORT", "FREE_PORT", "PARENT_PID", "HOST"), "1")
    for program in programs:
        compile(placed(program.code, values), program.id, "exec")
    assert {promise.name for program in programs for promise in program.promises} >= {"pid_cap", "disk_cap", "isolated"}
