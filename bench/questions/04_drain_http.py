"""How fast to an HTTP receiver, one request an event, over kept connections?"""

from tests.support import servers


def ask(bench):
    with servers.Nginx() as nginx:
        return [bench.compare_drain("drain to HTTP", f'{{ type: http, url: "{nginx.url}/in" }}',
                                    note="nginx that answers 200; 256 connections")]
