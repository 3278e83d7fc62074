"""A small Hub on 127.0.0.1: what `huggingface_hub` and Transformers ask of the real one to publish and load a model.

Repositories, branches, commits, LFS with checksums, revisions, the headers of downloads, 401 for who has
no token. It keeps everything in memory: `server.repositories["owner/name"]`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

TOKEN = "hf_" + "test"
OWNER = "tester"
LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".png")


@dataclass
class Commit:
    oid: str
    message: str
    files: dict[str, bytes]


@dataclass
class Repository:
    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    lfs: set[str] = field(default_factory=set)  # paths that came through LFS

    def commit(self, branch: str, message: str, files: dict[str, bytes]) -> str:
        content = repr((branch, message, len(self.commits), sorted(files))).encode()
        oid = hashlib.sha1(content).hexdigest()
        self.commits[oid] = Commit(oid, message, files)
        self.branches[branch] = oid
        return oid

    def at(self, revision: str) -> Commit | None:
        return self.commits.get(self.branches.get(revision, revision))

    def history(self) -> list[Commit]:
        return list(self.commits.values())


class Refusal(Exception):
    def __init__(self, status: int, code: str = "", message: str = ""):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message or code


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}  # of LFS, by sha256
        self.log: list[tuple[str, str, int]] = []  # method, path, status
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def requests(self, method: str, pattern: str) -> list[tuple[str, str, int]]:
        return [entry for entry in self.log if entry[0] == method and re.search(pattern, entry[1])]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    ROUTES = [
        ("GET", r"/api/whoami-v2", "whoami"),
        ("POST", r"/api/repos/create", "create"),
        ("POST", r"/api/validate-yaml", "validate"),
        ("POST", r"/api/models/(?P<name>[^/]+/[^/]+)/preupload/(?P<revision>[^/]+)", "preupload"),
        ("POST", r"/api/models/(?P<name>[^/]+/[^/]+)/commit/(?P<revision>[^/]+)", "commit"),
        ("POST", r"/api/models/(?P<name>[^/]+/[^/]+)/branch/(?P<branch>[^/]+)", "branch"),
        ("GET", r"/api/models/(?P<name>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)(?:/(?P<folder>.*))?", "tree"),
        ("GET", r"/api/models/(?P<name>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?", "info"),
        ("POST", r"/(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch", "lfs_batch"),
        ("PUT", r"/lfs/(?P<oid>[0-9a-f]{64})", "lfs_put"),
        ("POST", r"/lfs/verify", "lfs_verify"),
        ("GET", r"/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
    ]

    def handle_request(self):
        address = urlsplit(self.path)
        self.query = parse_qs(address.query)
        length = self.headers.get("Content-Length")
        self.body = self.rfile.read(int(length)) if length else self.read_chunks()
        method = "GET" if self.command == "HEAD" else self.command
        try:
            for of, pattern, name in self.ROUTES:
                match = re.fullmatch(pattern, address.path)
                if match and of == method:
                    parts = {key: value and unquote(value) for key, value in match.groupdict().items()}
                    with self.server.lock:
                        status, content, headers = getattr(self, name)(**parts)
                    break
            else:
                raise Refusal(404, "EntryNotFound", f"no such route: {method} {address.path}")
        except Refusal as refusal:
            status, content = refusal.status, {"error": refusal.message}
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.server.log.append((self.command, address.path, status))
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = handle_request

    def read_chunks(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return b""
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *arguments):
        pass

    # --- who asks, and for what ---

    def has_token(self) -> bool:
        given = self.headers.get("Authorization")
        if given and given != f"Bearer {TOKEN}":
            raise Refusal(401, "", "Invalid credentials in Authorization header")
        return bool(given)

    def require_token(self):
        if not self.has_token():
            raise Refusal(401, "", "Unauthorized")

    def repository(self, name: str) -> Repository:
        repository = self.server.repositories.get(name)
        if repository is None or (repository.private and not self.has_token()):
            raise Refusal(404 if self.has_token() else 401, "RepoNotFound", "Repository not found")
        return repository

    def revision(self, repository: Repository, revision: str) -> Commit:
        commit = repository.at(revision)
        if commit is None:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    # --- the API ---

    def whoami(self):
        self.require_token()
        return 200, {"type": "user", "name": OWNER, "orgs": [], "auth": {"accessToken": {"role": "write"}}}, {}

    def create(self):
        self.require_token()
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or OWNER}/{asked['name']}"
        answer = {"url": f"{self.server.url}/{name}", "name": name, "id": name}
        if name in self.server.repositories:
            return 409, answer | {"error": "You already created this model repo"}, {}
        private = asked.get("visibility") == "private" or asked.get("private") is True
        repository = self.server.repositories[name] = Repository(private)
        repository.commit("main", "initial commit", {".gitattributes": b"*.safetensors filter=lfs\n"})
        return 200, answer, {}

    def validate(self):
        match = re.match(r"---\n(.*?)\n---", json.loads(self.body)["content"], re.DOTALL)
        try:
            data = yaml.safe_load(match[1]) if match else {}
        except yaml.YAMLError as error:
            return 400, {"errors": [{"message": str(error)}]}, {}
        base = (data or {}).get("base_model") or []
        for name in [base] if isinstance(base, str) else base:  # the real one says this too
            if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
                return 400, {"errors": [{"message": '"base_model" with value is not valid'}]}, {}
        return 200, {"errors": [], "warnings": []}, {}

    def info(self, name, revision):
        repository = self.repository(name)
        commit = self.revision(repository, revision or "main")
        return 200, {
            "_id": name, "id": name, "modelId": name, "private": repository.private, "sha": commit.oid, "tags": [],
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
        }, {}  # fmt: skip

    def tree(self, name, revision, folder):
        commit = self.revision(self.repository(name), revision)
        files = {path: data for path, data in commit.files.items() if not folder or path.startswith(f"{folder}/")}
        if folder and not files:
            raise Refusal(404, "EntryNotFound", f"{folder} does not exist")
        return 200, [
            {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for path, data in files.items()
        ], {}  # fmt: skip

    def branch(self, name, branch):
        self.require_token()
        repository = self.repository(name)
        if branch in repository.branches:
            raise Refusal(409, "", "Reference already exists")
        start = json.loads(self.body or b"{}").get("startingPoint", "main")
        repository.branches[branch] = self.revision(repository, start).oid
        return 200, {}, {}

    def preupload(self, name, revision):
        self.require_token()
        repository = self.repository(name)
        there = self.revision(repository, revision).files
        asked = json.loads(self.body)
        return 200, {
            "files": [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(LFS_SUFFIXES) else "regular",
                    "shouldIgnore": False,
                    "oid": self.git_oid(repository, there, file["path"]),
                }
                for file in asked["files"]
            ]
        }, {}  # fmt: skip

    @staticmethod
    def git_oid(repository: Repository, files: dict[str, bytes], path: str) -> str | None:
        """The git id of a small file, the sha256 of a large one: what the client compares with its own."""
        if path not in files:
            return None
        data = files[path]
        if path in repository.lfs:
            return hashlib.sha256(data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def lfs_batch(self, name):
        self.require_token()
        self.repository(name)
        objects = []
        for asked in json.loads(self.body)["objects"]:
            entry = {"oid": asked["oid"], "size": asked["size"]}
            if asked["oid"] not in self.server.blobs:
                entry["actions"] = {
                    "upload": {"href": f"{self.server.url}/lfs/{asked['oid']}", "header": {}},
                    "verify": {"href": f"{self.server.url}/lfs/verify", "header": {}},
                }
            objects.append(entry)
        return 200, {"transfer": "basic", "objects": objects}, {}

    def lfs_put(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise Refusal(400, "", "checksum does not match")
        self.server.blobs[oid] = self.body
        return 200, b"", {}

    def lfs_verify(self):
        self.require_token()
        asked = json.loads(self.body)
        if len(self.server.blobs.get(asked["oid"], b"")) != asked["size"]:
            raise Refusal(404, "", "object is not there")
        return 200, {}, {}

    def commit(self, name, revision):
        self.require_token()
        repository = self.repository(name)
        files = dict(self.revision(repository, revision).files)
        if revision not in repository.branches:
            raise Refusal(400, "", "commits go to branches")
        message = ""
        for line in self.body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                message = value["summary"]
            elif item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
                repository.lfs.discard(value["path"])
            elif item["key"] == "lfsFile":
                if value["oid"] not in self.server.blobs:
                    raise Refusal(400, "", "LFS object is not there")
                files[value["path"]] = self.server.blobs[value["oid"]]
                repository.lfs.add(value["path"])
            elif item["key"] == "deletedFile":
                files.pop(value["path"])
        oid = repository.commit(revision, message, files)
        return 200, {"success": True, "commitOid": oid, "commitUrl": f"{self.server.url}/{name}/commit/{oid}"}, {}

    def resolve(self, name, revision, path):
        repository = self.repository(name)
        commit = self.revision(repository, revision)
        headers = {"X-Repo-Commit": commit.oid}
        if path not in commit.files:
            raise Refusal(404, "EntryNotFound", f"{path} does not exist on {revision}")
        data = commit.files[path]
        digest = hashlib.sha256(data).hexdigest()
        headers["ETag"] = f'"{hashlib.sha1(data).hexdigest()}"'
        if path in repository.lfs:
            headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(data))}
        start = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if start:
            return 206, data[int(start[1]) :], headers
        return 200, data, headers


# --- who talks to it ---


def client_environment(server: HubServer, home: Path, token: str | None = TOKEN) -> dict[str, str]:
    """The environment of a process whose Hub is the server."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment |= {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(home / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return environment | ({"HF_TOKEN": token} if token else {})
