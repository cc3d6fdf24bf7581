"""The minimum cost of polls in Python: a loop that receives and sends without parsing."""

from __future__ import annotations

import select
import socket

BODY = b"x" * 300
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


def main() -> None:
    """Print the port, and answer until the process ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    print(listener.getsockname()[1], flush=True)
    ready = select.epoll()
    ready.register(listener, select.EPOLLIN)
    open_now: dict[int, socket.socket] = {}
    while True:
        for number, _ in ready.poll():
            if number == listener.fileno():
                connection, _ = listener.accept()
                open_now[connection.fileno()] = connection
                ready.register(connection, select.EPOLLIN)
            elif open_now[number].recv(65536):
                open_now[number].send(ANSWER)
            else:
                ready.unregister(number)
                open_now.pop(number).close()


if __name__ == "__main__":
    main()
