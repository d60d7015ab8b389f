"""Listens to loopback: what a client says to a node's url, with nothing in between.

Needs a network namespace of its own, in which it may open a packet socket.
"""

import json
import socket
import struct
import threading
import typing

ETH_P_IP = 0x0800
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 64 << 20


class Wire:
    """Keeps what is sent to one port of loopback, by connection."""

    def __init__(self, port):
        self.port = port
        self._connections = {}
        self._heard = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.bind(("lo", ETH_P_IP))
        self._socket.settimeout(0.2)
        self._listening = True
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listening = False
        self._thread.join()
        self._socket.close()

    def _listen(self):
        while True:
            try:
                # One protocol alone is shown on its way in, so each packet once.
                self._take(self._socket.recv(1 << 17))
            except TimeoutError:
                if self._listening:
                    continue
                return

    def _take(self, packet):
        header = (packet[0] & 15) * 4
        total = struct.unpack("!H", packet[2:4])[0] or len(packet)
        if packet[9] != socket.IPPROTO_TCP:
            return
        segment = packet[header:total]
        source, destination, sequence = struct.unpack("!HHI", segment[:8])
        data = segment[(segment[12] >> 4) * 4 :]
        if destination == self.port and data:
            self._heard += 1
            # By sequence number, so that what is sent again is kept once.
            parts = self._connections.setdefault(source, {})
            parts.setdefault(sequence, (self._heard, data))

    def requests(self):
        """Returns the requests in the order in which they began to arrive."""
        found = []
        for parts in self._connections.values():
            stream = b"".join(data for _, data in parts.values())
            begins = []
            for heard, data in parts.values():
                begins += [heard] * len(data)
            for request in requests_of(stream):
                found.append((begins[request.at], request))
        return [request for _, request in sorted(found, key=lambda each: each[0])]


class Request(typing.NamedTuple):
    """One request of HTTP."""

    at: int
    """Where it begins in the bytes of its connection."""
    method: str
    headers: dict
    body: object
    """Its JSON, or None."""


def requests_of(stream):
    """Reads the requests of one connection out of its bytes."""
    found = []
    whole = len(stream)
    while b"\r\n\r\n" in stream:
        at = whole - len(stream)
        head, stream = stream.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)
        }
        if headers.get("transfer-encoding") == "chunked":
            body, stream = unchunked(stream)
        else:
            length = int(headers.get("content-length", 0))
            body, stream = stream[:length], stream[length:]
        try:
            value = json.loads(body) if body else None
        except ValueError:
            value = None
        found.append(Request(at, first.split(" ")[0], headers, value))
    return found


def unchunked(stream):
    body = b""
    while b"\r\n" in stream:
        size, stream = stream.split(b"\r\n", 1)
        length = int(size, 16)
        body, stream = body + stream[:length], stream[length + 2 :]
        if length == 0:
            break
    return body, stream
