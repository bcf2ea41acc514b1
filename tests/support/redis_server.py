"""A private Redis without persistence. (Not redis.py: that name would hide the client library.)"""

import redis

from tests.support.process import Process, Server, find_program, free_port


class Redis(Server):
    """Redis(settings={"maxmemory": "1mb"}) -> a started-on-enter server; kill() loses its data, as nothing is saved."""

    name = "redis"

    def __init__(self, settings=None):
        super().__init__()
        self.port = free_port()
        self.settings = settings or {}

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def _launch(self):
        settings = {"bind": "127.0.0.1", "port": self.port, "save": "", "appendonly": "no", "dir": self.folder,
                    "daemonize": "no", **self.settings}
        options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        return Process([find_program("redis-server"), *options], self.log_path)

    def _answers(self):
        client = self.client(socket_timeout=1)
        try:
            return client.ping()
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False
        finally:
            client.close()

    def client(self, **parameters):
        """A redis-py client; replies are bytes."""
        return redis.Redis(host="127.0.0.1", port=self.port, **parameters)
