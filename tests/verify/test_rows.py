from turngym.tests.verify.rows import Row, Tally


def test_cases_are_counted_and_those_that_fall_short_are_named():
    tally = Tally("kept")
    tally.add("one", "")
    tally.add("two", "late")
    tally.add("three", True, times=3)
    tally.add("four", 0)
    assert tally.row("slow") == Row("kept", 2, 6, "slow; two: late, three")
    assert Tally("nothing").row() == Row("nothing", 0, 0, "")
