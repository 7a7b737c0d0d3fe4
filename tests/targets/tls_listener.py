"""Takes TLS connections with somebody's certificate, prints what is said to it, and hangs up.

Its arguments are the files of the certificate and of its key.
"""

import socket
import ssl
import sys

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:3])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    plain, _ = listener.accept()
    try:
        with context.wrap_socket(plain, server_side=True) as connection:
            print("heard", repr(connection.recv(65536)), flush=True)
    except OSError:
        # It wanted to see the certificate, and hung up.
        print("heard b''", flush=True)
