"""Asks an agent over TLS that is verified by its own certificate, as `curl --cacert` does, and prints the status.

Its arguments are the port, the certificate's file, and the value of Authorization.
"""

import http.client
import ssl
import sys

port, certificate, authorization = sys.argv[1:4]
context = ssl.create_default_context(cafile=certificate)
context.check_hostname = False
connection = http.client.HTTPSConnection("127.0.0.1", int(port), context=context)
connection.request("GET", "/targets", headers={"Authorization": authorization})
print(connection.getresponse().status)
