from turngym.envs.household.kinds import FOR_ONE, LAMP, OPENABLE, PAIRED, PICKED_UP, ROOMS, THINGS, TOOLS

STANDING = {kind for room in ROOMS.values() for kind in room}


def test_the_tables_are_read_whole():
    assert set(ROOMS) == {"kitchen", "livingroom", "bedroom", "bathroom", "study"}
    assert ROOMS["kitchen"]["cabinet"] == 12 and ROOMS["kitchen"]["garbagecan"] == 1
    assert len(THINGS) == 51 and len(STANDING) == 27
    apple = THINGS["apple"]
    assert apple.can == {"clean", "heat", "cool", "slice"} and apple.usual == ("countertop", "diningtable", "fridge")
    assert apple.fits == (*apple.usual, "sinkbasin", "garbagecan", "microwave", "sidetable")
    assert THINGS["desklamp"].can == {"lamp"} and set(PICKED_UP) == set(THINGS) - {LAMP}


def test_the_tables_name_only_what_is_in_them():
    for kind in THINGS.values():
        assert kind.usual and set(kind.fits) <= STANDING and len(set(kind.fits)) == len(kind.fits), kind
        assert kind.can <= {"clean", "heat", "cool", "slice", "cut", "vessel", "lamp"}, kind
    assert OPENABLE | PAIRED | FOR_ONE | set(TOOLS.values()) <= STANDING


def test_everything_that_stands_there_can_hold_something():
    held = {place for kind in THINGS.values() for place in kind.fits}
    assert held == STANDING


def test_what_is_heated_or_cooled_fits_there():
    for verb in ("heat", "cool"):
        for kind in THINGS.values():
            assert verb not in kind.can or TOOLS[verb] in kind.fits, kind
