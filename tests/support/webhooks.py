"""How receivers tell that a request is signed by Standard Webhooks: by the libraries of PyPI and npm, which ./dev setup
installs.

    with PythonWebhooks() as webhooks:      # or NodeWebhooks()
        webhooks.accept(secret, request)    # an HttpReceiver's

available() of each says whether it is there."""

import base64
import json
import os
import shutil
import subprocess
import sys

from tests.support.process import REPO

PYTHON_PATH = os.path.join(REPO, ".cache", "python")
NODE_PATH = os.path.join(REPO, ".cache", "node", "node_modules")

# One line for each question: {secret, headers, body}.
NODE = """
const { Webhook, WebhookVerificationError } = require("standardwebhooks");
require("readline").createInterface({ input: process.stdin }).on("line", line => {
  const { secret, headers, body } = JSON.parse(line);
  let accepted = true;
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64"), headers);
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    accepted = false;
  }
  console.log(accepted);
});
"""


class PythonWebhooks:
    @staticmethod
    def available():
        return os.path.isdir(os.path.join(PYTHON_PATH, "standardwebhooks"))

    def __enter__(self):
        if PYTHON_PATH not in sys.path:
            sys.path.append(PYTHON_PATH)
        import standardwebhooks  # not there without ./dev setup
        self.library = standardwebhooks
        return self

    def __exit__(self, *_):
        pass

    def accept(self, secret, request):
        try:
            self.library.Webhook(secret).verify(request.body, request.headers, json_parse=False)
        except self.library.WebhookVerificationError:
            return False
        return True


class NodeWebhooks:
    """Takes only bodies that are JSON or empty, because the library reads them, too."""

    @staticmethod
    def available():
        return bool(shutil.which("node")) and os.path.isdir(os.path.join(NODE_PATH, "standardwebhooks"))

    def __enter__(self):
        self.process = subprocess.Popen(["node", "-e", NODE], env={**os.environ, "NODE_PATH": NODE_PATH}, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)

    def accept(self, secret, request):
        question = {"secret": secret, "headers": request.headers, "body": base64.b64encode(request.body).decode()}
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return {"true\n": True, "false\n": False}[self.process.stdout.readline()]
