// Express with `trust proxy`, configured as its documentation says for a proxy, and WebSockets beside it.
"use strict";

const crypto = require("node:crypto");
const express = require("express");
const multer = require("multer");
const { WebSocketServer } = require("ws");

const app = express();
app.set("trust proxy", "loopback");
const tokens = new Set();
const own = (request) => `${request.protocol}://${request.get("x-forwarded-host") ?? request.get("host")}`;

app.get("/sign-in/", (request, response) => {
  const token = crypto.randomBytes(16).toString("hex");
  tokens.add(token);
  response.send(`<form method="post"><input name="token" value="${token}"></form>`);
});
app.post("/sign-in/", express.urlencoded({ extended: false }), (request, response) => {
  if (!tokens.has(request.body.token) || request.get("origin") !== own(request)) return response.sendStatus(403);
  response.cookie("user", request.body.user, { httpOnly: true, secure: request.secure });
  response.redirect("/home/");
});
app.get("/home/", (request, response) => response.send(/user=(\w+)/.exec(request.get("cookie") ?? "")?.[1] ?? "nobody"));
app.post("/upload/", multer({ limits: { fileSize: 1 << 26 } }).single("file"), (request, response) => {
  response.send(crypto.createHash("sha256").update(request.file.buffer).digest("hex"));
});
app.get("/absolute/", (request, response) => response.send(`${own(request)}/home/`));
app.use("/items", express.static(__dirname));
app.use("/modules", express.static(process.env.NODE_PATH));

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
new WebSocketServer({ server, path: "/socket" }).on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
});
