"""A server of S3's protocol on loopback, whose conditional writes hold, are ignored, are refused or lose their answers.

moto looks at the condition and writes afterwards, which two threads can do at once; here requests go one by one.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from ebclab.config.addresses import STORES

Behaviour = Literal["heeds", "ignores", "not implemented", "loses answers"]


class OneByOne:
    """moto's application, one request at a time.

    Args:
        application: moto's.

    Attributes:
        behaviour: What becomes of conditions.
        requests: Method, path and status of every request since the list was cleared.
        users: Keys with which requests were signed.
        hidden: Beginnings of the names of objects that HEAD does not find.
        busy: Of the requests for files that test the store, the numbers of those that get the answer 503.
        is_done: Whether such a request was carried out before.
    """

    def __init__(self, application: Any) -> None:
        self._application, self._lock = application, threading.Lock()
        self.behaviour: Behaviour = "heeds"
        self.requests: list[tuple[str, str, str]] = []
        self.hidden: tuple[str, ...] = ()
        self.users: set[str] = set()
        self.busy: set[int] = set()
        self.is_done = False
        self._tests = 0

    def count_anew(self) -> None:
        """Let the next request for a file that tests the store be number 0."""
        self._tests = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        conditions = [name for name in ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH") if name in environ]
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if "Credential=" in (signed := environ.get("HTTP_AUTHORIZATION", "")):
            self.users.add(signed.partition("Credential=")[2].partition("/")[0])
        said: list[Any] = []

        def answer(status: str, headers: Any, *more: Any) -> Any:
            said[:] = [status, headers]

        with self._lock:
            is_busy, is_test = self._tests in self.busy, "/.try-" in path
            self._tests += is_test
            if is_test and is_busy and not self.is_done:
                content, said[:] = [b""], ["503 Slow Down", []]
            elif method == "HEAD" and self.hidden and path.rpartition("/")[2].startswith(self.hidden):
                content, said[:] = [b""], ["404 Not Found", []]
            elif conditions and self.behaviour == "not implemented":
                content, said[:] = [b""], ["501 Not Implemented", []]
            else:
                if self.behaviour == "ignores":
                    for name in conditions:
                        del environ[name]
                content = list(self._application(environ, answer))
            if conditions and self.behaviour == "loses answers":
                self.behaviour = "heeds"
                content, said[:] = [b""], ["503 Slow Down", []]
            if is_test and is_busy:
                content, said[:] = [b""], ["503 Slow Down", []]
            self.requests.append((method, path, said[0][:3]))
        start_response(said[0], said[1] or [("Content-Length", "0")])
        return content


@contextmanager
def s3_server() -> Iterator[tuple[str, OneByOne]]:
    """Yield address options of a server with the empty bucket ``sets``, as pyarrow takes them, and the server.

    The user has named it, so addresses may.
    """
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneByOne(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    owner = {"region_name": "us-east-1", "aws_access_key_id": "o", "aws_secret_access_key": "o"}
    boto3.client("s3", endpoint_url=url, **owner).create_bucket(Bucket="sets")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(STORES, url)
            yield f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http", application
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
