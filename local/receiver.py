#!/usr/bin/env python3
"""Webhook receivers to try things with.

The demo runs one server with a path per behaviour. Started alone, this file is a
receiver that shows what it gets:

    python3 local/receiver.py [--port 9000] [--status 200]

It listens on the loopback address only, and needs nothing but Python.
"""

import argparse
import socketserver
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Optional

HOST = "127.0.0.1"
# How long a silent receiver waits for the sender to give up.
SILENCE_SECONDS = 60


@dataclass
class Answer:
    status: int
    headers: dict = field(default_factory=dict)


# A receiver that has the request and says nothing, until the sender hangs up.
SILENCE = None


@dataclass
class Request:
    """What came in, exactly."""

    at: float
    path: str
    headers: dict
    body: bytes
    number: int
    status: Optional[int] = None
    answered_at: Optional[float] = None

    @property
    def event(self):
        return self.headers.get("webhook-id")


class Receivers:
    """A server whose paths each have a behaviour: a function from the number of the
    request on that path (1, 2, ...) to an Answer or SILENCE. It may be replaced
    while the server runs: that is how a receiver is repaired.
    """

    def __init__(self, behaviours, port=0, seen=None):
        self.behaviours = dict(behaviours)
        self.requests = []
        self._seen = seen
        self._lock = threading.Lock()
        self._server = _Server((HOST, port), _Handler)
        self._server.receivers = self
        self.port = self._server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def url(self, path):
        return f"http://{HOST}:{self.port}{path}"

    def repair(self, path):
        self.behaviours[path] = lambda number: Answer(200)

    def received(self, path):
        with self._lock:
            return [request for request in self.requests if request.path == path]

    def unexpected(self):
        with self._lock:
            return [request for request in self.requests if request.path not in self.behaviours]

    def _take(self, path, headers, body):
        """The request is in our hands from here on, whatever we answer."""
        with self._lock:
            number = 1 + sum(1 for request in self.requests if request.path == path)
            request = Request(time.time(), path, headers, body, number)
            self.requests.append(request)
        behaviour = self.behaviours.get(path, self.behaviours.get("*"))
        return request, behaviour(number) if behaviour else Answer(404)

    def _tell(self, request):
        if self._seen:
            self._seen(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def server_bind(self):
        # Not HTTPServer's own: it looks up the name of the address, which may hang.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request, client_address):
        # A sender that hangs up is ordinary here.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        receivers = self.server.receivers
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request, answer = receivers._take(self.path, headers, body)
        if answer is SILENCE:
            receivers._tell(request)
            self.close_connection = True
            self.connection.settimeout(SILENCE_SECONDS)
            self.connection.recv(1)  # returns when the sender hangs up
            return
        # Before the answer goes out, so that the sender cannot be faster than our own notes.
        request.status, request.answered_at = answer.status, time.time()
        receivers._tell(request)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def _show(request):
    event, attempt = request.event or "no webhook-id", request.headers.get("redeliver-attempt", "?")
    print(f"{time.strftime('%H:%M:%S')}  {event}, attempt {attempt}, answered {request.status}", flush=True)
    print(f"          {request.body.decode(errors='replace')}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="A webhook receiver that shows what it gets.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--status", type=int, default=200, help="what it answers (200)")
    options = parser.parse_args()
    try:
        receivers = Receivers({"*": lambda number: Answer(options.status)}, options.port, _show)
    except OSError as error:
        sys.exit(f"Port {options.port} cannot be used ({error.strerror}); choose another with --port.")
    with receivers:
        print(f"Listening on {receivers.url('/')} and answering {options.status}. Ctrl-C stops.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
