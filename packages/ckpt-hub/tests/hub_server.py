"""A hub on loopback: the part of the hub's protocol that its client uses to push and to fetch, with faults.

Repositories live in memory. `Hub(fault=...)` gets a function that is asked before every request and may answer
"429", "500", "cut" (the connection ends unanswered), "cut-late" (the request is done, then the connection ends)
or "half" (the upload is cut in its middle).
"""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

TOKEN = "hf_" + "s" * 12 + "ecretTOKEN"


def git_oid(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, private):
        self.private = private
        self.branches = {"main": {}}
        self.commits = []
        self.lfs_paths = set()

    def branch(self, revision):
        """The branch of this name, or whose head is this commit."""
        return (
            revision if revision in self.branches else next((b for b in self.branches if self.sha(b) == revision), None)
        )

    def sha(self, revision):
        seen = json.dumps(
            [revision, sorted((p, git_oid(d)) for p, d in self.branches[revision].items()), len(self.commits)]
        )
        return hashlib.sha1(seen.encode()).hexdigest()


class Hub:
    """The server; use as a context manager."""

    def __init__(self, fault=None, token=TOKEN, user="me", lfs_above=512):
        self.repos, self.lfs, self.requests = {}, {}, []
        self.fault, self.token, self.user, self.lfs_above = fault or (lambda method, path: None), token, user, lfs_above
        self.lock = threading.RLock()
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def files(self, repo, revision="main"):
        """Path to content, as a clone would have it."""
        with self.lock:
            return dict(self.repos[repo].branches[revision])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_):
        pass

    def _serve(self):
        url = urlparse(self.path)
        path = unquote(url.path)
        fault = self.hub.fault(self.command, path)
        with self.hub.lock:
            self.hub.requests.append((self.command, path, fault))
        if fault in ("cut", "half"):
            if fault == "half":
                self.rfile.read(int(self.headers.get("Content-Length", 0)) // 2)
            return self._cut()
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault in ("429", "500", "503"):
            return self._json({"error": "no"}, int(fault), {"Retry-After": "0"} if fault == "429" else {})
        self.late = fault == "cut-late"
        with self.hub.lock:
            # Split before unquoting: the name of a branch may hold a slash.
            return self._route(path, [unquote(part) for part in url.path.strip("/").split("/")])

    do_GET = do_HEAD = do_POST = do_PUT = _serve

    def _cut(self):
        self.close_connection = True
        self.connection.close()

    def _json(self, value, status=200, headers=None):
        self._send(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, data, status=200, headers=None):
        if getattr(self, "late", False):
            self._cut()
            return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _error(self, status, code=None):
        self._json({"error": code or str(status)}, status, {"X-Error-Code": code} if code else {})

    def _route(self, path, parts):
        if path.startswith("/lfs/"):
            return self._put_lfs(path.removeprefix("/lfs/"))
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self._error(401)
        if path == "/api/whoami-v2":
            return self._json({"name": self.hub.user, "type": "user"})
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(self.body))
        if path.startswith("/api/models/"):
            return self._model("/".join(parts[2:4]), parts[4:])
        if ".git/info/lfs" in path:
            return self._lfs_batch()
        if "resolve" in parts:
            return self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        return self._error(404)

    def _create(self, asked):
        name = f"{asked.get('organization') or self.hub.user}/{asked['name']}"
        status = 409 if name in self.hub.repos else 200
        private = asked.get("private", asked.get("visibility") == "private")
        self.hub.repos.setdefault(name, Repo(bool(private)))
        self._json({"url": f"{self.hub.endpoint}/{name}", "name": name}, status)

    def _model(self, name, rest):
        repo = self.hub.repos.get(name)
        if repo is None:
            return self._error(404, "RepoNotFound")
        if not rest or rest[0] == "revision":
            return self._info(name, repo, "/".join(rest[1:]) or "main")
        action, revision = rest[0], rest[1] if len(rest) > 1 else "main"
        if action == "branch":
            status = 409 if revision in repo.branches else 200
            repo.branches.setdefault(revision, dict(repo.branches["main"]))
            return self._json({}, status)
        revision = repo.branch(revision)
        if revision is None:
            return self._error(404, "RevisionNotFound")
        if action == "preupload":
            return self._preupload(repo.branches[revision])
        if action == "tree":
            return self._tree(repo.branches[revision], "/".join(rest[2:]))
        if action == "commit":
            return self._commit(name, repo, revision)
        return self._error(404)

    def _info(self, name, repo, revision):
        branch = repo.branch(revision)
        if branch is None:
            self._error(404, "RevisionNotFound")
            return
        self._json(
            {
                "id": name,
                "modelId": name,
                "private": repo.private,
                "sha": repo.sha(branch),
                "tags": [],
                "siblings": [{"rfilename": path} for path in sorted(repo.branches[branch])],
            }
        )

    def _preupload(self, files):
        answer = []
        for file in json.loads(self.body)["files"]:
            there = files.get(file["path"])
            lfs = file["size"] > self.hub.lfs_above or file["path"].endswith(".safetensors")
            oid = None if there is None else hashlib.sha256(there).hexdigest() if lfs else git_oid(there)
            answer.append(
                {"path": file["path"], "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False, "oid": oid}
            )
        self._json({"files": answer})

    def _lfs_batch(self):
        objects = []
        for item in json.loads(self.body)["objects"]:
            entry = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in self.hub.lfs:
                entry["actions"] = {"upload": {"href": f"{self.hub.endpoint}/lfs/{item['oid']}"}}
            objects.append(entry)
        self._json({"transfer": "basic", "objects": objects})

    def _put_lfs(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            return self._error(400)
        self.hub.lfs[oid] = self.body
        return self._send(b"")

    def _commit(self, name, repo, revision):
        files = dict(repo.branches[revision])
        header = {}
        for line in self.body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                header = value
            elif item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                if value["oid"] not in self.hub.lfs:
                    return self._error(400)
                files[value["path"]] = self.hub.lfs[value["oid"]]
            elif item["key"] == "deletedFile" and value["path"] in files:
                del files[value["path"]]
            else:
                return self._error(404, "EntryNotFound")
        repo.branches[revision] = files
        repo.commits.append({"summary": header.get("summary"), "revision": revision, "paths": sorted(files)})
        sha = repo.sha(revision)
        return self._json({"commitOid": sha, "commitUrl": f"{self.hub.endpoint}/{name}/commit/{sha}"})

    def _tree(self, files, folder):
        prefix = f"{folder}/" if folder else ""
        found = [path for path in sorted(files) if path.startswith(prefix)]
        if folder and not found:
            return self._error(404, "EntryNotFound")
        return self._json(
            [{"type": "file", "path": path, "size": len(files[path]), "oid": git_oid(files[path])} for path in found]
        )

    def _resolve(self, name, revision, path):
        repo = self.hub.repos.get(name)
        if repo is None:
            return self._error(404, "RepoNotFound")
        branch = repo.branch(revision)
        if branch is None or path not in repo.branches[branch]:
            return self._error(404, "EntryNotFound")
        data = repo.branches[branch][path]
        return self._send(data, headers={"ETag": f'"{git_oid(data)}"', "X-Repo-Commit": repo.sha(branch)})
