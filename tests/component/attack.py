#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Speaks the protocol of the nodes' agents (docs/agent-protocol.md), well and badly.

attack.py [OPTION]... VERB [ARG]...    status 0: it went as the verb's description says
"""

import argparse
import hashlib
import hmac
import itertools
import os
import resource
import selectors
import socket
import struct
import subprocess
import sys
import time

CHALLENGE, REFUSE, GREETING, ACCEPT, HEARTBEAT, REPORT, ACK, ASK = range(1, 9)
HEADER = struct.Struct(">4sBBHIQ")
UP, RUNNING = 1, 1


def frame(kind, body, counter=0, key=None):
    text = HEADER.pack(b"TGNF", 1, kind, 0, len(body), counter) + body
    return text + hmac.new(key, text, hashlib.sha256).digest() if key else text


def text(value):
    value = value.encode()
    return struct.pack(">H", len(value)) + value


class Closed(Exception):
    pass


class Peer:
    """One connection from an address of ours."""

    def __init__(self, options, source=None):
        self.options = options
        self.socket = socket.create_connection(
            options.server, timeout=15, source_address=(source or options.source, 0)
        )
        self.key = os.urandom(32)
        self.keys = None
        self.counter = 0
        self.answered = True
        self.sent = b""  # the last frame

    def bytes(self, count):
        got = b""
        while len(got) < count:
            try:
                piece = self.socket.recv(count - len(got))
            except ConnectionResetError as e:
                raise Closed from e
            if not piece:
                raise Closed
            got += piece
        return got

    def hear(self):
        head = self.bytes(HEADER.size)
        _, _, kind, _, size, self.heard = HEADER.unpack(head)
        body = self.bytes(size)
        self.last = head + body
        if kind in (ACCEPT, ACK, ASK):
            mac = self.bytes(32)
            self.last += mac
            wanted = hmac.new(self.keys[1], head + body, hashlib.sha256).digest()
            if not hmac.compare_digest(mac, wanted):
                raise SystemExit("the server's MAC is wrong")
        return kind, body

    def expect(self, kind):
        got, body = self.hear()
        if got == REFUSE:
            raise SystemExit(f"refused: {body[3:].decode()}")
        if got != kind:
            raise SystemExit(f"expected a frame of type {kind}, got {got}")
        return body

    def challenged(self):
        self.nonce = self.expect(CHALLENGE)
        return self

    def payload(self):
        o = self.options
        return (b"TGNG\1" + self.nonce + self.key + text(o.node) + text(o.pod)
                + text("boot") + text(o.instance))  # fmt: skip

    def credential(self):
        o = self.options
        command = ["munge", "--restrict-uid", o.reader, "--cipher", "aes256", "--ttl", "60"]
        if o.munge_socket:
            command += ["--socket", o.munge_socket]
        made = subprocess.run(
            command, input=self.payload(), stdout=subprocess.PIPE, check=True, user=o.uid, timeout=10
        )
        return made.stdout.strip()

    def send(self, data):
        self.sent = data
        self.socket.sendall(data)

    def greet(self, credential=None):
        self.challenged()
        self.greeting = frame(GREETING, credential or self.credential())
        self.send(self.greeting)
        derive = lambda label: hmac.new(self.key, label, hashlib.sha256).digest()
        self.keys = (
            derive(b"tidegate agent to bridge 1"),
            derive(b"tidegate bridge to agent 1"),
        )
        return self

    def accepted(self):
        period, _ = struct.unpack(">IQ", self.expect(ACCEPT))
        self.period = period / 1000
        return self

    def heartbeat(self, key=None, counter=None):
        self.counter += 1
        now = int(time.monotonic() * 1000)
        body = struct.pack(">QBBIII", now, UP, RUNNING, 1, 0, 0)
        return frame(HEARTBEAT, body, counter or self.counter, key or self.keys[0])

    def beat(self):
        """The first is answered, then each second one: they tell nothing new."""
        self.send(self.heartbeat())
        if self.answered:
            self.expect(ACK)
        self.answered = not self.answered

    def linked(self):
        self.greet().accepted()
        self.beat()
        return self

    def refused(self, words):
        """The server says so, and closes."""
        kind, body = self.hear()
        said = body[3:].decode() if kind == REFUSE else f"a frame of type {kind}"
        if kind != REFUSE or words not in said:
            raise SystemExit(f"expected a refusal with '{words}', got: {said}")
        self.closed()
        print(f"refused: {said}")

    def closed(self):
        """The server closes without another word."""
        try:
            kind, _ = self.hear()
        except Closed:
            return
        raise SystemExit(f"expected the end of the connection, got a frame of type {kind}")


# ---- verbs --------------------------------------------------------------------------------------


def agent(o, seconds):
    """An honest agent: linked, and answered for so many seconds."""
    begin = time.monotonic()
    peer = Peer(o).linked()
    print(f"linked after {(time.monotonic() - begin) * 1000:.0f} ms", flush=True)
    while time.monotonic() < begin + float(seconds):
        time.sleep(peer.period)
        peer.beat()


def refused(o, words):
    """A greeting by the options given is refused with these words."""
    Peer(o).greet().refused(words)


def closed(o):
    """The connection is closed before the server has said a word."""
    try:
        Peer(o).closed()
    except ConnectionResetError:
        pass  # as fast as that


def replayed_greeting(o):
    """What an agent sent is sent again on another connection, while its link stands and afterwards."""
    peer = Peer(o).linked()
    credential = peer.greeting[HEADER.size :]
    Peer(o).greet(credential).refused("used before")
    peer.beat()
    peer.beat()
    peer.socket.close()
    Peer(o).greet(credential).refused("used before")


def replayed_frame(o):
    """A heartbeat is sent twice, byte by byte."""
    peer = Peer(o).linked()
    peer.send(peer.sent)
    peer.closed()


def no_mac(o):
    """A heartbeat whose MAC is left out, and the next frame taken for it."""
    peer = Peer(o).linked()
    peer.send(peer.heartbeat()[:-32] + peer.heartbeat())
    peer.closed()


def wrong_mac(o):
    """A heartbeat under a key that is guessed, and one of which a bit was turned over."""
    peer = Peer(o).linked()
    peer.send(peer.heartbeat(key=bytes(32)))
    peer.closed()
    peer = Peer(o).linked()
    bad = bytearray(peer.heartbeat())
    bad[HEADER.size + 8] ^= 1
    peer.send(bytes(bad))
    peer.closed()


def reflected(o):
    """What the server sent is sent back to it."""
    peer = Peer(o).linked()
    peer.send(peer.last)
    peer.closed()
    peer = Peer(o)
    peer.challenged()
    peer.send(peer.last)
    peer.refused("does not begin with a greeting")


def before_the_greeting(o):
    """A heartbeat of somebody who has no key."""
    peer = Peer(o).challenged()
    peer.send(peer.heartbeat(key=bytes(32)))
    peer.refused("before the greeting")


def oversized(o):
    """Headers that announce up to 4 GiB; nothing of the body is sent."""
    for size in (2049, 16385, 0x7FFFFFFF, 0xFFFFFFFF):
        peer = Peer(o).challenged()
        peer.send(HEADER.pack(b"TGNF", 1, GREETING, 0, size, 0))
        peer.refused(f"says to have {size} bytes")
    peer = Peer(o).linked()
    peer.send(HEADER.pack(b"TGNF", 1, REPORT, 0, 0xFFFFFFFF, 2))
    peer.closed()


def slow(o):
    """A good greeting, one byte a second: ended 5 s after accept()."""
    peer = Peer(o).challenged()
    begin = time.monotonic()
    whole = frame(GREETING, peer.credential())
    for byte in whole:
        try:
            peer.socket.sendall(bytes([byte]))
        except (BrokenPipeError, ConnectionResetError):
            break
        peer.socket.settimeout(1)
        try:
            kind, body = peer.hear()
        except TimeoutError:
            continue
        print(f"type {kind}: {body[3:].decode()}")
        break
    took = time.monotonic() - begin
    if not 3.5 < took < 8:
        raise SystemExit(f"it was ended after {took:.1f} s, expected 5 s")


def garbage(o):
    """Bytes of another protocol, and none that make sense."""
    for data in (b"GET / HTTP/1.1\r\nHost: bridge\r\n\r\n", b"\x16\x03\x01\x02\x00" * 10, bytes(300)):
        peer = Peer(o).challenged()
        peer.send(data)
        peer.refused("does not speak the protocol")


def addresses(prefix):
    """PREFIX.0.1, PREFIX.0.2 and so on, of a network of 16 bits."""
    for high, low in itertools.product(range(256), range(1, 255)):
        yield f"{prefix}.{high}.{low}"


def crowd(o, prefix, per_address, count, seconds):
    """Opens so many connections that say nothing, so many from an address; opens those that the
    server ends again, 2,000 a second, for so many seconds. Says 'ready' once all were opened."""
    count, per_address = int(count), int(per_address)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
    selector = selectors.DefaultSelector()
    sources = itertools.cycle(
        list(itertools.islice(addresses(prefix), max(1, count // per_address)))
    )
    opened = 0

    def open_one():
        nonlocal opened
        s = socket.socket()
        s.setblocking(False)
        s.bind((next(sources), 0))
        s.connect_ex(o.server)
        selector.register(s, selectors.EVENT_READ)
        opened += 1

    def take_ended(most):
        for key, _ in selector.select(0)[:most]:
            try:
                data = key.fileobj.recv(4096)
            except OSError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                open_one()

    for i in range(count):
        open_one()
        if i % 50 == 0:
            take_ended(50)
    print("ready", flush=True)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        take_ended(100)
        time.sleep(0.05)
    print(f"opened {opened}", flush=True)


VERBS = {
    f.__name__.replace("_", "-"): f
    for f in (agent, refused, closed, replayed_greeting, replayed_frame, no_mac, wrong_mac,
              reflected, before_the_greeting, oversized, slow, garbage, crowd)
}  # fmt: skip


def main():
    verbs = "\n".join(f"  {name:20} {' '.join(f.__doc__.split())}" for name, f in VERBS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=verbs, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="10.99.0.1:6821")
    parser.add_argument("--source", default="10.99.1.1", help="the address to come from")
    parser.add_argument("--node", default="w1")
    parser.add_argument("--pod", default="uid-1")
    parser.add_argument("--instance", default="i1")
    parser.add_argument("--uid", type=int, default=0, help="who makes the credential")
    parser.add_argument("--reader", default="slurm", help="who may read it")
    parser.add_argument("--munge-socket")
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("args", nargs="*")
    options = parser.parse_args()
    host, port = options.server.rsplit(":", 1)
    options.server = (host, int(port))
    try:
        VERBS[options.verb](options, *options.args)
    except Closed:
        sys.exit("the server closed the connection")


if __name__ == "__main__":
    main()
