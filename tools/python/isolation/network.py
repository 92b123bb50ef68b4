"""The local network of a boundary: a loopback device, which is down until a program opens a socket that could use it.

Most programs open none, and a device that comes up costs each boundary more than a program that prints a number.
"""

import fcntl
import os
import socket
import struct

# Bytes that a connection may hold at each end (least, first, most), and ended ones that are remembered. The usual
# 32 MiB would go far beyond what a socket is counted with (`linux.SOCKET`).
_SETTINGS = {
    "tcp_rmem": "4096 65536 131072",
    "tcp_wmem": "4096 16384 131072",
    "tcp_max_tw_buckets": "256",
}
_SET_FLAGS, _UP = 0x8914, 1  # SIOCSIFFLAGS, IFF_UP
_REQUEST = struct.Struct("16sh22x")  # struct ifreq: a device's name and its flags


class LocalNetwork:
    """The network of a boundary, which its init holds; `proc` is a descriptor of `/proc`.

    A descriptor, since by then the boundary's `/proc` is covered. The kernel looks up the settings of the network of
    whoever opens them.
    """

    def __init__(self, proc: int) -> None:
        self.proc, self.tried = proc, False

    def start(self) -> None:
        """Bring the loopback device up, once; it stays down where what connections hold cannot be limited."""
        if self.tried:
            return
        self.tried = True
        try:
            for name, value in _SETTINGS.items():
                _write(f"sys/net/ipv4/{name}", value, self.proc)
        except OSError:  # `/proc/sys` is read-only, as in some containers
            return
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, _SET_FLAGS, _REQUEST.pack(b"lo", _UP))


def _write(path: str, value: str, folder: int) -> None:
    setting = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(setting, value.encode())
    finally:
        os.close(setting)
