import math
import os
import time

from turngym.tools.python.loop import Loop


def test_one_readable_descriptor_is_served_a_turn_and_each_has_its_turn():
    loop, served = Loop(), []
    pipes = [os.pipe() for _ in range(3)]
    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")
        loop.on(reading, lambda number=number: served.append(number))
    for turn in range(1, 7):
        loop.turn(math.inf)
        assert len(served) == turn
    assert sorted(served) == [0, 0, 1, 1, 2, 2]
    for fd in sum(pipes, ()):
        os.close(fd)


def test_what_is_closed_by_the_one_before_is_not_served_under_its_number():
    loop, served = Loop(), []
    pipes = [os.pipe() for _ in range(2)]

    def serve(mine: int, other: int) -> None:
        served.append(mine)
        loop.forget(mine)
        loop.forget(other)
        os.close(other)
        assert os.dup(quiet) == other  # another descriptor has its number now
        loop.on(other, lambda: served.append(-1))

    quiet, end = os.pipe()
    (one, _), (two, _) = pipes
    for _, writing in pipes:
        os.write(writing, b"x")
    loop.on(one, lambda: serve(one, two))
    loop.on(two, lambda: serve(two, one))
    loop.turn(math.inf)
    loop.turn(time.monotonic() + 0.01)
    assert len(served) == 1
    os.write(end, b"x")
    loop.turn(math.inf)
    assert served[1:] == [-1]
    for fd in (*sum(pipes, ()), quiet, end):
        os.close(fd)


def test_a_turn_ends_at_its_time_and_nobody_has_to_have_waited_to_be_forgotten():
    loop = Loop()
    loop.turn(time.monotonic() - 1)
    loop.forget(0)
    loop.forget(-1)
