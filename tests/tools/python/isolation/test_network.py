"""The local network of a session: a loopback device of its own, and nothing of the machine's."""

import socket

import pytest

from turngym.tools import PythonTool, Status

SERVER = """
import http.server, pathlib, socket, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
pathlib.Path("page").write_text("x" * 300_000)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
for name in ("127.0.0.1", "localhost"):
    with urllib.request.urlopen(f"http://{name}:{server.server_port}/page") as answer: print(len(answer.read()))
server.shutdown()
server.server_close()
"""


def test_a_server_and_a_client_of_one_session_meet(python: PythonTool, ok):
    assert ok(python, SERVER) == "300000\n300000\n"


def test_both_families_both_protocols_and_children_have_it(python: PythonTool, ok):
    script = """
import os, socket
with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
    if not os.fork():
        with socket.create_connection(server.getsockname()[:2]) as one: one.sendall(b"x" * 10**6)
        os._exit(0)
    other, _ = server.accept()
    with other: got = sum(map(len, iter(lambda: other.recv(2**16), b"")))
    os.wait()
one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
one.bind(("127.0.0.1", 0)), other.sendto(b"x", one.getsockname())
print(got, one.recv(9))
one.close()
other.close()
"""
    assert ok(python, script) == "1000000 b'x'\n"


def test_a_fork_has_it_too_and_other_sessions_do_not(python: PythonTool, ok):
    ok(
        python,
        "import socket\ndef reached(port):\n    return socket.socket().connect_ex(('127.0.0.1', port)) == 0",
    )
    other, twin = PythonTool(timeout=30.0), python.fork()
    ok(other, "import socket\nserver = socket.create_server(('127.0.0.1', 0))")
    port = int(ok(other, "server.getsockname()[1]"))
    assert ok(python, f"reached({port})") == "False\n"
    mine = int(ok(twin, "server = socket.create_server(('127.0.0.1', 0))\nserver.getsockname()[1]"))
    assert ok(python, f"reached({mine})") == "True\n"
    for tool in (twin, other):
        tool.close()


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_nothing_of_the_machine_is_reached(python: PythonTool, ok, family: str):
    host = "127.0.0.1" if family == "AF_INET" else "::1"
    with (
        socket.create_server((host, 0), family=getattr(socket, family)) as server,
        socket.socket(socket.AF_UNIX) as hidden,
    ):
        hidden.bind("\0turngym-" + str(server.getsockname()[1]))
        hidden.listen()
        server.settimeout(0.0)
        script = f"""
import socket
def reached(family, address):
    with socket.socket(family) as one:
        one.settimeout(2)
        try: one.connect(address)
        except OSError as error: return type(error).__name__
    return "reached"
own = {server.getsockname()[1]}
print([reached(socket.{family}, ({host!r}, own)), reached(socket.AF_UNIX, f"\\0turngym-{{own}}"),
       reached(socket.AF_INET, ("10.0.0.1", 80)), reached(socket.AF_INET, ("192.0.2.1", 80))])
with socket.socket() as one:
    import fcntl
    names = [name for _, name in socket.if_nameindex()]
print(names)
"""
        refused = "ConnectionRefusedError"
        assert ok(python, script) == f"['{refused}', '{refused}', 'OSError', 'OSError']\n['lo']\n"
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_program_cannot_change_it(python: PythonTool, ok):
    script = """
import fcntl, socket, struct
with socket.socket() as one:
    try: print(fcntl.ioctl(one, 0x8914, struct.pack("16sh22x", b"lo", 0)))
    except OSError as error: print(error.errno)
with socket.create_server(("127.0.0.1", 0)): print("up")
"""
    assert ok(python, script) == "25\nup\n"


def test_there_is_none_without_namespaces(run):
    tool = PythonTool(timeout=30.0, level="landlock")
    result = run(tool, "import socket\nsocket.create_server(('127.0.0.1', 0))")
    assert result.status is Status.ERROR and "PermissionError" in result.text
    tool.close()
