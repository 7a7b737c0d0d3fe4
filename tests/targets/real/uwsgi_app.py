"""An application for uWSGI: it answers with a sum."""

import os

import rounds
import uwsgidecorators


@uwsgidecorators.postfork
def say_ready():
    rounds.say("ready", os.getpid())


def total(upto):
    return sum(number * number for number in range(upto))


def application(environ, start_response):
    upto = int(environ["QUERY_STRING"])
    body = f"{upto}: {total(upto)}\n".encode()  # @step
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
