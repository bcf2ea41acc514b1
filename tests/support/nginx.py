"""An nginx that answers 200 to everything: a receiver faster than the relay, for benches."""

import http.client
import os

from tests.support.process import Process, Server, accepts, find_program, free_port

CONFIG = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000; keepalive_timeout 1h;
    client_max_body_size 128m;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; location / {{ return 200; }} location = /status {{ stub_status; }} }}
}}
"""


class Nginx(Server):
    name = "nginx"

    def __init__(self):
        super().__init__()
        self.port = free_port()
        self.asked = 0
        self.asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        self.config = os.path.join(self.folder, "nginx.conf")
        with open(self.config, "w") as file:
            file.write(CONFIG.format(folder=self.folder, port=self.port))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def requests(self):
        """How many it has been sent so far, those of this method left out."""
        self.asked += 1
        self.asking.request("GET", "/status")  # over one connection: nginx may be busy
        numbers = self.asking.getresponse().read().decode().splitlines()[2]  # accepts handled requests
        return int(numbers.split()[2]) - self.asked

    def _launch(self):
        return Process([find_program("nginx"), "-c", self.config, "-e", self.log_path], self.log_path)

    def _answers(self):
        return accepts(self.port)
