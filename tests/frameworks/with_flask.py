"""Flask with ProxyFix, configured as its documentation says, on werkzeug's server."""

import hashlib
import os
import secrets
import sys

from flask import Flask, abort, redirect, request, session, url_for
from werkzeug.middleware.proxy_fix import ProxyFix

app = Flask(__name__)
app.secret_key = os.urandom(32)
app.config.update(SESSION_COOKIE_SECURE=True)
app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1, x_host=1, x_port=1, x_prefix=1)


@app.route("/sign-in/", methods=["GET", "POST"])
def sign_in():
    if request.method == "GET":
        session["token"] = secrets.token_hex(16)
        return f'<form method="post"><input name="token" value="{session["token"]}"></form>'
    if request.form["token"] != session.get("token") or request.headers.get("Origin") != request.host_url.rstrip("/"):
        abort(403)
    session["user"] = request.form["user"]
    return redirect(url_for("home", _external=True))


@app.route("/home/")
def home():
    return session.get("user", "nobody")


@app.route("/upload/", methods=["POST"])
def upload():
    return hashlib.sha256(request.files["file"].read()).hexdigest()


@app.route("/absolute/")
def absolute():
    return url_for("home", _external=True)


if __name__ == "__main__":
    app.run("127.0.0.1", int(sys.argv[1]))
