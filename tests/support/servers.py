"""Every server that tests, demo and bench can start: one import for all.

Each is a context manager, listens on free loopback ports only, lives in its own folder under TMPDIR and leaves nothing
behind. start(), stop(), kill(), pause() and resume() work in between, on the same ports."""

from tests.support.http_receiver import CLOSE, DROP, HALF, HANG, HttpReceiver, Reply
from tests.support.kafka import Kafka
from tests.support.nginx import Nginx
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres import Database, Postgres, Standby
from tests.support.process import ServerError, free_port, wait_until
from tests.support.redis_server import Redis
from tests.support.relay import Relay, run_command

__all__ = ["CLOSE", "DROP", "HALF", "HANG", "Database", "HttpReceiver", "Kafka", "Nginx", "PgBouncer", "Postgres", "Redis",
           "Relay", "Reply", "ServerError", "Standby", "free_port", "run_command", "wait_until"]
