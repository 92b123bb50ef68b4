"""Who may ask a server of ours: who names it, and no page of another site."""

import pytest

from turngym.tools.http.hosts import Hosts, is_loopback

OURS = Hosts(["Box.example", "10.1.2.3", "[fd00::1]"])
OWN = [
    "127.0.0.1",
    "127.0.0.1:80",
    "localhost",
    "LOCALHOST.",
    "localhost:1",
    "[::1]:8000",
    "[::1]",
    "127.0.0.2",
]
NAMED = ["box.example", "BOX.example:443", "box.example.", "10.1.2.3:8000", "[fd00::1]:8000"]
FOREIGN = [
    "",
    "evil.example",
    "localhost.evil",
    "127.0.0.1.evil.example",
    "evil@127.0.0.1",
    "127.0.0.1@evil",
]
FOREIGN += [
    "127.0.0.1:80:evil",
    "127.0.0.1:80/evil",
    "evil:127.0.0.1",
    "[evil]",
    "127.0.0.1 evil",
    "127.0.0.1,evil",
]
FOREIGN += [
    "2130706433",
    "0x7f.1",
    "127.1",
    "0.0.0.0",
    "0",
    "10.0.0.1",
    "\xff",
    "localhost\t",
    "127.0.0.1%00.evil",
    ":80",
]


@pytest.mark.parametrize("host", [*OWN, *NAMED, "192.168.7.7:8000"])
def test_a_request_that_names_the_server_is_answered(host):
    assert OURS.refusal([host], [], "192.168.7.7") is None
    assert OURS.refusal([host], [f"http://{host}"], "192.168.7.7") is None
    assert OURS.refusal([host], [f"https://{host.upper()}"], "192.168.7.7") is None


@pytest.mark.parametrize("host", FOREIGN)
def test_another_host_is_refused_with_what_allows_it(host):
    refused = OURS.refusal([host], [], "192.168.7.7")
    assert refused is not None and refused.status == 421 and "--allow-host" in refused.why


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"]])
def test_a_request_has_one_host(hosts):
    assert OURS.refusal(hosts, []).status == 421


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "null",
            "",
            "http://evil.example",
            "http://localhost",
            "http://localhost:81",
            "localhost:80",
        ),
        *(
            "//localhost:80",
            "file://",
            "chrome-extension://localhost:80",
            "http://localhost:80#@evil",
        ),
        "http://localhost:80, http://evil",
    ],
)
def test_a_page_of_another_origin_is_refused(origin):
    for origins in ([origin], ["http://localhost:80", origin]):
        refused = OURS.refusal(["localhost:80"], origins)
        assert refused is not None and refused.status == 403


def test_only_loopback_is_this_machine():
    assert all(map(is_loopback, ("127.0.0.1", "127.255.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "local", "", "localhost.evil")))
