"""The local network of a boundary: a loopback device, which is down until a program wants a socket.

Most programs open no socket, and bringing a device up costs each boundary more than running a
program that prints a number.
"""

import contextlib
import fcntl
import os
import socket
import struct

# Bytes that the kernel may buffer at each end of a connection (least, first, most), and the number
# of closed connections that it remembers. The usual 32 MiB would go far beyond the size that the
# memory limit assumes for a socket (`linux.SOCKET_BUFFER_BYTES`).
_SETTINGS = {
    "tcp_rmem": "4096 65536 131072",
    "tcp_wmem": "4096 16384 131072",
    "tcp_max_tw_buckets": "256",
}
_SIOCSIFFLAGS = 0x8914  # the ioctl that sets the flags of a network device
_IFF_UP = 1
_IFREQ = struct.Struct("16sh22x")  # struct ifreq: a device's name and its flags


class LocalNetwork:
    """The network of a boundary, in whose init process this object lives.

    Args:
        proc_fd: Descriptor of `/proc`, opened before an empty folder covered it. The kernel looks
            up network settings below it in the network namespace of the process that opens them.
    """

    def __init__(self, proc_fd: int) -> None:
        self.proc_fd = proc_fd
        self.start_was_tried = False

    def start(self) -> None:
        """Bring the loopback device up, at the first call only.

        It stays down if the buffers of connections cannot be limited, since `/proc/sys` is
        read-only in some containers.
        """
        if self.start_was_tried:
            return
        self.start_was_tried = True
        # A program waits while the judge calls this, so errors are suppressed: its network is down.
        with contextlib.suppress(OSError):
            for name, value in _SETTINGS.items():
                self._write_setting(f"sys/net/ipv4/{name}", value)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                fcntl.ioctl(sock, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", _IFF_UP))

    def _write_setting(self, path: str, value: str) -> None:
        """Write to a file of `/proc`, given as a path relative to it."""
        setting_fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.proc_fd)
        try:
            os.write(setting_fd, value.encode())
        finally:
            os.close(setting_fd)
