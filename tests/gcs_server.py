"""A stand-in for Google Cloud Storage on loopback: the sub-folders of a folder are buckets that can be read.

Started as ``python gcs_server.py FOLDER``; the first line it prints is its port. A process of its own, because pyarrow
waits for answers without letting other Python threads run.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(sys.argv[1])


def describe(bucket: str, name: str) -> dict[str, str]:
    when = "2026-01-01T00:00:00Z"
    size = str((ROOT / bucket / name).stat().st_size)
    described = {"kind": "storage#object", "bucket": bucket, "name": name, "size": size}
    return described | {"generation": "1", "metageneration": "1", "timeCreated": when, "updated": when}


class Handler(BaseHTTPRequestHandler):
    """Answers what pyarrow asks: a list of objects, an object's description, a range of its bytes."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *ignored: object) -> None:
        pass

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        bucket, _, name = address.path.removeprefix("/storage/v1/b/").partition("/o")
        folder, file = ROOT / bucket, ROOT / bucket / unquote(name.removeprefix("/"))
        if not folder.is_dir() or (name and not file.is_file()):
            self.answer(404, b'{"error": {"code": 404, "message": "there is no such thing"}}')
        elif not name:
            names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
            found = [describe(bucket, each) for each in names if each.startswith(asked.get("prefix", ""))]
            self.answer(200, json.dumps({"kind": "storage#objects", "items": found}).encode())
        elif asked.get("alt") != "media":
            self.answer(200, json.dumps(describe(bucket, file.relative_to(folder).as_posix())).encode())
        else:
            self.answer_bytes(file.read_bytes())

    def answer_bytes(self, content: bytes) -> None:
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        about = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        self.answer(206 if "Range" in self.headers else 200, part, about)

    def answer(self, code: int, body: bytes, content_range: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        if content_range:
            self.send_header("Content-Range", content_range)
            self.send_header("x-goog-generation", "1")
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
