"""An issuer of tokens, run by Dragoman's own Python, which has the library for it: one key, one token, its discovery.

Prints one line of JSON with its `url` and the `token`, then answers until it is ended. `python issuer.py AUDIENCE`.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from joserfc import jwt
from joserfc.jwk import RSAKey

LIFE_S = 3600


def main() -> None:
    key = RSAKey.generate_key(2048, {"kid": "bench", "use": "sig", "alg": "RS256"})
    documents: dict[str, bytes] = {}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = documents.get(self.path)
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    url = f"http://127.0.0.1:{server.server_port}"
    documents["/.well-known/openid-configuration"] = json.dumps({"issuer": url, "jwks_uri": f"{url}/jwks"}).encode()
    documents["/jwks"] = json.dumps({"keys": [key.as_dict(private=False)]}).encode()
    now_s = int(time.time())
    claims = {"iss": url, "sub": "bench", "aud": sys.argv[1], "iat": now_s, "exp": now_s + LIFE_S}
    token = jwt.encode({"alg": "RS256", "kid": "bench"}, claims, key)
    print(json.dumps({"url": url, "token": token}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
