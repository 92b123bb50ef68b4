"""Mistakes that are named, and what is said when they are not."""

import time

from turngym.envs.qa import QAGrader
from turngym.tests.verify.search import bad_input


def test_silence_another_error_and_a_late_one_fall_short(tmp_path, monkeypatch):
    class Made:
        def close(self):
            pass

    def make(**options):
        if "corpus" not in options:
            return Made()
        if options["corpus"].name == "none.jsonl":
            time.sleep(0.01)
        raise RuntimeError("deep inside")

    monkeypatch.setattr(bad_input, "make_search", make)
    row = bad_input.mistake_row(tmp_path)
    assert row.held == 0 and "it raises RuntimeError: deep inside" in row.note


def test_a_late_message_falls_short(tmp_path, monkeypatch):
    monkeypatch.setattr(bad_input, "SECONDS", 0.0)
    assert bad_input.mistake_row(tmp_path).held == 0


def test_a_grader_that_takes_all_falls_short(tmp_path, monkeypatch):
    monkeypatch.setattr(QAGrader, "check_gold", staticmethod(lambda gold: None))
    row = bad_input.gold_row(tmp_path)
    assert row.held == len(bad_input.KEPT) and "the grader takes" in row.note
