import ipaddress
import socket
import time
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tools.search.url_guard import (
    Blocked,
    Guard,
    PageUrl,
    is_public,
    look_up_addresses,
    parse_url,
    resolve_redirect,
)
from turngym.tools.subprocesses.deadlines import Overdue

PUBLIC = "93.184.215.14"

# No lookup may be needed to see that these are wrong.
UNREADABLE = [
    "",
    "example.com",
    "//example.com/",
    "http:/example.com",
    "http:example.com",
    "http://",
    "http:///etc/passwd",
    "http://:80/",
    "file:///etc/passwd",
    "FILE://localhost/etc/passwd",
    "ftp://example.com/",
    "gopher://127.0.0.1:6379/_INFO",
    "dict://127.0.0.1:11211/",
    "data:text/html,hi",
    "javascript:alert(1)",
    "ws://example.com/",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "jar:http://example.com!/",
    "http://example.com@127.0.0.1:8265/",
    "http://user:secret@example.com/",
    "http://@example.com/",
    "http://127.0.0.1#@example.com:80@x/\\",
    "http://example.com\\@127.0.0.1/",
    "http://example.com\t/",
    "http://exa\nmple.com/",
    "http://example.com/\r\nHost: evil",
    "http://example.com/\0",
    "http://example.com/\x85",
    "http://example.com/\ud800",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:99999999/",
    "http://example.com:8a/",
    "http://example.com:٨٠/",
    "http://example.com:80:80/",
    "http://exa mple.com/",
    "http://exa%6dple.com/",
    "http://example..com/",
    "http://.example.com/",
    "http://example.com../",
    "http://-example.com/",
    "http://example.com-/",
    f"http://{'a' * 64}.com/",
    f"http://{'a.' * 127}com/",
    f"http://example.com/{'a' * 2048}",
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0x7f.0.0.0x1/",
    "http://0x/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0177.0.0.1/",
    "http://127.0.0.01/",
    "http://127.0.0.1.1/",
    "http://127.0.0.256/",
    "http://example.1/",
    "http://example.0x1/",
    "http://[127.0.0.1]/",
    "http://[::1/",
    "http://::1/",
    "http://[::1]x/",
    "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/",
    "http://[fe80::1%25eth0]:80/",
    "http://[v1.fe]/",
    "http://[1::2::3]/",
    "http://[]/",
    "http://①②⑦.⓪.⓪.①/",
    "http://ｌocalhost/",
    "http://exa\u200dmple.com/",
    "http://exam\u2044ple.com/",
]

# These are URLs, of hosts that no agent may reach.
PRIVATE = [
    "http://127.0.0.1/",
    "HTTP://127.0.0.1:80/",
    "http://127.0.0.1./",
    "http://127.255.255.254/",
    "http://127。0。0。1/",
    "http://0.0.0.0/",
    "http://0.1.2.3/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:5db8:d70e::1]/",
    "http://[2001:0:5db8:d70e::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[5f00::1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://x.localhost/",
    "http://printer.local/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://router.lan/",
    "http://router.home.arpa/",
    "http://kubernetes.default.svc/",
    "http://hidden.onion/",
    "http://intranet/",
    "http://metadata/",
    "http://93.184.215.14:8265/",
    "http://example.com:22/",
    "https://example.com:6379/",
]


def no_lookup(host, port):
    raise AssertionError(f"{host} was looked up")


@pytest.mark.parametrize("url", UNREADABLE)
def test_what_is_no_clear_url_of_the_web_is_blocked(url):
    with pytest.raises(Blocked) as blocked:
        parse_url(url)
    assert str(blocked.value).encode() and len(str(blocked.value)) < 120


@pytest.mark.parametrize("url", PRIVATE)
def test_what_is_not_on_the_public_internet_is_blocked_without_a_lookup(url):
    with pytest.raises(Blocked, match=r"is not a public host|cannot be visited"):
        Guard(resolve=no_lookup).check(parse_url(url), 1.0)


@pytest.mark.parametrize(
    ("url", "place", "spelled"),
    [
        ("http://example.com", PageUrl("http", "example.com", 80, "/"), "http://example.com/"),
        (
            " HTTPS://Example.COM.:443?q=a b#c ",
            PageUrl("https", "example.com", 443, "/?q=a%20b"),
            None,
        ),
        ("http://example.com:/a", PageUrl("http", "example.com", 80, "/a"), "http://example.com/a"),
        (
            "http://a-b.c_d.example:443/",
            PageUrl("http", "a-b.c_d.example", 443, "/"),
            "http://a-b.c_d.example:443/",
        ),
        (
            "https://bücher.example/ü%41",
            PageUrl("https", "xn--bcher-kva.example", 443, "/%C3%BC%41"),
            None,
        ),
        ("http://8.8.8.8/", PageUrl("http", "8.8.8.8", 80, "/"), "http://8.8.8.8/"),
        (
            "http://[2606:4700:0::1111]:80/",
            PageUrl("http", "2606:4700::1111", 80, "/"),
            "http://[2606:4700::1111]/",
        ),
        ("http://a.org/@b:c//d", PageUrl("http", "a.org", 80, "/@b:c//d"), "http://a.org/@b:c//d"),
    ],
)
def test_a_url_is_read_into_parts_and_spelled_in_one_way(url, place, spelled):
    assert parse_url(url) == place
    assert parse_url(place.normalized) == place
    assert spelled is None or place.normalized == spelled


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.sampled_from([*"htps:/@[]%.?#\\1x \t\nüé。", "http://", "127.0.0.1", "example", ".com"])
    ).map("".join)
)
def test_what_is_read_means_the_same_to_the_standard_library(url: str):
    try:
        place = parse_url(f"http://{url}")
    except Blocked:
        return
    parts = urlsplit(place.normalized)
    assert (parts.scheme, parts.hostname, parts.port or 80) == ("http", place.host, place.port)
    assert (
        parts.username is None
        and place.normalized.isascii()
        and place.normalized.isprintable()
        and " " not in place.normalized
    )


@settings(deadline=None, max_examples=300)
@given(st.ip_addresses())
def test_no_address_is_public_that_the_standard_library_knows_better(
    address: ipaddress.IPv4Address,
):
    if is_public(str(address)) and not getattr(address, "ipv4_mapped", None):
        nat64 = address in ipaddress.ip_network("64:ff9b::/96") if address.version == 6 else False
        assert nat64 or (address.is_global and not address.is_multicast and not address.is_reserved)


@pytest.mark.parametrize(
    "address",
    [
        PUBLIC,
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_addresses_of_the_public_internet_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address", ["", "x", "2606:4700::1111%eth0", "8.8.8", "::ffff:10.0.0.1", "fe80::1%2"]
)
def test_what_is_no_public_address_is_none(address):
    assert not is_public(address)


def test_a_name_is_looked_up_once_and_all_its_addresses_are_pinned():
    asked = []

    def resolve(host, port):
        asked.append((host, port))
        return [PUBLIC, "2606:4700::1111"]

    assert Guard(resolve=resolve).check(parse_url("https://Example.com./x"), 5.0) == (
        PUBLIC,
        "2606:4700::1111",
    )
    assert asked == [("example.com", 443)]
    assert Guard(resolve=no_lookup).check(parse_url("http://8.8.8.8/"), 5.0) == ("8.8.8.8",)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1%eth0", "not an address"]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_private_address_among_public_ones_blocks_a_name_and_is_not_told(address, place):
    addresses = [PUBLIC, "2606:4700::1111"]
    addresses.insert(place, address)
    with pytest.raises(Blocked, match=r"^127.0.0.1.nip.io is not a public host$"):
        Guard(resolve=lambda host, port: addresses).check(
            parse_url("http://127.0.0.1.nip.io/"), 5.0
        )


def test_a_lookup_fails_and_ends_in_time():
    place = parse_url("http://example.com/")
    with pytest.raises(OSError, match="has no address"):
        Guard(resolve=lambda host, port: []).check(place, 5.0)

    def unknown(host, port):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    with pytest.raises(socket.gaierror):
        Guard(resolve=unknown).check(place, 5.0)
    with pytest.raises(Overdue):
        Guard(resolve=lambda host, port: time.sleep(1.0)).check(place, 0.01)


def test_a_user_opens_hosts_and_ports():
    guard = Guard(
        ["127.0.0.1:8080", "Wiki.Corp.", ":8000", "[::1]:9"], lambda host, port: ["10.0.0.9"]
    )
    open_to = {
        "http://127.0.0.1:8080/": ("127.0.0.1",),
        "http://wiki.corp/": ("10.0.0.9",),
        "https://wiki.corp/": ("10.0.0.9",),
        "http://8.8.8.8:8000/": ("8.8.8.8",),
        "http://[0::1]:9/": ("::1",),
    }
    assert {url: guard.check(parse_url(url), 5.0) for url in open_to} == open_to
    for url in (
        "http://127.0.0.1/",
        "http://127.0.0.1:8000/",
        "http://127.0.0.2:8080/",
        "http://wiki.corp:8080/",
        "http://x.wiki.corp/",
        "http://example.com/",
        "http://example.com:8000/",
        "http://[::1]/",
    ):
        with pytest.raises(Blocked):
            guard.check(parse_url(url), 5.0)


def test_one_entry_may_stand_alone_and_a_wrong_one_is_named():
    assert Guard("127.0.0.1:81").check(parse_url("http://127.0.0.1:81/"), 1.0) == ("127.0.0.1",)
    for entry in ("http://a.org", "a b", "", ":", ":0", "10.0.0.0/8", "u@a.org", "0x7f.1"):
        with pytest.raises(
            ValueError, match=r"allow holds .*; write host, host:port or :port"
        ) as refused:
            Guard([entry])
        assert repr(entry) in str(refused.value) and not isinstance(refused.value, Blocked)


def test_the_agent_is_told_what_is_wrong_with_a_url():
    for url, words in {
        "http://user:secret@example.com/": "holds a user name or a password",
        "file:///etc/passwd": "only a URL that begins with http:// or https://",
        "http://example.com:0/": "there is no port 0",
        "http://2130706433/": "neither a host name nor an address in its usual spelling",
        "http://example.com/\0": "a control character",
    }.items():
        with pytest.raises(Blocked, match=words) as blocked:
            parse_url(url)
        assert "secret" not in str(blocked.value)


def test_a_redirect_is_resolved_and_read_like_any_url():
    place = parse_url("https://example.com/a/b?c")
    assert resolve_redirect(place, "../d e").normalized == "https://example.com/d%20e"
    assert resolve_redirect(place, "//other.example/x").normalized == "https://other.example/x"
    assert (
        resolve_redirect(parse_url("http://example.com/"), "https://example.com/").scheme == "https"
    )
    for location in ("http://example.com/", "HTTP://example.com"):
        with pytest.raises(Blocked, match="from https to http"):
            resolve_redirect(place, location)
    for location in (
        "file:///etc/passwd",
        "http://[",
        "//user@example.com/",
        "//[::1",
        "\\\\127.0.0.1\\x",
    ):
        with pytest.raises(Blocked):
            resolve_redirect(place, location)


def test_names_are_looked_up_by_the_system():
    assert look_up_addresses("127.0.0.1", 80) == ["127.0.0.1"]
