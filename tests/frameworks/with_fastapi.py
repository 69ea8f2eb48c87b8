"""FastAPI under uvicorn, which trusts X-Forwarded-Proto from 127.0.0.1."""

import hashlib
import secrets
import sys

import uvicorn
from fastapi import FastAPI, Form, HTTPException, Request, UploadFile, WebSocket
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse

app = FastAPI()
tokens = set()


@app.get("/sign-in/", response_class=HTMLResponse)
def form():
    token = secrets.token_hex(16)
    tokens.add(token)
    return f'<form method="post"><input name="token" value="{token}"></form>'


@app.post("/sign-in/")
def sign_in(request: Request, token: str = Form(), user: str = Form()):
    own = f"{request.url.scheme}://{request.headers['host']}"
    if token not in tokens or request.headers.get("origin") != own:
        raise HTTPException(403, f"{request.headers.get('origin')} is not {own}")
    response = RedirectResponse(request.url_for("home"), 303)
    response.set_cookie("user", user, secure=True, httponly=True)
    return response


@app.get("/home/", response_class=PlainTextResponse)
def home(request: Request):
    return request.cookies.get("user", "nobody")


@app.post("/upload/", response_class=PlainTextResponse)
async def upload(file: UploadFile):
    return hashlib.sha256(await file.read()).hexdigest()


@app.get("/absolute/", response_class=PlainTextResponse)
def absolute(request: Request):
    return str(request.url_for("home"))


@app.websocket("/socket")
async def socket(socket: WebSocket):
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(text)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
