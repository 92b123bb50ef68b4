"""What a process is told by the environment."""

import pytest

from turngym.training.runs.launch import Launch, launched

MEETING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    "environ", [{}, {"WORLD_SIZE": "8"}, {"RANK": "3"}, {"RANK": "0", "WORLD_SIZE": "1"}]
)
def test_a_process_of_which_nothing_or_half_is_said_is_alone(environ):
    assert launched(environ) == Launch(0, 1, 0) and launched(environ).first


def test_a_process_is_the_one_that_torchrun_says():
    two = launched({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", **MEETING})
    assert two == Launch(5, 8, 1) and not two.first
    assert launched({"RANK": "1", "WORLD_SIZE": "2", **MEETING}) == Launch(1, 2, 1)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2", **MEETING}, "RANK is 2 and WORLD_SIZE 2"),
        ({"RANK": "0", "WORLD_SIZE": "two", **MEETING}, "WORLD_SIZE is 'two'"),
        ({"RANK": "-1", "WORLD_SIZE": "2", **MEETING}, "RANK is '-1'"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ""},
            "MASTER_PORT is not set",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "", **MEETING}, "LOCAL_RANK is ''"),
    ],
)
def test_what_cannot_be_is_refused_by_name(environ, said):
    with pytest.raises(ValueError, match=said):
        launched(environ)


def test_each_process_takes_the_gpu_of_its_number_on_the_machine():
    assert Launch(5, 8, 1).device("cuda") == "cuda:1" and Launch(5, 8, 1).device("cpu") == "cpu"
    assert [Launch().device(name) for name in ("cuda", "cuda:3", "mps")] == [
        "cuda",
        "cuda:3",
        "mps",
    ]
    for name in ("cuda:3", "mps"):
        with pytest.raises(ValueError, match=f"device is '{name}', which 8 processes cannot share"):
            Launch(5, 8, 1).device(name)
